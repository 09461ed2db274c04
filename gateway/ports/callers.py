"""What is known of callers, and who knows it."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct


class Identity(Struct, frozen=True, kw_only=True):
    """Who calls.

    Attributes:
        principal: owner of what is stored, and of limits and counts: what a key or token was issued to, never itself.
        expires_at: Unix seconds from which on the credential counts no more, or None.
        key_id: name of the key, which is no secret, or None where the caller has none.
    """

    principal: str
    expires_at: float | None = None
    key_id: str | None = None


LOCAL: Final = Identity(principal="local")
"""The owner of everything while callers are not told apart."""


class Authenticator(Protocol):
    """Tells whom a credential belongs to: the value of an Authorization header, as it was sent."""

    async def start(self) -> None:
        """Begin to learn what callers are checked against; what cannot be had yet is tried again later."""
        ...

    def refresh(self) -> None:
        """Look again, soon, at whatever callers are checked against: the operator has asked for a reload."""
        ...

    def recall(self, credential: bytes | None) -> Identity | None:
        """Return the identity if that can be told from memory, without waiting; on the way of every request."""
        ...

    async def authenticate(self, credential: bytes | None) -> Identity:
        """Return the identity, whatever has to be asked for it.

        Raises:
            Unauthorized: no credential, or one that counts for nothing.
            Unavailable: what has to be asked does not answer.
        """
        ...

    def holds(self, identity: Identity) -> bool:
        """Tell whether an identity given before still counts: not expired, not revoked; for long connections.

        Raises:
            Unavailable: that cannot be told at the moment.
        """
        ...

    async def close(self) -> None:
        """End whatever `start` has begun."""
        ...


class ApiKey(Struct, frozen=True, kw_only=True):
    """A caller's key as it is kept: without the key itself.

    Attributes:
        id: names the key; no secret.
        principal: whose key it is.
        digest: SHA-256 of the key's text, 64 hex digits.
        created_at: Unix seconds.
        name: what its owner calls it, may be empty.
        expires_at: Unix seconds from which on it counts no more, or None.
        revoked_at: Unix seconds since which it counts no more, or None.
    """

    id: str
    principal: str
    digest: str
    created_at: int
    name: str = ""
    expires_at: int | None = None
    revoked_at: int | None = None


class KeysUnreadable(Exception):
    """Keys cannot be read or written where they are kept; the text, for operators, says why, and holds no secret."""


class KeyBook(Protocol):
    """Where callers' keys are kept."""

    def read(self) -> Mapping[str, ApiKey]:
        """Return by their ids the keys that are neither revoked nor expired; blocks for a bounded time.

        What it returned before is returned again, the same object, where it is known that nothing has changed.

        Raises:
            KeysUnreadable: they cannot be read, or are too many.
        """
        ...

    def list_all(self) -> Sequence[ApiKey]:
        """Return every key that is kept, also one that counts no more, the oldest first; blocks.

        Raises:
            KeysUnreadable: as `read`.
        """
        ...

    def add(self, key: ApiKey) -> None:
        """Keep another key; blocks.

        Raises:
            KeysUnreadable: as `read`, or there is no room for one more, or nothing can be written.
        """
        ...

    def revoke(self, key_id: str, at: int) -> ApiKey | None:
        """Let a key count no more from now on, and return it; None if there is no such key. Blocks.

        One that was revoked before is returned as it is.

        Args:
            key_id: the key's id.
            at: Unix seconds.

        Raises:
            KeysUnreadable: as `add`.
        """
        ...

    def close(self) -> None:
        """Release whatever `read` keeps open; blocks."""
        ...
