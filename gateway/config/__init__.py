"""One schema: file, environment, command line, JSON Schema and docs all come from it."""
