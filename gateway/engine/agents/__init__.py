"""Responses that a tree of agents makes: one task owns the tree and the turn, and others work for it."""
