"""An event loop on which no time is waited for: its clock jumps to the next timer when nothing else can happen.

A folder's `conftest.py` puts its tests on it by the hook `pytest_asyncio_loop_factories`. Nothing outside may be waited
for there: no socket, no thread and no process, since time would pass them by.
"""

import asyncio
import selectors
from typing import Any


class NothingWillHappen(RuntimeError):
    """Everything waits, and there is no timer: a deadlock."""


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    """Looks at what is ready, and moves the clock where a real one would sleep."""

    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise NothingWillHappen("every task waits for another one, and no timer is set")
        self.elapsed += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time begins at 0 and passes only while everybody waits."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made, as far as anybody waited."""
        return self._jumping.elapsed
