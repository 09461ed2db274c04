"""The event stream of one response: every batch of the engine leaves in one write."""

import asyncio

from litestar.types import HTTPResponseStartEvent, Send

from gateway.config.schema import ServerConfig
from gateway.engine.delivery import EncodedEvent
from gateway.protocol.sse import DONE, KEEPALIVE
from gateway.telemetry.metrics import Metrics
from gateway.transport.connection import ClientConnection
from gateway.transport.outbound import OutboundQueue

RawHeaders = list[tuple[bytes, bytes]]

_HEADERS: RawHeaders = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """The channel of a response that is answered as an event stream.

    Args:
        connection: writes the body.
        send: sends the head.
        headers: headers of the answer besides those of every stream.
        settings: bounds of the queue, and the interval of keep-alives.
        metrics: the load of the queue.

    Attributes:
        queue: what the client is not ready for.
        opened: whether the answer has begun.
    """

    def __init__(
        self,
        connection: ClientConnection,
        send: Send,
        headers: RawHeaders,
        settings: ServerConfig,
        metrics: Metrics,
    ) -> None:
        self._connection = connection
        self._send = send
        self._headers = headers
        self._keepalive = settings.keepalive_seconds
        self._loop = connection.loop
        self._quiet_since = 0.0
        self._silence: asyncio.TimerHandle | None = None
        self._ending = False
        self.opened = False
        self.queue: OutboundQueue[bytes] = OutboundQueue(
            self._write,
            len,
            max_batches=settings.delivery_max_batches,
            max_bytes=settings.delivery_max_bytes,
            metrics=metrics,
        )

    def write(self, batch: list[EncodedEvent]) -> bool:
        """Send a batch at once; False, and nothing done, when it has to be `put`."""
        return self.opened and self.queue.write(_join(batch))

    async def open(self) -> None:
        """Begin the answer before there is anything to tell."""
        await self._begin()
        # The head waits for the first part of a body.
        self.queue.write(KEEPALIVE)

    async def put(self, batch: list[EncodedEvent]) -> None:
        """Send a batch, after the head if it is the first; waits while the queue is full."""
        if not self.opened:
            await self._begin()
        await self.queue.put(_join(batch))

    async def end(self, batch: list[EncodedEvent]) -> None:
        """Send the last batch and `[DONE]`; returns when all of it has been handed to the connection."""
        if not self.opened:
            # All of it leaves at once, so there is no silence to fill.
            await self._send_head()
        await self.queue.drained()
        self._ending = True
        last = _join(batch) + DONE
        if not self.queue.write(last):
            await self.queue.put(last)
            await self.queue.drained()

    def close(self) -> None:
        """Drop what waits: the client has gone, or all is sent."""
        self.queue.close()
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    async def _begin(self) -> None:
        await self._send_head()
        self._silence = self._loop.call_later(self._keepalive, self._look)

    async def _send_head(self) -> None:
        start: HTTPResponseStartEvent = {
            "type": "http.response.start",
            "status": 200,
            "headers": [*_HEADERS, *self._headers],
        }
        await self._send(start)
        self.opened = True

    def _write(self, body: bytes) -> bool:
        self._quiet_since = self._loop.time()
        return self._connection.write_body(body, last=self._ending)

    def _look(self) -> None:
        """Fill a silence; one timer looks at the notes, so that batches cost none."""
        left = self._quiet_since + self._keepalive - self._loop.time()
        if left <= 0:
            self.queue.write(KEEPALIVE)
            left = self._keepalive
        self._silence = self._loop.call_later(max(left, self._keepalive / 16), self._look)


def _join(batch: list[EncodedEvent]) -> bytes:
    if not batch:
        return b""
    # Each name is joined with its data, and each event with the next.
    return b"event: %b\n\n" % b"\n\nevent: ".join(map(b"\ndata: ".join, batch))
