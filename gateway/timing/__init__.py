"""Bounds of time and number that more than one room sets."""
