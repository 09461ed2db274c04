"""The longest a run may take, and the way to end it earlier."""

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Self

from gateway.engine.failures import deadline_passed
from gateway.protocol.errors import GatewayError
from gateway.timing.limit import SharedTimer, TimeLimit


class Deadline(TimeLimit):
    """Bounds what is inside a `with` block.

    Args:
        seconds: longest time inside.
        bound: the key that sets it.

    Attributes:
        cut: what the block was ended with, if it was.
    """

    __slots__ = ("_act", "_bound", "cut")

    def __init__(self, seconds: float, bound: str = "engine.run_deadline_seconds") -> None:
        super().__init__(seconds)
        self._bound = bound
        self._act: Callable[[], object] | None = None
        self.cut: GatewayError | None = None

    def remind(self, timer: SharedTimer, act: Callable[[], None]) -> Self:
        """Call back when the block has lasted as long as a timer says; to be said before it begins.

        Until then it takes no timer of its own.
        """
        if timer.seconds < self._seconds:
            # What it is called from belongs to no run, but whatever begins there is to be this one's in log and trace.
            self._shared, self._act = timer, partial(copy_context().run, act)
        return self

    def cut_off(self, error: GatewayError) -> None:
        """End the block with this error, at once or as soon as it begins; after its end nothing happens."""
        self.cut = error
        self.end()

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            GatewayError: the run was cut off.
        """
        if self.cut is not None:
            self._act = None  # which leads back to who holds this
            raise self.cut
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End.

        Raises:
            GatewayError: the deadline passed, or the run was cut off.
        """
        self._act = None
        try:
            super().__exit__(kind, error, traceback)
        except TimeoutError:
            raise self.cut or deadline_passed(self._seconds, self._bound) from None

    def expire(self) -> None:
        """Remind, or end the block."""
        act, self._act = self._act, None
        reminder, self._shared = self._shared, None
        if reminder is None or act is None or self._task is None or self.passed:
            self.end()
        else:
            self._timer = self._task.get_loop().call_later(self._seconds - reminder.seconds, self.end)
            act()
