"""Who calls, and whether that still counts."""

from typing import Final

from gateway.ports import LOCAL, Authenticator, Identity
from gateway.protocol.errors import Unauthorized

NO_CREDENTIAL: Final = "Send a valid key in the header 'Authorization: Bearer KEY'."
"""What every caller is told whose credential counts for nothing, whatever the reason."""


class Unauthenticated:
    """Takes everybody for one local owner: mode `none`."""

    async def start(self) -> None:
        """Do nothing."""

    def refresh(self) -> None:
        """Do nothing."""

    def recall(self, credential: bytes | None) -> Identity:  # noqa: ARG002
        """Return the local owner."""
        return LOCAL

    async def authenticate(self, credential: bytes | None) -> Identity:  # noqa: ARG002
        """Return the local owner."""
        return LOCAL

    def holds(self, identity: Identity) -> bool:  # noqa: ARG002
        """Tell that it does."""
        return True

    async def close(self) -> None:
        """Do nothing."""


def require_standing(authenticator: Authenticator, identity: Identity) -> None:
    """Let a caller go on who was let in before.

    Raises:
        Unauthorized: its credential counts no more; as `invalid_token` where a token has expired, which its issuer
            renews, and as `invalid_api_key` where a key has, or was revoked.
        Unavailable: that cannot be told.
    """
    if authenticator.holds(identity):
        return
    if identity.key_id is None:
        raise Unauthorized(
            "The token of this connection has expired; connect again with a new one.", code="invalid_token"
        )
    raise Unauthorized("The key of this connection counts no more; connect again with a valid one.")
