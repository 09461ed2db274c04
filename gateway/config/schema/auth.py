"""The keys of access."""

from typing import Annotated, Literal

from gateway.config.kinds import doc
from gateway.config.schema.section import Section


class AuthConfig(Section, frozen=True, kw_only=True):
    """Who may call, and as whom."""

    mode: Annotated[
        Literal["none", "api_keys", "oidc"],
        doc("How callers prove who they are; none takes everybody for one owner, `local`."),
    ] = "none"
    allow_unauthenticated: Annotated[
        bool,
        doc(
            "Permit mode none on an address that other machines reach: whoever reaches it may use the inference server "
            "and read what everybody stored."
        ),
    ] = False
