"""The longest a run may take, and the way to end it earlier."""

import asyncio
from types import TracebackType

from gateway.engine.failures import deadline_passed
from gateway.protocol.errors import GatewayError


class Deadline:
    """Bounds what is inside an `async with` block; a class, because a generator costs the hot path more.

    Args:
        seconds: longest time inside.

    Attributes:
        cut: what the block was ended with, if it was.
    """

    __slots__ = ("_seconds", "_timeout", "cut")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self.cut: GatewayError | None = None

    def cut_off(self, error: GatewayError) -> None:
        """End the block with this error, at once or as soon as it begins; after its end nothing happens."""
        self.cut = error
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> None:
        """Begin.

        Raises:
            GatewayError: the run was cut off.
        """
        if self.cut is not None:
            raise self.cut
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End.

        Raises:
            GatewayError: the deadline passed, or the run was cut off.
        """
        timeout, self._timeout = self._timeout, None
        assert timeout is not None
        try:
            await timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise self.cut or deadline_passed(self._seconds) from None
