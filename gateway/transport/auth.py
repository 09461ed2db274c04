"""Who calls."""

from typing import Final

from gateway.ports import Identity

LOCAL: Final = Identity(principal="local")
"""The owner of everything while callers are not told apart."""


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
