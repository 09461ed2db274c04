"""The event stream of one response: every batch of the engine leaves in one send."""

import asyncio

from litestar.types import Receive, Send

from gateway.config.schema import ServerConfig
from gateway.engine.delivery import Delivery, EncodedEvent
from gateway.protocol.sse import DONE, KEEPALIVE, frame
from gateway.transport.connection import ClientConnection, ClientLeft, DisconnectWatch, cancel

RawHeaders = list[tuple[bytes, bytes]]

_HEADERS: RawHeaders = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Sends what a delivery yields.

    Args:
        delivery: the engine's side.
        task: the run; cancelled when the client leaves.
        settings: the interval of keep-alives.
        connection: writes parts of the body at once; None where the server does not lend it.
    """

    def __init__(
        self,
        delivery: Delivery,
        task: asyncio.Task[None],
        settings: ServerConfig,
        connection: ClientConnection | None = None,
    ) -> None:
        self._delivery = delivery
        self._task = task
        self._keepalive = settings.keepalive_seconds
        self._connection = connection

    async def serve(self, receive: Receive, send: Send, headers: RawHeaders) -> None:
        """Stream until the terminal event and `[DONE]`.

        Raises:
            GatewayError: the run failed before the client was told anything.
            ClientLeft: the client closed the connection or stopped reading; the upstream call has been aborted.
        """
        watch = DisconnectWatch(self._connection, receive, self._give_up)
        try:
            if not await self._pump(send, headers):
                raise ClientLeft
        finally:
            self._delivery.abandon()
            await watch.stop()
            await cancel(self._task)

    async def _pump(self, send: Send, headers: RawHeaders) -> bool:
        """Send batch after batch; returns whether the stream got to its end."""
        delivery = self._delivery
        started = False
        while (batch := await delivery.take(self._keepalive)) != []:
            body, last = KEEPALIVE if batch is None else _join(batch), delivery.exhausted
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers]})
            await send({"type": "http.response.body", "body": body + DONE if last else body, "more_body": not last})
            if last:
                return True
            if self._connection is not None:
                delivery.attach(self._write)
        return False

    def _write(self, batch: list[EncodedEvent]) -> bool:
        return self._connection is not None and self._connection.write_body(_join(batch))

    def _give_up(self) -> None:
        self._task.cancel()
        self._delivery.abandon()


def _join(batch: list[EncodedEvent]) -> bytes:
    if len(batch) == 1:
        return frame(*batch[0])
    parts: list[bytes] = []
    for name, data in batch:
        parts += (b"event: ", name, b"\ndata: ", data, b"\n\n")
    return b"".join(parts)
