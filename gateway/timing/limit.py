"""How long a block of a task may take."""

import asyncio
from contextvars import Context
from types import TracebackType
from typing import Self

# A loop's timer may be early by as much as its clock is coarse.
_CLOCK_SECONDS = 0.001


class SharedTimer:
    """Times many blocks that may all take equally long, with one timer of the loop: most end long before.

    It serves one event loop after the other, never two at once.

    Args:
        seconds: after how long a block expires.

    Attributes:
        loop: the event loop of the last block, once there was one.
    """

    __slots__ = ("_ends", "_timer", "loop", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.loop: asyncio.AbstractEventLoop | None = None
        # In the order in which their time is over.
        self._ends: dict[TimeLimit, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, limit: "TimeLimit", loop: asyncio.AbstractEventLoop) -> None:
        """Let a block expire, unless it is stopped before."""
        if loop is not self.loop:
            # What a loop before this one still had to do ended with it.
            self.loop, self._timer = loop, None
            self._ends.clear()
        if not self.seconds:
            # Whoever waits for nothing is not to wait for the others of this turn either.
            loop.call_soon(limit.expire)
            return
        self._ends[limit] = loop.time() + self.seconds
        if self._timer is None:
            # It may outlive the block that set it, and is to keep nothing of that.
            self._timer = loop.call_later(self.seconds, self._look, loop, context=Context())

    def stop(self, limit: "TimeLimit") -> None:
        """Leave a block alone from now on."""
        self._ends.pop(limit, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time() + _CLOCK_SECONDS
        for limit, end in list(self._ends.items()):
            if end > now:
                self._timer = loop.call_at(end, self._look, loop)
                return
            del self._ends[limit]
            # One by one, as timers of their own would: none hinders the others.
            loop.call_soon(limit.expire)


class TimeLimit:
    """Bounds what is inside a `with` block of a task as `asyncio.timeout` does, at half the cost.

    Args:
        seconds: longest time inside.
        shared: what times it together with others; else it takes a timer of its own.

    Attributes:
        passed: whether the block was ended.
    """

    __slots__ = ("_cancelling", "_seconds", "_shared", "_task", "_timer", "passed")

    def __init__(self, seconds: float, shared: SharedTimer | None = None) -> None:
        self._seconds = seconds
        self._shared = shared
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._timer: asyncio.TimerHandle
        self.passed = False

    def end(self) -> None:
        """End the block now, unless it has ended or not begun."""
        if self._task is not None and not self.passed:
            self.passed = True
            self._stop()
            self._task.cancel()

    def expire(self) -> None:
        """Take note that as much time is over as a timer was set for."""
        self.end()

    def __enter__(self) -> Self:
        shared = self._shared
        # To find out the loop costs a system call, until Python 3.12; mostly it is that of the block before.
        task = self._task = (None if shared is None else asyncio.current_task(shared.loop)) or asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        if shared is None:
            self._timer = task.get_loop().call_later(self._seconds, self.expire)
        else:
            shared.start(self, task.get_loop())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End.

        Raises:
            TimeoutError: the time had passed; not where another cancellation came as well.
        """
        task, self._task = self._task, None
        assert task is not None
        if not self.passed:
            self._stop()
        elif task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _stop(self) -> None:
        if self._shared is None:
            self._timer.cancel()
        else:
            self._shared.stop(self)
