"""Callers whom an OpenID Connect issuer vouches for: its keys, its tokens and who holds them.

Imported only when `[auth] mode` is `oidc`, for it needs the extra `auth`.
"""
