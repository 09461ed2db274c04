"""One accepted HTTP answer whose body is still being read."""

import asyncio
from collections.abc import Sequence

from gateway.protocol.errors import UpstreamError, UpstreamTimeout
from gateway.upstream.connection import BROKEN, Connection
from gateway.upstream.pool import ConnectionPool

_LOOK_SECONDS = 1.0


class HttpExchange:
    """An HTTP answer, read as it arrives; see `ports.UpstreamExchange` and `ports.RelayedAnswer`.

    One timer bounds both the wait for the next byte and the whole call. A reader only notes the time before and after
    it waits. The timer wakes once a second, looks at those notes and sleeps on, so a stream of a thousand reads costs a
    handful of timers, and a short answer that is there without a wait none. Time in which nobody reads, because the
    client is slow, is not the server's silence and counts for the total alone.

    Args:
        connection: what it arrives on, headers read.
        pool: where the connection goes back to.
        idle: seconds a read may wait.
        deadline: loop time at which the whole call ends.

    Attributes:
        status: its status.
        headers: its headers as they came.
        named_headers: the same by name, as its connection has them.
    """

    is_translated = False

    def __init__(self, connection: Connection, pool: ConnectionPool, *, idle: float, deadline: float) -> None:
        self._connection: Connection | None = connection
        self._pool = pool
        self.status = connection.status
        self.headers: Sequence[tuple[bytes, bytes]] = connection.raw_headers
        self.named_headers = connection.headers
        self._verdict: UpstreamError | None = None
        self._ended = False
        self._loop = connection.loop
        self._idle = idle
        self._deadline = deadline
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_event_stream(self) -> bool:
        """Whether the server answered with `text/event-stream`."""
        media_type = self.named_headers.get("content-type", "").partition(";")[0]
        return media_type.strip().lower() == "text/event-stream"

    def take(self) -> bytes | None:
        """Return what has arrived, `b""` at the clean end, or None when one has to wait.

        Raises:
            UpstreamError: the body broke off, or the exchange was closed.
            UpstreamTimeout: the idle or the total timeout passed.
        """
        self._waiting_since = None
        if self._connection is None:
            if self._ended:
                return b""
            raise self._verdict or UpstreamError(BROKEN)
        try:
            data = self._connection.take()
        except UpstreamError as error:
            raise self._verdict or error from None
        if data == b"":
            self._ended = True
            self.retire()
        return data

    def arrival(self) -> asyncio.Future[None]:
        """Return what is done once there may be something to take; no coroutine, as each event is waited for."""
        assert self._connection is not None, "there is something to take"
        now = self._waiting_since = self._loop.time()
        if self._timer is None:
            self._sleep(now)
        return self._connection.arrival()

    async def read(self) -> bytes:
        """Return what has arrived, or `b""` at the clean end.

        Raises:
            UpstreamError: as `take`.
            UpstreamTimeout: as `take`.
        """
        while (data := self.take()) is None:
            await self.arrival()
        return data

    async def read_whole(self, limit: int) -> bytes | None:
        """Return the whole body, or None when it is larger than `limit` bytes.

        Raises:
            UpstreamError: as `read`.
        """
        body = bytearray()
        while data := await self.read():
            body += data
            if len(body) > limit:
                return None
        return bytes(body)

    def retire(self) -> None:
        """Say that the answer is complete: the connection is reused if the body ends at once, else closed."""
        self._stop_looking()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.retire(connection)

    async def close(self) -> None:
        """Release the connection; one whose body was not read to its end is closed at once. Idempotent."""
        self._stop_looking()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)

    # ------------------------------------------------------------ the timer

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sleep(self, now: float) -> None:
        wake = min(self._deadline, self._silent_at(now), now + _LOOK_SECONDS)
        self._timer = self._loop.call_at(wake, self._look)

    def _silent_at(self, now: float) -> float:
        return (now if self._waiting_since is None else self._waiting_since) + self._idle

    def _look(self) -> None:
        now = self._loop.time()
        self._timer = None
        if now >= self._deadline:
            self._expire("The inference server's answer took longer than total_timeout_seconds.")
        elif now >= self._silent_at(now):
            self._expire(f"The inference server sent nothing for {self._idle:g} seconds (idle_timeout_seconds).")
        else:
            self._sleep(now)

    def _expire(self, reason: str) -> None:
        self._verdict = UpstreamTimeout(reason)
        assert self._connection is not None, "the timer ends with the exchange"
        self._connection.abort()
