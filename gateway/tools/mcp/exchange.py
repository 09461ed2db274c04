"""One request to an MCP server: what it may take, how it is given up, and what went wrong with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio

from gateway.config.secret import REDACTED

_NAMING: Final = frozenset({"name", "type", "required", "enum", "const", "$ref"})
_SHORTEST_SECRET = 8  # what is shorter is no secret, and would be found everywhere


class ServerFault(Exception):
    """A server did not do what it was asked; the message follows its label and is for models and clients.

    Attributes:
        bound: key of the configuration that was met, or None.
    """

    def __init__(self, message: str, *, bound: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.bound = bound


def hide(text: str, secrets: Sequence[str]) -> str:
    """Return a server's text without what it was given to keep."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    return text


def hide_in(listed: Any, secrets: Sequence[str]) -> Any:
    """Return what a server lists without what it was given to keep, in all that is not a name to be called by."""
    if isinstance(listed, str):
        return hide(listed, secrets)
    if isinstance(listed, list):
        return [hide_in(one, secrets) for one in listed]
    if isinstance(listed, dict):
        return {key: one if key in _NAMING else hide_in(one, secrets) for key, one in listed.items()}
    return listed


class Allowance:
    """Bytes that the discovery of one request may still take, over all its servers.

    Args:
        limit: bytes in all.
    """

    __slots__ = ("_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

    def take(self, amount: int) -> None:
        """Take some of it.

        Raises:
            ServerFault: there is not so much left.
        """
        self._left -= amount
        if self._left < 0:
            raise ServerFault(
                f"lists more than all servers of a request may together, {self._limit} bytes",
                bound="mcp.max_discovery_bytes",
            )


class Exchange:
    """One request and its answer; every HTTP call it leads to runs within its `scope`.

    Args:
        allowance: what the bytes of the answer are taken from, if anything.

    Attributes:
        allowance: as given.
        fault: what went wrong first.
        status: the HTTP status, if it was an error.
        ended: it was given up.
        counted: the transport takes from the allowance what it reads.
        request_id: the protocol's id of the request, once it was sent.
    """

    __slots__ = ("_scopes", "allowance", "counted", "ended", "fault", "request_id", "status")

    def __init__(self, allowance: Allowance | None = None) -> None:
        self.allowance = allowance
        self.fault: ServerFault | None = None
        self.status: int | None = None
        self.ended = False
        self.counted = False
        self.request_id: int | None = None
        self._scopes: set[anyio.CancelScope] = set()

    @contextmanager
    def scope(self) -> Iterator[anyio.CancelScope]:
        """Cover something that ends at once when the request is given up."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.ended:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def fail(self, fault: ServerFault) -> None:
        """Give the request up for a reason; the first one counts."""
        self.fault = self.fault or fault
        self.end()

    def end(self) -> None:
        """Give up whatever of it still runs. Idempotent."""
        self.ended = True
        for scope in list(self._scopes):
            scope.cancel()


current_exchange: ContextVar[Exchange | None] = ContextVar("gateway_mcp_exchange", default=None)
"""The request that what is sent now belongs to; the SDK hands the sender's context on to its tasks."""
