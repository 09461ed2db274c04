"""The longest a run may take, and the way to end it earlier."""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.engine.failures import deadline_passed
from gateway.protocol.errors import GatewayError
from gateway.timing.limit import TimeLimit


class Deadline(TimeLimit):
    """Bounds what is inside a `with` block.

    Args:
        seconds: longest time inside.
        bound: the key that sets it.

    Attributes:
        cut: what the block was ended with, if it was.
    """

    __slots__ = ("_act", "_after", "_bound", "cut")

    def __init__(self, seconds: float, bound: str = "engine.run_deadline_seconds") -> None:
        super().__init__(seconds)
        self._bound = bound
        self._after = seconds
        self._act: Callable[[], None] | None = None
        self.cut: GatewayError | None = None

    def remind(self, after: float, act: Callable[[], None]) -> Self:
        """Call back when the block has lasted so many seconds; said before it begins, it takes no timer of its own."""
        if after < self._seconds:
            self._after, self._act = after, act
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

    def _start(self, loop: AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._after, self._look, loop)

    def _look(self, loop: AbstractEventLoop) -> None:
        act, self._act = self._act, None
        if act is None:
            self.end()
        else:
            self._timer = loop.call_later(self._seconds - self._after, self.end)
            act()
