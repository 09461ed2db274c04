"""The keys of access."""

from typing import Annotated, Literal

from gateway.config.kinds import Count, Duration, FilePath, HeaderName, Networks, doc
from gateway.config.schema.section import Section


class AuthConfig(Section, frozen=True, kw_only=True):
    """Who may call, and as whom."""

    mode: Annotated[
        Literal["none", "api_keys", "oidc"],
        doc(
            "How callers prove who they are: by keys of the gateway's own, or by tokens of an OpenID Connect issuer; "
            "none takes everybody for one owner, `local`."
        ),
    ] = "none"
    allow_unauthenticated: Annotated[
        bool,
        doc(
            "Permit mode none on an address that other machines reach: whoever reaches it may use the inference server "
            "and read what everybody stored."
        ),
    ] = False
    keys_in: Annotated[
        Literal["file", "database"],
        doc("Where keys of mode api_keys are kept; replicas share those in the database. `gateway keys` makes them."),
    ] = "file"
    keys_file: Annotated[FilePath, doc("File with the keys, as hashes; `gateway keys create` makes it.")] = "keys.toml"
    keys_max: Annotated[Count, doc("Keys that may count at once; each process keeps all of them in memory.")] = 10_000
    keys_revalidate_seconds: Annotated[
        Duration,
        doc("How late a process may notice that a key was made or revoked; SIGHUP has it look at once.", le=3600),
    ] = 5.0
    keys_max_stale_seconds: Annotated[
        Duration,
        doc(
            "How long the keys go on when the file or the database with them cannot be read any more; after that "
            "every request is refused with 503.",
            le=30 * 86_400,
        ),
    ] = 300.0
    keys_timeout_seconds: Annotated[
        Duration,
        doc(
            "How long a look at the keys may take; a request with a key that is not known, or no longer, may wait for "
            "it.",
            le=3600,
        ),
    ] = 5.0
    trusted_principal_header: Annotated[
        HeaderName | None,
        doc(
            "Header in which a proxy names the caller it has recognized, such as x-forwarded-user: the caller then "
            "owns what it stores and needs no key. Looked at in requests from trusted_proxies alone."
        ),
    ] = None
    trusted_proxies: Annotated[
        Networks,
        doc(
            "Addresses and networks of those proxies, such as 10.0.0.7 or 10.1.0.0/16, as their connections come in. "
            "Each must set the header itself and drop what its own clients send under that name."
        ),
    ] = ()
