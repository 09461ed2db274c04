"""Builds what tells who calls."""

from pathlib import Path

from gateway.app.errors import StartError
from gateway.config.certificates import CertificateFileError
from gateway.config.schema import AuthConfig, GatewayConfig, OidcConfig
from gateway.ports import Authenticator, Clock, KeyBook, KeysUnreadable
from gateway.storage.faults import StorageNotReady
from gateway.storage.key_file import KeyFile
from gateway.storage.key_table import KeyTable
from gateway.storage.settings import StoreSettings, database_url
from gateway.telemetry.metrics import Metrics
from gateway.transport.auth import Unauthenticated
from gateway.transport.keys import KeyRing
from gateway.transport.proxies import TrustedProxies


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
    return _build_key_ring(config, clock, metrics)


def build_key_book(config: GatewayConfig) -> KeyBook:
    """Build access to the keys, where `[auth] keys_in` says they are kept.

    Raises:
        StorageNotReady: the database's driver is not there.
    """
    auth, storage = config.auth, config.storage
    if auth.keys_in == "file":
        return KeyFile(Path(auth.keys_file), max_keys=auth.keys_max)
    settings = StoreSettings(
        url=database_url(storage.url.reveal()),
        auto_migrate=storage.auto_migrate,
        sqlite_synchronous=storage.sqlite_synchronous,
        busy_timeout_seconds=storage.busy_timeout_seconds,
        statement_timeout_seconds=auth.keys_timeout_seconds,
    )
    return KeyTable(settings, max_keys=auth.keys_max)


def build_proxies(auth: AuthConfig) -> TrustedProxies | None:
    """Build what believes the configured proxies, if there are any."""
    if not auth.trusted_principal_header:
        return None
    return TrustedProxies(auth.trusted_principal_header, auth.trusted_proxies, required=auth.mode == "none")


def _build_key_ring(config: GatewayConfig, clock: Clock, metrics: Metrics) -> KeyRing:
    auth = config.auth
    try:
        book = build_key_book(config)
        if auth.keys_in == "file":
            # A database may come later; a file that is not as it should be is a mistake.
            book.read()
    except (StorageNotReady, KeysUnreadable) as error:
        raise StartError(str(error)) from error
    return KeyRing(
        book,
        revalidate_seconds=auth.keys_revalidate_seconds,
        max_stale_seconds=auth.keys_max_stale_seconds,
        timeout_seconds=auth.keys_timeout_seconds,
        clock=clock,
        metrics=metrics,
    )


def _build_oidc(oidc: OidcConfig, clock: Clock, metrics: Metrics) -> Authenticator:
    try:
        # Most gateways have no use for these, and not every installation has what they need.
        from gateway.transport.oidc.authenticator import OidcAuthenticator  # noqa: PLC0415
        from gateway.transport.oidc.documents import DocumentClient  # noqa: PLC0415
        from gateway.transport.oidc.issuer import Issuer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise StartError(
            f"[auth] mode = 'oidc' needs a package that is not there ({error.name}); install the extra: "
            "pip install 'responses-gateway[auth]'."
        ) from error
    try:
        documents = DocumentClient(oidc)
    except CertificateFileError as error:
        raise StartError(f"[oidc] ca_file: {error}") from error
    return OidcAuthenticator(oidc, Issuer(oidc, documents.get, clock, metrics), clock, metrics)
