"""The keys of tokens that an OpenID Connect issuer gives to callers."""

from typing import Annotated, Literal

from gateway.config.kinds import CountOrZero, Duration, DurationOrZero, FilePath, IssuerUrl, Names, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import KIB

SignatureAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"
]
"""Signatures made with a private key. A secret that both sides know would let the gateway's side make tokens too."""


class OidcConfig(Section, frozen=True, kw_only=True):
    """Whose tokens are accepted when auth.mode is oidc, and how the keys to check them with are fetched."""

    issuer: Annotated[
        IssuerUrl | None,
        doc(
            "The issuer, exactly as its tokens and its discovery document spell it; https, or http on this machine. "
            "Its keys are found through ISSUER/.well-known/openid-configuration."
        ),
    ] = None
    audiences: Annotated[
        Names, doc("Names of the gateway; a token must have been issued for one of them (its `aud`).")
    ] = ()
    algorithms: Annotated[
        tuple[SignatureAlgorithm, ...], doc("Signatures that are accepted; only such that a private key makes.")
    ] = ("RS256", "ES256", "EdDSA", "Ed25519")
    required_scopes: Annotated[
        Names, doc("What a token must permit, all of it (its `scope` or `scp`); else it is refused with 403.")
    ] = ()
    principal_claim: Annotated[
        str,
        doc(
            "The claim that names the caller, together with the issuer. Take one that never passes to somebody else: "
            "an e-mail address may."
        ),
    ] = "sub"
    leeway_seconds: Annotated[
        DurationOrZero, doc("How far the issuer's clock may be from this machine's, for `exp`, `nbf` and `iat`.")
    ] = 30.0
    jwks_cache_seconds: Annotated[
        Duration, doc("How old the issuer's keys may be before it is asked again; a withdrawn key counts for so long.")
    ] = 300.0
    jwks_refresh_interval_seconds: Annotated[
        Duration,
        doc(
            "The issuer is not asked again sooner than this after it was asked because of a key that is not known, or "
            "in vain."
        ),
    ] = 15.0
    jwks_max_stale_seconds: Annotated[
        DurationOrZero,
        doc("How long known keys go on counting beyond jwks_cache_seconds while the issuer cannot be reached."),
    ] = 3600.0
    fetch_timeout_seconds: Annotated[
        Duration, doc("Limit for fetching each of the issuer's two documents; so long a request may wait for it.")
    ] = 5.0
    max_document_bytes: Annotated[Size, doc("Largest document of the issuer.")] = 256 * KIB
    max_token_bytes: Annotated[Size, doc("Largest token; a larger one is refused unread.")] = 16 * KIB
    remembered_tokens: Annotated[
        CountOrZero,
        doc(
            "Checked tokens that are remembered until they expire, so that a signature is checked once.",
            per_process=True,
        ),
    ] = 10_000
    ca_file: Annotated[
        FilePath | None,
        doc("PEM file of the certificate authorities trusted for the issuer, in the place of the system's."),
    ] = None
