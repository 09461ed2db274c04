"""The event stream of one response: every batch of the engine leaves in one send."""

import asyncio
from collections.abc import Callable

from litestar.types import Receive, Send

from gateway.config.schema import ServerConfig
from gateway.engine.delivery import Delivery, EncodedEvent
from gateway.protocol.sse import DONE, KEEPALIVE
from gateway.transport.connection import ClientLeft, cancel, wait_for_disconnect

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
        write_body: writes a part of the body at once, see `connection.BODY_WRITER_EXTENSION`; None where the server
            has no such thing.
    """

    def __init__(
        self,
        delivery: Delivery,
        task: asyncio.Task[None],
        settings: ServerConfig,
        write_body: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._delivery = delivery
        self._task = task
        self._keepalive = settings.keepalive_seconds
        self._write_body = write_body

    async def serve(self, receive: Receive, send: Send, headers: RawHeaders) -> None:
        """Stream until the terminal event and `[DONE]`.

        Raises:
            GatewayError: the run failed before the client was told anything.
            ClientLeft: the client closed the connection or stopped reading; the upstream call has been aborted.
        """
        watcher = asyncio.create_task(self._watch(receive))
        try:
            if not await self._pump(send, headers):
                raise ClientLeft
        finally:
            self._delivery.abandon()
            await cancel(watcher, self._task)

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
            if self._write_body is not None:
                delivery.attach(self._write)
        return False

    def _write(self, batch: list[EncodedEvent]) -> bool:
        return self._write_body is not None and self._write_body(_join(batch))

    async def _watch(self, receive: Receive) -> None:
        await wait_for_disconnect(receive)
        self._task.cancel()
        self._delivery.abandon()


def _join(batch: list[EncodedEvent]) -> bytes:
    parts: list[bytes] = []
    for name, data in batch:
        parts += (b"event: ", name, b"\ndata: ", data, b"\n\n")
    return b"".join(parts)
