"""Group commit: one thread that writes everything queued in one transaction after another."""

import asyncio
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from gateway.ports import Deletion, StoredResponse
from gateway.protocol.errors import GatewayError, InternalError, StorageUnavailable
from gateway.storage.rows import count_item_bytes
from gateway.telemetry.metrics import StorageLoad

Change: TypeAlias = StoredResponse | Deletion
Outcome: TypeAlias = GatewayError | None
Commit: TypeAlias = Callable[[Sequence[Change]], Sequence[Outcome]]

_log = logging.getLogger(__name__)


class _Entry(Struct, frozen=True):
    change: Change
    size: int
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class Writer:
    """A bounded queue in front of one committing thread.

    `commit` gets a batch in order and returns one outcome for each: None once it is durable, else its error.
    """

    def __init__(
        self,
        commit: Commit,
        *,
        max_entries: int,
        max_bytes: int,
        batch_entries: int,
        load: StorageLoad | None = None,
    ) -> None:
        self._commit = commit
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._batch_entries = batch_entries
        self._queue: deque[_Entry] = deque()
        self._load = load or StorageLoad()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def write(self, change: Change) -> None:
        """Queue the change and return once it is durable. A caller that is cancelled leaves it in the queue.

        Raises:
            ResponseNotFound: there is nothing to delete.
            StorageUnavailable: the queue is full or closed, or the database refused; nothing was stored.
        """
        loop = asyncio.get_running_loop()
        size = _measure(change)
        entry = _Entry(change, size, loop, loop.create_future())
        with self._changed:
            self._admit(entry)
            self._queue.append(entry)
            self._load.entries += 1
            self._load.bytes += size
            self._changed.notify()
        await entry.done

    def close(self) -> None:
        """Refuse new entries, write those that wait, and end the thread. Blocks; idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _admit(self, entry: _Entry) -> None:
        if self._closed:
            raise StorageUnavailable("The store is closed.")
        if len(self._queue) >= self._max_entries:
            raise StorageUnavailable(f"More than writer_max_entries ({self._max_entries}) responses wait to be stored.")
        if self._load.bytes and self._load.bytes + entry.size > self._max_bytes:
            raise StorageUnavailable(f"More than writer_max_bytes ({self._max_bytes}) wait to be stored.")

    def _run(self) -> None:
        while batch := self._take():
            outcomes = self._commit_safely([entry.change for entry in batch])
            with self._changed:
                self._load.entries -= len(batch)
                self._load.bytes -= sum(entry.size for entry in batch)
            _announce(batch, outcomes)

    def _take(self) -> list[_Entry]:
        """Wait for entries; an empty list means closed and drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            return [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_entries))]

    def _commit_safely(self, batch: Sequence[Change]) -> Sequence[Outcome]:
        try:
            return self._commit(batch)
        # The thread must outlive any fault, or every later append would wait for ever.
        except Exception:  # noqa: BLE001
            _log.exception("a batch of %d changes could not be stored", len(batch))
            return [InternalError() for _ in batch]


def _measure(change: Change) -> int:
    return len(change.id) if isinstance(change, Deletion) else len(change.snapshot) + count_item_bytes(change)


def _announce(batch: Sequence[_Entry], outcomes: Sequence[Outcome]) -> None:
    by_loop = defaultdict(list)
    for entry, outcome in zip(batch, outcomes, strict=True):
        by_loop[entry.loop].append((entry.done, outcome))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            _log.debug("an event loop closed before its %d changes were stored", len(settled))


def _settle(settled: Sequence[tuple[asyncio.Future[None], Outcome]]) -> None:
    for done, outcome in settled:
        if done.done():
            continue
        if outcome is None:
            done.set_result(None)
        else:
            done.set_exception(outcome)
