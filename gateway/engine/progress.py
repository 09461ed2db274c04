"""A sign of life for clients that take silence for the end."""

import asyncio
from collections.abc import Callable


class Progress:
    """Notices when nothing has happened for a while, again and again.

    One timer looks at the notes, so that what happens costs none.

    Args:
        seconds: how long nothing may happen; 0 never notices.

    Attributes:
        looks: whether it looks now, and wants to be told of what happens.
    """

    __slots__ = ("_quiet_since", "_seconds", "_tell", "_timer", "looks")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # Only while it looks: who is told holds this, and a cycle would wait for the garbage collector.
        self._tell: Callable[[], None] | None = None
        self._quiet_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.looks = False

    def start(self, tell: Callable[[], None]) -> None:
        """Look from now on.

        Args:
            tell: called whenever nothing has happened for so long.
        """
        if self._seconds:
            self.looks = True
            self._tell = tell
            self.note()
            self._sleep(self._seconds)

    def note(self) -> None:
        """Something happened."""
        self._quiet_since = asyncio.get_running_loop().time()

    def stop(self) -> None:
        """Look no longer."""
        self.looks = False
        self._tell = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sleep(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        left = self._quiet_since + self._seconds - asyncio.get_running_loop().time()
        if left > 0:
            self._sleep(left)
            return
        self.note()
        self._sleep(self._seconds)
        if self._tell is not None:
            self._tell()
