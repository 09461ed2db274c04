"""The one engine that runs every response, whatever the transport."""
