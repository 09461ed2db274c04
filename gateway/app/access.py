"""Builds what tells who calls."""

from gateway.app.errors import StartError
from gateway.config.schema import GatewayConfig
from gateway.ports import Authenticator, Clock
from gateway.telemetry.metrics import Metrics
from gateway.transport.auth import Unauthenticated


def build_authenticator(config: GatewayConfig, clock: Clock, metrics: Metrics) -> Authenticator:  # noqa: ARG001
    """Build the authenticator of the configured mode.

    Raises:
        StartError: it cannot be built as it is configured.
    """
    auth = config.auth
    if auth.mode == "none":
        return Unauthenticated()
    raise StartError(f"[auth] mode = '{auth.mode}' is not built yet; use 'none'.")
