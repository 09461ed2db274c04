"""Recordings of whole sessions between a client and a Responses API: made, read, checked, replayed, served."""
