"""What a test has left waiting in its loop."""

import asyncio

from gateway.timing.limit import SharedTimer


def list_timers() -> list[asyncio.TimerHandle]:
    """Return the timers that are set, but for shared ones on which nobody waits any more."""
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if not timer.cancelled() and not _is_idle(timer)]


def _is_idle(timer: asyncio.TimerHandle) -> bool:
    shared = getattr(timer._callback, "__self__", None)  # type: ignore[attr-defined]
    return isinstance(shared, SharedTimer) and not shared._ends
