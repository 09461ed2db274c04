"""Bounds of time that more than one room sets."""
