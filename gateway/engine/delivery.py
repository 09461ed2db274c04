"""The one queue between the engine and a client: bounded by batches and bytes, with numbers one can read.

One producer, one consumer. A full queue makes the producer wait, which stops the reading from the upstream. An empty
queue always admits one batch, so a batch above the byte bound cannot deadlock. While nothing waits and the client keeps
up, a batch goes straight to the connection, without waking the consumer for it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from gateway.protocol.errors import GatewayError
from gateway.telemetry.metrics import Metrics

EncodedEvent: TypeAlias = tuple[bytes, bytes]
"""One event, serialized once for every transport: its `type`, and its JSON."""


class DeliveryStatistics(Struct, frozen=True):
    """State of one queue: waiting batches and bytes, and the most there ever were."""

    batches: int
    bytes: int
    max_batches: int
    max_bytes: int


class Delivery:
    """Carries batches of encoded events from a run to a transport.

    Until `release` the consumer sees nothing, so an early failure can still become the status of the answer.

    Args:
        max_batches: more waiting batches make `put` wait.
        max_bytes: more waiting bytes make `put` wait.
        metrics: holds the load over all queues.
    """

    def __init__(self, max_batches: int, max_bytes: int, metrics: Metrics) -> None:
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._load = metrics.delivery_load
        self._batches: list[list[EncodedEvent]] = []
        self._bytes = 0
        self._high_batches = 0
        self._high_bytes = 0
        self._released = False
        self._finished = False
        self._abandoned = False
        self._error: GatewayError | None = None
        self._write: Callable[[list[EncodedEvent]], bool] | None = None
        self._quiet_since = 0.0
        self._silent = False
        self._silence: asyncio.TimerHandle | None = None
        self._consumer: asyncio.Future[None] | None = None
        self._producer: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def released(self) -> bool:
        """Whether the client has been, or is being, told of the response."""
        return self._released

    @property
    def abandoned(self) -> bool:
        """Whether the client has gone."""
        return self._abandoned

    @property
    def exhausted(self) -> bool:
        """Whether nothing waits and nothing more will come."""
        return self._finished and not self._batches and not self._abandoned

    @property
    def statistics(self) -> DeliveryStatistics:
        """The queue's numbers now."""
        return DeliveryStatistics(len(self._batches), self._bytes, self._high_batches, self._high_bytes)

    # ------------------------------------------------------------ the producer's side

    async def put(self, batch: list[EncodedEvent], *, last: bool = False) -> None:
        """Hand over a batch; waits while the queue is full. What is put after the client has gone is dropped.

        The last batch always goes through the queue, so that the consumer can end the stream together with it. A
        producer that is cancelled while it waits leaves its batch behind all the same: what may follow it is a
        failure, and no event before that may be missing.
        """
        if not last and self.write_through(batch):
            return
        size = _measure(batch)
        try:
            while self._batches and (len(self._batches) >= self._max_batches or self._bytes + size > self._max_bytes):
                self._producer = self._loop.create_future()
                await self._producer
        finally:
            self.put_now(batch)

    def write_through(self, batch: list[EncodedEvent]) -> bool:
        """Send a batch straight to the connection; False, and nothing done, when it has to be `put`."""
        if self._write is None or self._consumer is None or self._batches or self._abandoned:
            return False
        self._quiet_since = self._loop.time()
        return self._write(batch)

    def put_now(self, batch: list[EncodedEvent]) -> None:
        """Queue a batch whatever the bounds say: the first, which an empty queue always admits, or a failure's last."""
        if self._abandoned:
            return
        size = _measure(batch)
        self._batches.append(batch)
        self._bytes += size
        self._high_batches = max(self._high_batches, len(self._batches))
        self._high_bytes = max(self._high_bytes, self._bytes)
        self._load.batches += 1
        self._load.bytes += size
        if self._released:
            self._wake_consumer()

    def release(self) -> None:
        """Let the consumer have what was put; from now on a failure is told inside the stream."""
        if not self._released:
            self._released = True
            self._wake_consumer()

    def finish(self, error: GatewayError | None = None) -> None:
        """Say that nothing more comes; `error` is raised at the consumer when it has not been told of anything."""
        if not self._finished:
            self._finished = True
            self._error = None if self._released else error
            self._stop_looking()
            self._wake_consumer()

    # ------------------------------------------------------------ the consumer's side

    async def take(self, timeout: float) -> list[EncodedEvent] | None:
        """Return everything that waits, an empty list at the end, or None after `timeout` seconds of silence.

        The timeout does not run before `release`.

        Raises:
            GatewayError: the run failed before anything was told.
        """
        loop = self._loop
        while True:
            if self._released and self._batches:
                return self._drain()
            if self._finished or self._abandoned:
                if self._error is not None:
                    raise self._error
                return []
            self._consumer = loop.create_future()
            self._quiet_since = loop.time()
            if self._released and self._silence is None:
                self._silence = loop.call_later(timeout, self._look, timeout)
            try:
                await self._consumer
            finally:
                self._consumer = None
            if self._silent:
                self._silent = False
                return None

    def attach(self, write: Callable[[list[EncodedEvent]], bool]) -> None:
        """Let batches go straight to the connection while the consumer waits in `take`.

        Args:
            write: sends a batch at once, or returns False, having sent nothing, when the client must catch up first.
        """
        self._write = write

    def abandon(self) -> None:
        """Say that the client has gone: what waits is dropped and the producer never waits again."""
        self._abandoned = True
        self._stop_looking()
        self._drain()
        self._wake_consumer()

    def _look(self, timeout: float) -> None:
        """Wake the consumer after a silence; one timer looks at the notes, so that batches cost none."""
        loop = self._loop
        left = self._quiet_since + timeout - loop.time()
        if self._consumer is not None and left <= 0 and not self._batches:
            self._silent = True
            self._wake_consumer()
            left = timeout
        self._silence = loop.call_later(max(left, timeout / 16), self._look, timeout)

    def _stop_looking(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _drain(self) -> list[EncodedEvent]:
        batches, self._batches = self._batches, []
        self._load.batches -= len(batches)
        self._load.bytes -= self._bytes
        self._bytes = 0
        if self._producer is not None:
            _wake(self._producer)
            self._producer = None
        return batches[0] if len(batches) == 1 else [event for batch in batches for event in batch]

    def _wake_consumer(self) -> None:
        if self._consumer is not None:
            _wake(self._consumer)


def _measure(batch: list[EncodedEvent]) -> int:
    return sum([len(data) for _, data in batch])


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
