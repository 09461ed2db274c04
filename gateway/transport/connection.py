"""What every HTTP answer needs to know of its connection: whether the client is still there, and still reading."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from litestar.types import HTTPScope, Receive

TRANSPORT_EXTENSION = "gateway.transport"


class ClientLeft(Exception):
    """The client closed the connection, or stopped reading, before it had its answer."""


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they are done; results and errors of finished ones are left alone."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.gather(*pending, return_exceptions=True)


class StallWatch:
    """Aborts the connection of a client that takes no byte for a deadline.

    A send that waits is not a stall as long as the socket buffer shrinks. One timer looks at both.

    Args:
        scope: the request; the server puts the connection's transport among its extensions.
        deadline: seconds without any byte leaving the buffer.
    """

    def __init__(self, scope: HTTPScope, deadline: float) -> None:
        extensions: dict[str, Any] = scope.get("extensions") or {}
        self._transport: asyncio.WriteTransport | None = extensions.get(TRANSPORT_EXTENSION)
        self._deadline = deadline
        self._since: float | None = None
        self._buffered = 0
        self._timer: asyncio.TimerHandle | None = None
        if self._transport is not None:
            self._arm()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mark the time in which a send waits."""
        self._since = time.monotonic()
        self._buffered = -1
        try:
            yield
        finally:
            self._since = None

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._deadline / 4, self._look)

    def _look(self) -> None:
        transport = self._transport
        assert transport is not None
        if self._since is not None:
            now, buffered = time.monotonic(), transport.get_write_buffer_size()
            if self._buffered < 0 or buffered < self._buffered:
                self._since, self._buffered = now, buffered
            elif now - self._since >= self._deadline:
                transport.abort()
                return
        self._arm()
