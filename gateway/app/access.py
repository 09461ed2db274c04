"""Builds what tells who calls."""

from gateway.app.errors import StartError
from gateway.config.certificates import CertificateFileError
from gateway.config.schema import GatewayConfig, OidcConfig
from gateway.ports import Authenticator, Clock
from gateway.telemetry.metrics import Metrics
from gateway.transport.auth import Unauthenticated


def build_authenticator(config: GatewayConfig, clock: Clock, metrics: Metrics) -> Authenticator:
    """Build the authenticator of the configured mode.

    Raises:
        StartError: it cannot be built as it is configured.
    """
    auth = config.auth
    if auth.mode == "none":
        return Unauthenticated()
    if auth.mode == "oidc":
        return _build_oidc(config.oidc, clock, metrics)
    raise StartError(f"[auth] mode = '{auth.mode}' is not built yet; use 'none'.")


def _build_oidc(oidc: OidcConfig, clock: Clock, metrics: Metrics) -> Authenticator:
    try:
        # Most gateways have no use for these, and not every installation has what they need.
        from gateway.transport.oidc.authenticator import OidcAuthenticator  # noqa: PLC0415
        from gateway.transport.oidc.documents import DocumentClient  # noqa: PLC0415
        from gateway.transport.oidc.issuer import Issuer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise StartError(
            f"[auth] mode = 'oidc' needs the package {error.name}; install responses-gateway[auth]."
        ) from error
    try:
        documents = DocumentClient(oidc)
    except CertificateFileError as error:
        raise StartError(f"[oidc] ca_file: {error}") from error
    return OidcAuthenticator(oidc, Issuer(oidc, documents.get, clock, metrics), clock, metrics)
