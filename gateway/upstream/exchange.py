"""One accepted HTTP answer whose body is still being read."""

import asyncio
from collections.abc import Callable

import aiohttp

from gateway.protocol.errors import UpstreamError, UpstreamTimeout

_BROKEN = "The inference server broke off its answer."
_LOOK_SECONDS = 1.0
# What may follow a complete answer on its connection: the end of the body, and little before it.
_REST_SECONDS = 1.0
_REST_BYTES = 64 * 1024


class Watchdog:
    """One timer that bounds both the wait for the next byte and the whole call.

    A reader only notes the time before and after it waits. The timer wakes once a second, looks at those notes and
    sleeps on, so a stream of a thousand reads costs a handful of timers. Time in which nobody reads, because the
    client is slow, is not the server's silence and counts for the total alone.

    Args:
        idle: seconds a reader may wait.
        deadline: loop time at which the whole call ends.
        is_lost: whether the connection is gone although the body has not ended.
        expire: told once why the exchange must end.
    """

    def __init__(
        self, *, idle: float, deadline: float, is_lost: Callable[[], bool], expire: Callable[[UpstreamError], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._deadline = deadline
        self._is_lost = is_lost
        self._expire = expire
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sleep(self._loop.time())

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

    def _sleep(self, now: float) -> None:
        wake = min(self._deadline, self._silent_at(now), now + _LOOK_SECONDS)
        self._timer = self._loop.call_at(wake, self._look)

    def _silent_at(self, now: float) -> float:
        return (now if self._waiting_since is None else self._waiting_since) + self._idle

    def _look(self) -> None:
        now = self._loop.time()
        self._timer = None
        if now >= self._deadline:
            self._expire(UpstreamTimeout("The inference server's answer took longer than total_timeout_seconds."))
        elif now >= self._silent_at(now):
            message = f"The inference server sent nothing for {self._idle:g} seconds (idle_timeout_seconds)."
            self._expire(UpstreamTimeout(message))
        elif self._waiting_since is not None and self._is_lost():
            # Broken chunk framing closes the connection without a word to the waiting reader.
            self._expire(UpstreamError(_BROKEN))
        else:
            self._sleep(now)


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
        self._verdict: UpstreamError | None = None
        self._rest: asyncio.Task[None] | None = None
        self._watchdog = Watchdog(idle=idle, deadline=deadline, is_lost=self._is_lost, expire=self._expire)

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
        except (aiohttp.ClientError, RuntimeError) as error:
            # A reader of a closed client gets the RuntimeError.
            self._abort()
            raise self._verdict or UpstreamError(_BROKEN) from error
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

    def retire(self) -> None:
        """Say that the answer is complete: the connection is reused if the body ends at once, else closed."""
        self._watchdog.cancel()
        if self._response.connection is None:
            return
        self._rest = asyncio.create_task(self._read_rest())

    async def close(self) -> None:
        """Release the connection; one whose body was not read to its end is closed at once. Idempotent."""
        self._abort()

    async def _read_rest(self) -> None:
        try:
            async with asyncio.timeout(_REST_SECONDS):
                body = self._response.content
                rest = 0
                while rest <= _REST_BYTES and (data := await body.read(self._slice)):
                    rest += len(data)
        except (aiohttp.ClientError, RuntimeError, TimeoutError):
            pass
        finally:
            self._abort()

    def _is_lost(self) -> bool:
        connection = self._response.connection
        return connection is not None and connection.transport is None

    def _expire(self, verdict: UpstreamError) -> None:
        self._verdict = verdict
        self._abort()

    def _abort(self) -> None:
        self._watchdog.cancel()
        # A plain close would first flush an upload that nobody reads. Once the body has ended there is no connection
        # here any more: it went back to the pool.
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()
