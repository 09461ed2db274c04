"""The thread that removes what is old now and then."""

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from gateway.storage.expiry import Expiry
from gateway.storage.faults import StorageNotReady, explain_fault
from gateway.storage.retention import Cutoffs, Removed
from gateway.telemetry.metrics import Metrics

# A process that never lives for a whole interval removes something too.
_FIRST_WAIT_SECONDS = 60.0
# SQLite's waiting writers look for the lock ten times a second at least.
PAUSE_SECONDS = 0.2

_log = logging.getLogger(__name__)


def find_cutoffs(now: float, *, retention_seconds: float, grace_seconds: float) -> Cutoffs:
    """Return what has had its time by now.

    Args:
        now: Unix seconds.
        retention_seconds: how long a tree is kept after its newest member, 0 for ever.
        grace_seconds: how long a deleted response is kept for what is being made from it.
    """
    created = int(now - retention_seconds) if retention_seconds else None
    return Cutoffs(created=created, deleted=int(now - grace_seconds))


def sweep_gently(
    sweep: Expiry,
    cutoffs: Cutoffs,
    stop: threading.Event,
    note: Callable[[Removed], None] = lambda _: None,
) -> Removed:
    """Remove all that can go, with pauses in which others can write, until `stop` is set; returns what went.

    Args:
        sweep: removes.
        cutoffs: what has had its time.
        stop: ends it after the batch it is in.
        note: told what each batch removed.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: the database refused a batch, which changed nothing.
    """
    total = Removed()
    for removed in sweep.remove(cutoffs):
        total += removed
        note(removed)
        if stop.wait(PAUSE_SECONDS):
            break
    return total


class Sweeper:
    """Runs a sweep every `interval_seconds`, which is also how long a deleted response is kept.

    Args:
        sweep: removes.
        ensure_schema: raises while the database cannot be used.
        retention_seconds: how long a tree is kept after its newest member, 0 for ever.
        interval_seconds: between two sweeps.
        metrics: what was removed, and how the sweeps went.
        now: Unix seconds.
    """

    def __init__(
        self,
        sweep: Expiry,
        ensure_schema: Callable[[], None],
        *,
        retention_seconds: float,
        interval_seconds: float,
        metrics: Metrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sweep = sweep
        self._ensure_schema = ensure_schema
        self._retention_seconds = retention_seconds
        self._interval_seconds = interval_seconds
        self._metrics = metrics
        self._now = now
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-sweeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after the batch it is in. Blocks; idempotent."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        wait = min(_FIRST_WAIT_SECONDS, self._interval_seconds)
        while not self._closed.wait(wait):
            wait = self._interval_seconds
            try:
                self._remove_old()
            except (SQLAlchemyError, StorageNotReady) as error:
                self._metrics.retention_failures_total.inc()
                _log.warning("old responses were not removed, the next sweep tries again: %s", explain_fault(error))
            # The thread must outlive any fault.
            except Exception:  # noqa: BLE001
                self._metrics.retention_failures_total.inc()
                _log.exception("old responses were not removed, the next sweep tries again")

    def _remove_old(self) -> None:
        self._ensure_schema()
        cutoffs = find_cutoffs(
            self._now(), retention_seconds=self._retention_seconds, grace_seconds=self._interval_seconds
        )
        began = time.perf_counter()
        total = sweep_gently(self._sweep, cutoffs, self._closed, self._note_removed)
        if not self._closed.is_set():
            self._metrics.retention_sweep_seconds.observe(time.perf_counter() - began)
            self._metrics.retention_last_sweep_timestamp_seconds.set(self._now())
        if total.responses:
            _log.info("%d old responses with %d items were removed", total.responses, total.items)

    def _note_removed(self, removed: Removed) -> None:
        self._metrics.retention_removed_responses_total.inc(removed.responses)
