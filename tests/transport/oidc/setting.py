"""An issuer in memory, a clock that stands still, and what checks the issuer's tokens."""

import asyncio
from urllib.parse import urlsplit

from harness.issuer import AUDIENCE, Issuer

from gateway.config.schema import OidcConfig
from gateway.telemetry.metrics import Metrics
from gateway.transport.oidc.authenticator import OidcAuthenticator
from gateway.transport.oidc.documents import DocumentError
from gateway.transport.oidc.issuer import Issuer as Keeper


class StillClock:
    """Shows the same time until it is set."""

    def __init__(self):
        self.seconds = 1_000_000.0

    def now(self):
        return self.seconds

    def monotonic(self):
        return self.seconds


class Setting:
    """One issuer and one gateway's view of it.

    Attributes:
        gate: while it is clear, documents do not arrive.
    """

    def __init__(self, **changed):
        self.issuer = Issuer()
        self.clock = StillClock()
        self.metrics = Metrics()
        self.gate = asyncio.Event()
        self.gate.set()
        self.oidc = OidcConfig(**{"issuer": self.issuer.url, "audiences": (AUDIENCE,), **changed})
        self.keeper = Keeper(self.oidc, self.get, self.clock, self.metrics)
        self.authenticator = OidcAuthenticator(self.oidc, self.keeper, self.clock, self.metrics)

    @property
    def fetches(self):
        """How often the set of keys was fetched."""
        return self.issuer.asked.count("/jwks")

    async def get(self, url):
        path = urlsplit(url).path
        self.issuer.asked.append(path)
        await self.gate.wait()
        document = self.issuer.document(path)
        if self.issuer.broken or document is None:
            raise DocumentError(f"{url}: no answer")
        return document

    def bearer(self, token=None, **changed):
        """Return the header's value for a token, a good one unless told otherwise."""
        if token is None:
            token = self.issuer.token(**{"now": self.clock.now(), **changed})
        return b"Bearer " + token.encode()

    async def who(self, token=None, **changed):
        return (await self.authenticator.authenticate(self.bearer(token, **changed))).principal

    def counted(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels) or 0
