"""What every HTTP answer needs to know of its connection: whether the client is still there, and still reading."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

from litestar.types import HTTPScope

from gateway.protocol.errors import InvalidRequest

SURPLUS_EXTENSION = "gateway.surplus"
"""Extension in the scope of a request whose connection is above `[server] max_connections`."""


CONNECTION_EXTENSION = "gateway.connection"
"""Extension in the scope of a request: its connection itself, a `ClientConnection`."""


class ClientConnection(Protocol):
    """The short way between the hot path and a connection, around the layers of the app."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it lives in; asking for the running one costs a system call, until Python 3.12."""
        ...

    def take_body(self) -> bytes | None:
        """Return the request's body, once, or None while it has not arrived whole; then it is to be received."""
        ...

    def write_body(self, body: bytes, *, last: bool = False) -> bool:
        """Write a part of the running response's body at once; False, and nothing written, if the client must catch up.

        To be used when the head of the response has been sent; `last` ends the response.
        """
        ...

    def break_off(self) -> bool:
        """Close the connection in the middle of an answer; False, and nothing done, where none has begun.

        A client that waits for the rest sees that it will not come.
        """
        ...

    def watch(self, left: Callable[[], object] | None, ready: Callable[[], object] | None = None) -> None:
        """Call back when the connection is lost, at once if it is, and when the client has caught up; None ends it."""
        ...


class ClientLeft(Exception):
    """The client closed the connection, or stopped reading, before it had its answer."""


class RequestTimeout(InvalidRequest):
    """The request did not arrive in time."""

    status = 408
    code = "request_timeout"


def find_connection(scope: HTTPScope) -> ClientConnection:
    """Return the connection of a request, which the gateway's own server lends."""
    return (scope.get("extensions") or {})[CONNECTION_EXTENSION]  # type: ignore[return-value]


class ClientWatch:
    """Ends what is inside an `async with` block when the client closes its connection.

    Args:
        connection: the client's.
        ready: called when the client has caught up.
    """

    __slots__ = ("_connection", "_left", "_ready", "_task")

    def __init__(self, connection: ClientConnection, ready: Callable[[], object] | None = None) -> None:
        self._connection = connection
        self._ready = ready
        self._left = False
        self._task: asyncio.Task[Any]

    async def __aenter__(self) -> None:
        """Begin to look."""
        task = asyncio.current_task(self._connection.loop)
        assert task is not None
        self._task = task
        self._connection.watch(self._leave, self._ready)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Look no longer.

        Raises:
            ClientLeft: the client has gone.
        """
        self._connection.watch(None)
        if not self._left:
            return
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            # The block ended before the cancellation came to it; it must not come to what follows.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if not self._task.uncancel():
            raise ClientLeft from None

    def _leave(self) -> None:
        self._left = True
        self._task.cancel()


class StallWatch:
    """Aborts a connection whose client takes no byte for a deadline.

    It looks as long as somebody waits for the client; a buffer that shrinks in between is no stall.

    Args:
        transport: the connection.
        deadline: seconds without any byte leaving the transport's buffer.
        waits: tells whether somebody still waits for the client to take what is buffered.
    """

    def __init__(self, transport: asyncio.WriteTransport, deadline: float, waits: Callable[[], bool]) -> None:
        self._transport = transport
        self._deadline = deadline
        self._waits = waits
        self._since = 0.0
        self._buffered: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look from now on, if anything is buffered."""
        if self._timer is None and self._transport.get_write_buffer_size() > 0:
            self.note_progress()
            self._arm()

    def note_progress(self) -> None:
        """Take what is buffered at the next look for the client's progress, however much it is."""
        self._buffered = None

    def stop(self) -> None:
        """Look no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Look never again, and hold nobody any more who may hold this."""
        self.stop()
        self._waits = _nobody

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._deadline / 4, self._look)

    def _look(self) -> None:
        self._timer = None
        buffered = self._transport.get_write_buffer_size()
        if buffered == 0 or not self._waits():
            return
        now = time.monotonic()
        if self._buffered is None or buffered < self._buffered:
            self._since, self._buffered = now, buffered
        elif now - self._since >= self._deadline:
            self._transport.abort()
            return
        self._arm()


def _nobody() -> bool:
    return False
