"""An issuer's keys, and how old they may be."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.config.addresses import is_confidential, parse_http_url
from gateway.config.schema import OidcConfig
from gateway.ports import Clock
from gateway.protocol.errors import Unavailable
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_OIDC
from gateway.transport.oidc.documents import DocumentError
from gateway.transport.oidc.keys import SigningKeys
from gateway.upstream.tasks import end_task

_logger = logging.getLogger(LOGGER_OIDC)
_DISCOVERY = "/.well-known/openid-configuration"

GetDocument = Callable[[str], Awaitable[dict[str, Any]]]


class Issuer:
    """Asks one issuer for its keys, once for however many callers wait for them.

    Keys are asked for anew when `jwks_cache_seconds` have passed. While that fails, the known ones count for
    `jwks_max_stale_seconds` more and nobody waits for the next attempt; without any, callers are told to come back.

    Args:
        oidc: the issuer, and for how long its keys count.
        get: returns the document at a URL, or raises DocumentError.
        clock: measures ages.
        metrics: counts attempts.
    """

    def __init__(self, oidc: OidcConfig, get: GetDocument, clock: Clock, metrics: Metrics) -> None:
        self._oidc = oidc
        self._get = get
        self._clock = clock
        self._metrics = metrics
        self._keys: SigningKeys | None = None
        self._failing = False
        self._asked_at = self._due_at = self._void_at = float("-inf")
        self._flight: asyncio.Task[None] | None = None

    @property
    def settled_keys(self) -> SigningKeys | None:
        """The keys, if they count now and there is nothing to ask about them."""
        return self._keys if self._clock.monotonic() < min(self._due_at, self._void_at) else None

    async def keys(self) -> SigningKeys:
        """Return the keys that count now.

        Raises:
            Unavailable: there are none, and the issuer does not give any.
        """
        now = self._clock.monotonic()
        if now >= self._due_at:
            flight = self.ask()
            if not self._failing or now >= self._void_at:
                # Waited for, not awaited: a caller that leaves must not take the answer from the others.
                await asyncio.wait({flight})
        if self._keys is None or now >= self._void_at:
            raise self._unavailable()
        return self._keys

    async def newer_keys(self) -> SigningKeys:
        """Return the keys after another look, if one is allowed so soon: for a token whose key is not among them.

        Raises:
            Unavailable: the issuer could not be asked, so that nobody knows.
        """
        allowed_at = self._asked_at + self._oidc.jwks_refresh_interval_seconds
        if self._flight is not None or self._clock.monotonic() >= allowed_at:
            await asyncio.wait({self.ask()})
        if self._keys is None or self._failing:
            raise self._unavailable()
        return self._keys

    def ask(self) -> asyncio.Task[None]:
        """Ask for the keys unless that is being done already; returns what is done, and never fails, at its end."""
        if self._flight is None:
            self._asked_at = self._clock.monotonic()
            self._flight = asyncio.create_task(self._refresh(), name="oidc-keys")
            self._flight.add_done_callback(self._land)
        return self._flight

    async def close(self) -> None:
        """Stop asking."""
        if self._flight is not None:
            await end_task(self._flight)

    def _land(self, _: asyncio.Task[None]) -> None:
        self._flight = None

    async def _refresh(self) -> None:
        try:
            keys = await self._fetch()
        # Whatever an issuer may say, the next attempt must come.
        except Exception as error:  # noqa: BLE001
            self._note_failure(error)
        else:
            self._note_success(keys)

    async def _fetch(self) -> SigningKeys:
        issuer = self._oidc.issuer or ""
        url = issuer.rstrip("/") + _DISCOVERY
        discovery = await self._get(url)
        if discovery.get("issuer") != issuer:
            raise DocumentError(
                f"{url}: is of another issuer; [oidc] issuer must be spelled exactly as in 'issuer' there"
            )
        address = discovery.get("jwks_uri")
        if not isinstance(address, str) or not _is_fetchable(address):
            raise DocumentError(f"{url}: its 'jwks_uri' is no https URL")
        document = await self._get(address)
        try:
            return SigningKeys(document) if self._keys is None else self._keys.renewed(document)
        except ValueError as error:
            raise DocumentError(f"{address}: {error}") from error

    def _note_success(self, keys: SigningKeys) -> None:
        now = self._clock.monotonic()
        if keys is not self._keys:
            _logger.info("keys of the issuer that count from now on: %d", len(keys))
        elif self._failing:
            _logger.info("the issuer's keys can be fetched again")
        self._keys, self._failing = keys, False
        self._due_at = now + self._oidc.jwks_cache_seconds
        self._void_at = self._due_at + self._oidc.jwks_max_stale_seconds
        self._metrics.oidc_fetches_total.labels("fetched").inc()
        self._metrics.oidc_keys_fetched_timestamp_seconds.set(self._clock.now())

    def _note_failure(self, error: Exception) -> None:
        level = logging.INFO if self._failing else logging.WARNING
        expected = isinstance(error, DocumentError)
        _logger.log(level, "the issuer's keys cannot be fetched: %s", error, exc_info=None if expected else error)
        self._failing = True
        self._due_at = self._clock.monotonic() + self._oidc.jwks_refresh_interval_seconds
        self._metrics.oidc_fetches_total.labels("failed").inc()

    def _unavailable(self) -> Unavailable:
        error = Unavailable("Tokens cannot be checked now, because their issuer does not answer; try again later.")
        error.retry_after = max(1.0, self._due_at - self._clock.monotonic())
        return error


def _is_fetchable(url: str) -> bool:
    try:
        parse_http_url(url.partition("?")[0])
    except ValueError:
        return False
    return is_confidential(url) and url.isascii() and url.isprintable() and "#" not in url
