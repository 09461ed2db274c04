"""Builds what tells who calls."""

from gateway.app.errors import StartError
from gateway.config.schema import AuthConfig
from gateway.ports import Authenticator
from gateway.transport.auth import Unauthenticated


def build_authenticator(auth: AuthConfig) -> Authenticator:
    """Build the authenticator of the configured mode.

    Raises:
        StartError: it cannot be built as it is configured.
    """
    if auth.mode == "none":
        return Unauthenticated()
    raise StartError(f"[auth] mode = '{auth.mode}' is not built yet; use 'none'.")
