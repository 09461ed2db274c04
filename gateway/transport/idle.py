"""Notices a connection on which nothing comes and nothing runs; one timer looks, so that messages cost none."""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.transport.outbound import OutboundQueue


class IdleWatch:
    """Ends a connection that has been quiet for too long.

    Args:
        queue: what the client has not taken yet.
        rests: tells whether nothing waits or runs.
        close: ends the connection.
        first_seconds: longest silence before the first message.
        later_seconds: longest silence after it; 0 for any.
    """

    def __init__(
        self,
        queue: OutboundQueue[Any],
        *,
        rests: Callable[[], bool],
        close: Callable[[], object],
        first_seconds: float,
        later_seconds: float,
    ) -> None:
        self._queue = queue
        self._rests = rests
        self._close = close
        self._patience = first_seconds
        self._later = later_seconds
        self._met = False
        self._loop = asyncio.get_running_loop()
        self._quiet_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def note_message(self) -> None:
        """A message has come."""
        self._quiet_since = self._loop.time()
        if not self._met:
            self._met = True
            self._patience = self._later
            self._stop()
            self.look()

    def note(self) -> None:
        """Something has happened."""
        self._quiet_since = self._loop.time()

    def look(self) -> None:
        """Close if nothing runs and nothing has come for too long; else look again when that may be."""
        patience, now = self._patience, self._loop.time()
        if not patience:
            return
        left = self._quiet_since + patience - now if self._rests() else patience
        if left > 0:
            self._timer = self._loop.call_later(left, self.look)
        elif self._queue.statistics.batches:
            # It has not even taken what it was told.
            self._timer = self._loop.call_later(patience, self.look)
        else:
            self._close()

    def end(self) -> None:
        """Look no more, and let go of the connection."""
        self._stop()
        self._rests, self._close = _never, _never

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _never() -> bool:
    return False
