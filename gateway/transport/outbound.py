"""The one queue between the responses of a connection and its client, with numbers one can read.

While the client keeps up, a batch goes straight to the connection and the queue stays empty. Behind a slow client it is
bounded by batches and bytes; when it is full the producers wait, which stops the reading from their upstreams. An empty
queue always admits one batch, so a batch above the byte bound cannot deadlock.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from gateway.telemetry.metrics import Metrics

Batch = TypeVar("Batch")


class OutboundStatistics(Struct, frozen=True):
    """State of one queue: waiting batches and bytes, and the most there ever were."""

    batches: int
    bytes: int
    max_batches: int
    max_bytes: int


class OutboundQueue(Generic[Batch]):
    """Holds back what a client is not ready for.

    Args:
        write: sends a batch at once, or returns False, having sent nothing, when the client must catch up first.
        measure: size of a batch in bytes.
        max_batches: more waiting batches make `put` wait.
        max_bytes: more waiting bytes make `put` wait.
        metrics: holds the load over all queues.
    """

    def __init__(
        self,
        write: Callable[[Batch], bool],
        measure: Callable[[Batch], int],
        *,
        max_batches: int,
        max_bytes: int,
        metrics: Metrics,
    ) -> None:
        self._write = write
        self._measure = measure
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._load = metrics.delivery_load
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._bytes = 0
        self._high_batches = 0
        self._high_bytes = 0
        self._closed = False
        # Short, and mostly empty: a list costs nothing until then.
        self._producers: list[asyncio.Future[None]] = []
        self._drained: list[asyncio.Future[None]] = []
        self._sent = 0
        self._passed: list[asyncio.Future[None]] = []

    @property
    def statistics(self) -> OutboundStatistics:
        """The queue's numbers now."""
        return OutboundStatistics(len(self._waiting), self._bytes, self._high_batches, self._high_bytes)

    def write(self, batch: Batch) -> bool:
        """Send a batch at once; False, and nothing done, when others or the client have to be waited for."""
        return not self._waiting and not self._producers and self._write(batch)

    async def put(self, batch: Batch) -> None:
        """Send or queue a batch; waits, in turn, while the queue is full. What is put after the end is dropped."""
        if self.write(batch):
            return
        size = self._measure(batch)
        try:
            if (self._producers or self._is_full(size)) and not self._closed:
                await self._take_turn(size)
        finally:
            self._append(batch, size)

    async def drained(self) -> None:
        """Wait until nothing waits."""
        while self._waiting:
            await self._wait(self._drained.append)

    async def passed(self) -> None:
        """Wait until all that waits now has been sent."""
        last = self._sent + len(self._waiting)
        while self._sent < last and not self._closed:
            await self._wait(self._passed.append)

    def resume(self) -> None:
        """Send what waits: the client has caught up."""
        while self._waiting and self._write(self._waiting[0][0]):
            _, size = self._waiting.popleft()
            self._note(-1, -size)
            self._sent += 1
        if self._passed:
            _wake_all(self._passed)
        if self._drained and not self._waiting:
            _wake_all(self._drained)
        # One at a time, in turn: each that has queued its batch looks whether the next may.
        if self._producers:
            _call(self._producers[0])

    def close(self) -> None:
        """Drop what waits and let nobody wait again: the client has gone, or all is sent."""
        self._closed = True
        # Nor is the queue kept alive by what it wrote to.
        self._write = _refuse
        if self._waiting:
            self._note(-len(self._waiting), -self._bytes)
            self._waiting.clear()
        _wake_all(self._drained)
        _wake_all(self._passed)
        for waiter in self._producers:
            _call(waiter)

    def _is_full(self, size: int) -> bool:
        waiting = self._waiting
        return bool(waiting) and (len(waiting) >= self._max_batches or self._bytes + size > self._max_bytes)

    def _append(self, batch: Batch, size: int) -> None:
        if self._closed:
            return
        self._waiting.append((batch, size))
        self._note(1, size)
        self._high_batches = max(self._high_batches, len(self._waiting))
        self._high_bytes = max(self._high_bytes, self._bytes)
        self.resume()

    def _note(self, batches: int, size: int) -> None:
        self._bytes += size
        self._load.batches.move(batches)
        self._load.bytes.move(size)

    async def _take_turn(self, size: int) -> None:
        line = self._producers
        waiter = asyncio.get_running_loop().create_future()
        line.append(waiter)
        try:
            await waiter
            while self._is_full(size) and not self._closed:
                line[0] = waiter = asyncio.get_running_loop().create_future()
                await waiter
        finally:
            # Not before, or who comes now would overtake whoever has been called and has not run yet.
            line.remove(waiter)

    async def _wait(self, line_up: Callable[[asyncio.Future[None]], None]) -> None:
        waiter = asyncio.get_running_loop().create_future()
        line_up(waiter)
        await waiter


def _refuse(_: object) -> bool:
    return False


def _call(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _wake_all(line: list[asyncio.Future[None]]) -> None:
    for waiter in line:
        _call(waiter)
    line.clear()
