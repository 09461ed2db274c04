"""Group commit: one thread that writes everything queued in one transaction after another."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from msgspec import Struct

from gateway.ports import Deletion, LeaseClaim, LeaseRelease, LeaseRenewal, StoredResponse, UsageFlush
from gateway.protocol.errors import GatewayError, InternalError, StorageUnavailable
from gateway.storage.background_changes import RunChange, measure_run
from gateway.storage.conversation_changes import ConversationChange, measure_conversation
from gateway.storage.threads import give_way
from gateway.telemetry.loads import StorageLoad

Change: TypeAlias = (
    StoredResponse | Deletion | UsageFlush | LeaseClaim | LeaseRenewal | LeaseRelease | ConversationChange | RunChange
)
# A GatewayError is raised, anything else is returned.
Outcome: TypeAlias = object
Commit: TypeAlias = Callable[[Sequence[Change]], Sequence[Outcome]]

# About what a row of usage, or a lease, takes.
_ROW_BYTES = 256

_log = logging.getLogger(__name__)


class _Entry(Struct, frozen=True):
    change: Change
    size: int
    done: asyncio.Future[Outcome]


class Writer:
    """A bounded queue in front of one committing thread.

    Callers belong to one event loop, which alone keeps the counts; nothing but the queue is shared with the thread.
    `commit` gets a batch in order and returns one outcome for each: what there is to tell once it is durable, which is
    None mostly, else its error.
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
        self._load = load or StorageLoad()
        self._closed = False
        # None says that nothing follows.
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._gathered: list[_Entry] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def write(self, change: Change) -> Outcome:
        """Queue the change and return what came of it once it is durable.

        A caller that is cancelled leaves it in the queue.

        Raises:
            ResponseNotFound: there is nothing to delete.
            StorageUnavailable: the queue is full or closed, or the database refused; nothing was stored.
        """
        size = _measure(change)
        loop = self._loop = asyncio.get_running_loop()
        done = loop.create_future()
        with self._lock:
            self._admit(size)
            # What one turn of the loop brings goes over together: one wake-up, and one transaction.
            if not self._gathered:
                loop.call_soon(self._hand_over)
            self._gathered.append(_Entry(change, size, done))
        self._load.entries.move(1)
        self._load.bytes.move(size)
        return await done

    def close(self) -> None:
        """Refuse new entries, write those that wait, and end the thread. Blocks; idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._pass_on()
                self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _admit(self, size: int) -> None:
        if self._closed:
            raise StorageUnavailable("The store is closed.")
        if self._queue.qsize() + len(self._gathered) >= self._max_entries:
            raise StorageUnavailable(
                f"More than writer_max_entries ({self._max_entries}) responses wait to be stored.",
                bound="storage.writer_max_entries",
            )
        if self._load.bytes.now and self._load.bytes.now + size > self._max_bytes:
            raise StorageUnavailable(
                f"More than writer_max_bytes ({self._max_bytes}) wait to be stored.", bound="storage.writer_max_bytes"
            )

    def _hand_over(self) -> None:
        with self._lock:
            self._pass_on()

    def _pass_on(self) -> None:
        for entry in self._gathered:
            self._queue.put(entry)
        self._gathered.clear()

    def _run(self) -> None:
        give_way()
        while batch := self._take():
            self._announce(batch, self._commit_safely([entry.change for entry in batch]))

    def _take(self) -> list[_Entry]:
        """Wait for entries; an empty list means closed and drained."""
        batch: list[_Entry] = []
        while (entry := self._queue.get()) is not None:
            batch.append(entry)
            if len(batch) == self._batch_entries or self._queue.empty():
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _announce(self, batch: Sequence[_Entry], outcomes: Sequence[Outcome]) -> None:
        assert self._loop is not None, "who writes has a loop"
        try:
            self._loop.call_soon_threadsafe(self._settle, batch, outcomes)
        except RuntimeError:
            _log.debug("the event loop closed before its %d changes were stored", len(batch))

    def _settle(self, batch: Sequence[_Entry], outcomes: Sequence[Outcome]) -> None:
        self._load.entries.move(-len(batch))
        self._load.bytes.move(-sum(entry.size for entry in batch))
        for entry, outcome in zip(batch, outcomes, strict=True):
            if entry.done.done():
                continue
            if isinstance(outcome, GatewayError):
                entry.done.set_exception(outcome)
            else:
                entry.done.set_result(outcome)

    def _commit_safely(self, batch: Sequence[Change]) -> Sequence[Outcome]:
        try:
            return self._commit(batch)
        # The thread must outlive any fault, or every later append would wait for ever.
        except Exception:  # noqa: BLE001
            _log.exception("a batch of %d changes could not be stored", len(batch))
            return [InternalError() for _ in batch]


def _measure(change: Change) -> int:
    if isinstance(change, StoredResponse):
        return change.size
    if isinstance(change, UsageFlush):
        return len(change.counts) * _ROW_BYTES
    if isinstance(change, Deletion | LeaseClaim | LeaseRenewal | LeaseRelease):
        return _ROW_BYTES
    return measure_run(change) if isinstance(change, RunChange) else measure_conversation(change)
