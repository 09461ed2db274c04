"""Thin adapters between the wire and the engine."""
