"""Whether the database takes writes, known without asking it before each response."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from gateway.protocol.errors import StorageUnavailable

# Callers are told to come back after so long, and hear the same until then.
_REFUSAL_SECONDS = StorageUnavailable.retry_after or 1.0


class _Refusal(Struct, frozen=True):
    reason: str
    at: float


class WriteProof:
    """Remembers when the database last took a write, and has one tried when that is too long ago.

    Any number of callers share one trial. While the database is known to be down, only the caller who begins a trial
    waits for it; the others hear the last verdict, so that an outage that shows itself slowly holds up nobody else.

    Args:
        try_write: writes something and returns None, or says why it cannot; never raises.
        after_seconds: how long a write proves that the next one will be taken, 0 for not at all.
        trial_seconds: longest duration of a trial.
        monotonic: seconds on a clock that never goes back.
    """

    def __init__(
        self,
        try_write: Callable[[], Awaitable[str | None]],
        *,
        after_seconds: float,
        trial_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._try_write = try_write
        self._after_seconds = after_seconds
        self._trial_seconds = trial_seconds
        self._monotonic = monotonic
        self._proven_at = -math.inf
        self._refusal: _Refusal | None = None
        self._trial: asyncio.Task[str | None] | None = None

    def renew(self) -> None:
        """Note that the database has just taken a write. May be called from any thread."""
        self._refusal = None
        self._proven_at = self._monotonic()

    def doubt(self) -> None:
        """Note that it has just failed to, whatever the reason. May be called from any thread."""
        self._proven_at = -math.inf

    async def require(self) -> None:
        """Return if the database took a write a moment ago or takes one now.

        Raises:
            StorageUnavailable: it does not.
        """
        now = self._monotonic()
        if now - self._proven_at < self._after_seconds:
            return
        refusal = self._refusal
        lasts = _REFUSAL_SECONDS + (self._trial_seconds if self._trial else 0.0)
        if refusal is not None and now - refusal.at < lasts:
            raise StorageUnavailable(refusal.reason)
        if self._trial is None:
            self._trial = asyncio.create_task(self._run_trial(), name="storage-trial")
        # A caller that leaves must not end the trial of the others.
        reason = await asyncio.shield(self._trial)
        if reason is not None:
            raise StorageUnavailable(reason)

    async def close(self) -> None:
        """Wait for a trial that runs."""
        if self._trial is not None:
            await asyncio.wait({self._trial})

    async def _run_trial(self) -> str | None:
        try:
            reason = await self._try_write()
        finally:
            self._trial = None
        if reason is None:
            self.renew()
        else:
            self.doubt()
            self._refusal = _Refusal(reason, self._monotonic())
        return reason
