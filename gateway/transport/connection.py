"""What every HTTP answer needs to know of its connection: whether the client is still there, and still reading."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from litestar.types import HTTPScope, Receive

from gateway.protocol.errors import InvalidRequest

SURPLUS_EXTENSION = "gateway.surplus"
"""Extension in the scope of a request whose connection is above `[server] max_connections`."""


CONNECTION_EXTENSION = "gateway.connection"
"""Extension in the scope of a request: its connection itself, a `ClientConnection`."""


class ClientConnection(Protocol):
    """The short way between the hot path and a connection, around the layers of the app."""

    def take_body(self) -> bytes | None:
        """Return the request's body, once, or None while it has not arrived whole; then it is to be received."""
        ...

    def write_body(self, body: bytes) -> bool:
        """Write a part of the running response's body at once; False, and nothing written, if the client must catch up.

        To be used only between two calls of `send`, when the response has been started.
        """
        ...

    def watch(self, left: Callable[[], object] | None) -> None:
        """Call back when the connection is lost, at once if it is; None ends the watch."""
        ...


class ClientLeft(Exception):
    """The client closed the connection, or stopped reading, before it had its answer."""


class RequestTimeout(InvalidRequest):
    """The request did not arrive in time."""

    status = 408
    code = "request_timeout"


def find_connection(scope: HTTPScope) -> ClientConnection | None:
    """Return the connection of a request where the server lends it."""
    connection: ClientConnection | None = (scope.get("extensions") or {}).get(CONNECTION_EXTENSION)  # type: ignore[assignment]
    return connection


class DisconnectWatch:
    """Notices that the client closes the connection while its answer is made.

    Args:
        connection: the connection, or None where only `receive` can tell.
        receive: the request's ASGI channel; its body has been read.
        left: called once when the client has gone.
    """

    def __init__(self, connection: ClientConnection | None, receive: Receive, left: Callable[[], object]) -> None:
        self._connection = connection
        self._waiting: asyncio.Task[None] | None = None
        if connection is None:
            self._waiting = asyncio.create_task(_wait_for_disconnect(receive, left))
        else:
            connection.watch(left)

    async def stop(self) -> None:
        """Look no longer."""
        if self._connection is not None:
            self._connection.watch(None)
        elif self._waiting is not None:
            await cancel(self._waiting)


async def _wait_for_disconnect(receive: Receive, left: Callable[[], object]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    left()


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they are done; results and errors of finished ones are left alone."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.gather(*pending, return_exceptions=True)


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
