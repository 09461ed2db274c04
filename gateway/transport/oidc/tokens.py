"""Tokens: what makes one good, and whom it names."""

from collections.abc import Collection
from typing import Any, Final

from joserfc import jws
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jws import CompactSignature, JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from gateway.config.schema import OidcConfig
from gateway.ports import Clock, Identity
from gateway.protocol import codec
from gateway.protocol.errors import Forbidden, Unauthorized
from gateway.transport.oidc.keys import SigningKeys

# Access tokens (RFC 9068), and the many that call themselves nothing, or just a token. What is for something else, such
# as a logout, says so.
_TYPES: Final = frozenset({"jwt", "at+jwt"})
_MAX_DEPTH = 32
_MAX_NAME_CHARS = 255


class TokenRefused(Unauthorized):
    """A token was sent that is no good."""

    challenge = 'Bearer error="invalid_token"'


class ScopeMissing(Forbidden):
    """A good token that does not permit enough."""

    code = "insufficient_scope"

    @property
    def hints(self) -> dict[str, str]:
        """Say it to clients that know tokens, too."""
        return {**super().hints, "www-authenticate": 'Bearer error="insufficient_scope"'}


class _Algorithms(JWSRegistry):
    """The algorithms that are allowed and the bounds of a token.

    Args:
        allowed: their names.
        max_bytes: largest token.
    """

    def __init__(self, allowed: Collection[str], max_bytes: int) -> None:
        super().__init__(algorithms=allowed, strict_check_header=False)
        self.max_header_length = self.max_payload_length = self.max_signature_length = max_bytes

    def get_alg(self, name: str) -> Any:
        """Return an allowed algorithm; unlike the library's, this says nothing each time of one that has a new name.

        Raises:
            JoseError: it is not allowed.
        """
        if self.allowed is None or name not in self.allowed:
            raise JoseError("the algorithm is not allowed")
        return self.algorithms[name]


class TokenReader:
    """Reads tokens of one issuer.

    Args:
        oidc: what makes a token good.
        clock: tells whether it is good now.
    """

    def __init__(self, oidc: OidcConfig, clock: Clock) -> None:
        self._oidc = oidc
        self._algorithms = _Algorithms(oidc.algorithms, oidc.max_token_bytes)
        self._claims = JWTClaimsRegistry(
            now=clock.now,  # type: ignore[arg-type]  # it is compared, so fractions are welcome
            leeway=oidc.leeway_seconds,  # type: ignore[arg-type]  # likewise
            iss={"essential": True, "value": oidc.issuer or ""},
            aud={"essential": True, "values": list(oidc.audiences)},
            exp={"essential": True},
        )

    def open(self, token: bytes) -> CompactSignature:
        """Return a token of which nothing has been proven yet.

        Raises:
            TokenRefused: it is none, or none that could be accepted.
        """
        if len(token) > self._oidc.max_token_bytes:
            raise TokenRefused(f"The token is larger than {self._oidc.max_token_bytes} bytes ([oidc] max_token_bytes).")
        try:
            opened = jws.extract_compact(token, registry=self._algorithms)
        except (JoseError, ValueError, TypeError, RecursionError):
            raise TokenRefused("The Authorization header holds no token that can be read.") from None
        header: Any = opened.headers()
        # An extension that must be understood is none that is.
        if not isinstance(header, dict) or "crit" in header or "b64" in header:
            raise TokenRefused("The token's header asks for what is not supported.")
        algorithm, kind = header.get("alg"), header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in self._oidc.algorithms:
            raise TokenRefused("The token is signed in a way that is not accepted here ([oidc] algorithms).")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
            raise TokenRefused("The token is of a kind ('typ') that gives no access; send an access token.")
        if not isinstance(header.get("kid", ""), str):
            raise TokenRefused("The token's 'kid' is not a string.")
        return opened

    def identify(self, opened: CompactSignature, keys: SigningKeys) -> Identity:
        """Return whom a token names, once everything about it has been proven.

        Raises:
            TokenRefused: it is not the issuer's, not meant for here, or not valid now.
            ScopeMissing: it does not permit what is required.
        """
        self._check_signature(opened, keys)
        claims = self._read_claims(opened.payload)
        try:
            self._claims.validate(claims)
        except ExpiredTokenError:
            raise TokenRefused("The token has expired; send a new one.") from None
        except MissingClaimError as error:
            raise TokenRefused(f"The token lacks what it must hold: {error.claim}.") from None
        except InvalidClaimError as error:
            raise TokenRefused(f"The token's '{error.claim}' is wrong, or not right here and now.") from None
        self._check_scopes(claims)
        return Identity(
            principal=f"{self._oidc.issuer}#{self._read_name(claims)}",
            expires_at=_add(claims["exp"], self._oidc.leeway_seconds),
        )

    def _check_signature(self, opened: CompactSignature, keys: SigningKeys) -> None:
        for key in keys.find(opened.headers().get("kid")):
            try:
                if jws.validate_compact(opened, key, registry=self._algorithms):
                    return
            except (JoseError, ValueError):
                # The key is for another algorithm, or the signature is none at all.
                continue
        raise TokenRefused("No key of the issuer's has signed the token.")

    def _read_claims(self, payload: bytes) -> dict[str, Any]:
        try:
            claims = codec.decode(payload, max_depth=_MAX_DEPTH)
        except ValueError:
            claims = None
        if not isinstance(claims, dict):
            raise TokenRefused("The token holds no claims that can be read.")
        return claims

    def _read_name(self, claims: dict[str, Any]) -> str:
        claim = self._oidc.principal_claim
        name = claims.get(claim)
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARS or not name.isprintable():
            raise TokenRefused(
                f"The token's '{claim}', which names the caller, must be a text of 1 to {_MAX_NAME_CHARS} characters."
            )
        return name

    def _check_scopes(self, claims: dict[str, Any]) -> None:
        if not self._oidc.required_scopes:
            return
        held = claims.get("scope", claims.get("scp"))
        held = held.split(" ") if isinstance(held, str) else held
        missing = [scope for scope in self._oidc.required_scopes if not isinstance(held, list) or scope not in held]
        if missing:
            raise ScopeMissing(f"The token lacks the scope {' '.join(missing)}.")


def _add(instant: float, seconds: float) -> float:
    """Return the sum, infinite where the claim is a number beyond all floating ones."""
    try:
        return instant + seconds
    except OverflowError:
        return float("inf")
