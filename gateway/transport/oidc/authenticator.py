"""Whom a token belongs to."""

from collections import OrderedDict
from hashlib import sha256

from gateway.config.schema import OidcConfig
from gateway.ports import Clock, Identity
from gateway.protocol.errors import GatewayError, Unauthorized
from gateway.telemetry.metrics import Metrics
from gateway.transport.oidc.issuer import Issuer
from gateway.transport.oidc.keys import SigningKeys
from gateway.transport.oidc.tokens import TokenReader

_SCHEME = b"bearer"


class OidcAuthenticator:
    """Takes callers for those whom an issuer's tokens name; see `ports.Authenticator`.

    A checked token is remembered by its hash until it expires, is crowded out, or the issuer's keys change: of a key
    that is withdrawn nothing remains.

    Args:
        oidc: what makes a token good.
        issuer: has the keys.
        clock: tells what has expired.
        metrics: counts tokens.
    """

    def __init__(self, oidc: OidcConfig, issuer: Issuer, clock: Clock, metrics: Metrics) -> None:
        self._issuer = issuer
        self._reader = TokenReader(oidc, clock)
        self._clock = clock
        self._checked = metrics.oidc_tokens_total
        self._room = oidc.remembered_tokens
        self._remembered: OrderedDict[bytes, Identity] = OrderedDict()
        self._proven_by: SigningKeys | None = None
        metrics.watch(metrics.oidc_remembered_tokens, lambda: len(self._remembered))

    async def start(self) -> None:
        """Ask the issuer for its keys, without waiting for them."""
        self._issuer.ask()

    def refresh(self) -> None:
        """Ask the issuer again; the known keys count until it answers."""
        self._issuer.ask()

    async def close(self) -> None:
        """Stop asking."""
        await self._issuer.close()

    def recall(self, credential: bytes | None) -> Identity | None:
        """Return whom a token names that was checked before, while nothing has to be asked about its key."""
        if credential is None or self._proven_by is None or self._proven_by is not self._issuer.settled_keys:
            return None
        digest = sha256(credential).digest()
        identity = self._remembered.get(digest)
        if identity is None:
            return None
        if not self.holds(identity):
            del self._remembered[digest]
            return None
        self._remembered.move_to_end(digest)
        return identity

    async def authenticate(self, credential: bytes | None) -> Identity:
        """Return whom a token names.

        Raises:
            Unauthorized: there is no token, or it is no good.
            Forbidden: it does not permit what is required.
            Unavailable: the issuer cannot be asked for its keys.
        """
        try:
            identity = await self._check(credential)
        except GatewayError as error:
            self._checked.labels("refused" if error.status < 500 else "unavailable").inc()
            raise
        self._checked.labels("accepted").inc()
        return identity

    def holds(self, identity: Identity) -> bool:
        """Tell whether the token has not expired."""
        return identity.expires_at is None or self._clock.now() < identity.expires_at

    async def _check(self, credential: bytes | None) -> Identity:
        scheme, _, token = (credential or b"").strip().partition(b" ")
        if scheme.lower() != _SCHEME or not token:
            raise Unauthorized("Send a token of the issuer's in the header 'Authorization: Bearer TOKEN'.")
        opened = self._reader.open(token.strip())
        keys = await self._issuer.keys()
        if not keys.find(opened.headers().get("kid")):
            keys = await self._issuer.newer_keys()
        identity = self._reader.identify(opened, keys)
        assert credential is not None
        self._remember(credential, identity, keys)
        return identity

    def _remember(self, credential: bytes, identity: Identity, keys: SigningKeys) -> None:
        if keys is not self._proven_by:
            self._remembered.clear()
            self._proven_by = keys
        if not self._room:
            return
        self._remembered[sha256(credential).digest()] = identity
        if len(self._remembered) > self._room:
            self._remembered.popitem(last=False)
