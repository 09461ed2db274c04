"""Responses and their items in SQLite or PostgreSQL."""
