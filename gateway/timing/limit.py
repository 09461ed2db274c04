"""How long a block of a task may take."""

import asyncio
from types import TracebackType
from typing import Self


class TimeLimit:
    """Bounds what is inside a `with` block of a task as `asyncio.timeout` does, at half the cost.

    Args:
        seconds: longest time inside.

    Attributes:
        passed: whether the block was ended.
    """

    __slots__ = ("_cancelling", "_seconds", "_task", "_timer", "passed")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._timer: asyncio.TimerHandle
        self.passed = False

    def end(self) -> None:
        """End the block now, unless it has ended or not begun."""
        if self._task is not None and not self.passed:
            self.passed = True
            self._timer.cancel()
            self._task.cancel()

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._start(task.get_loop())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End.

        Raises:
            TimeoutError: the time had passed; not where another cancellation came as well.
        """
        self._timer.cancel()
        task, self._task = self._task, None
        assert task is not None
        if self.passed and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._seconds, self.end)
