"""Calls that are passed on as they are, and their answers."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class RelayedCall(Struct, frozen=True, kw_only=True):
    """A POST that is passed on as it is.

    Attributes:
        target: path and query below the server's base.
        body: what the caller sent, to the byte.
        headers: what describes the body and the answer that is wanted, and what else is passed on.
    """

    target: str
    body: bytes
    headers: Mapping[str, str] = {}


class RelayedAnswer(Protocol):
    """An answer whose body is still being read."""

    @property
    def status(self) -> int:
        """The server's status."""
        ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The server's headers as they came, in order."""
        ...

    async def read(self) -> bytes:
        """Return whatever has arrived, at least one byte, or `b""` at the clean end of the body.

        Raises:
            UpstreamError: the body broke off.
            UpstreamTimeout: nothing arrived within the idle timeout, or the total timeout passed.
        """
        ...

    async def close(self) -> None:
        """Release the connection; closes it when the body was not read to its end. Idempotent."""
        ...
