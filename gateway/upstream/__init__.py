"""The inference server: client, dialects, health and the scripted twin."""
