"""One accepted HTTP answer whose body is still being read."""

import asyncio
from collections.abc import Callable

import aiohttp

from gateway.protocol.errors import UpstreamError, UpstreamTimeout


class Watchdog:
    """One timer that bounds both the wait for the next byte and the whole call.

    A reader only notes the time before and after it waits. The timer wakes once per idle period, looks at those notes
    and sleeps on, so a stream of a thousand reads costs a handful of timers. Time in which nobody reads, because the
    client is slow, is not the server's silence and counts for the total alone.
    """

    def __init__(self, *, idle: float, deadline: float, expire: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._deadline = deadline
        self._expire = expire
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sleep_until(min(deadline, self._loop.time() + idle))

    def begin_wait(self) -> None:
        """A reader waits from now on."""
        self._waiting_since = self._loop.time()

    def end_wait(self) -> None:
        """The reader has something to do."""
        self._waiting_since = None

    def cancel(self) -> None:
        """Watch no longer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sleep_until(self, when: float) -> None:
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        silent_at = (now if self._waiting_since is None else self._waiting_since) + self._idle
        if now >= self._deadline:
            self._timer = None
            self._expire("The inference server did not finish its answer within total_timeout_seconds.")
        elif now >= silent_at:
            self._timer = None
            self._expire(f"The inference server sent nothing for {self._idle:g} seconds (idle_timeout_seconds).")
        else:
            self._sleep_until(min(silent_at, self._deadline))


class HttpExchange:
    """An HTTP answer, read in slices; see `ports.UpstreamExchange`.

    Args:
        response: the answer, headers read.
        slice_bytes: most bytes one `read` returns.
        idle: seconds a read may wait.
        deadline: loop time at which the whole call ends.
    """

    def __init__(self, response: aiohttp.ClientResponse, *, slice_bytes: int, idle: float, deadline: float) -> None:
        self._response = response
        self._slice = slice_bytes
        self._timeout: UpstreamTimeout | None = None
        self._watchdog = Watchdog(idle=idle, deadline=deadline, expire=self._expire)

    @property
    def is_event_stream(self) -> bool:
        """Whether the server answered with `text/event-stream`."""
        return self._response.content_type == "text/event-stream"

    async def read(self) -> bytes:
        """Return what has arrived, at most one slice, or `b""` at the clean end.

        Raises:
            UpstreamError: the body broke off, or the exchange was closed.
            UpstreamTimeout: the idle or the total timeout passed.
        """
        self._watchdog.begin_wait()
        try:
            data = await self._response.content.read(self._slice)
        except aiohttp.ClientError as error:
            self._abort()
            if self._timeout is not None:
                raise self._timeout from None
            raise UpstreamError("The inference server broke off its answer.") from error
        finally:
            self._watchdog.end_wait()
        if not data:
            self._watchdog.cancel()
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

    async def close(self) -> None:
        """Release the connection; one whose body was not read to its end is closed at once. Idempotent."""
        self._abort()

    def _expire(self, message: str) -> None:
        self._timeout = UpstreamTimeout(message)
        self._abort()

    def _abort(self) -> None:
        self._watchdog.cancel()
        # A plain close would first flush an upload that nobody reads. Once the body has ended there is no connection
        # here any more: it went back to the pool.
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()
