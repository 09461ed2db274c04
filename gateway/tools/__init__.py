"""Tools that the gateway runs itself, behind `gateway.ports.tools`."""
