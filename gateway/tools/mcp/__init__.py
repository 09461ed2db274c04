"""Tools of MCP servers: sessions with them, their tools as the model's, and calls."""
