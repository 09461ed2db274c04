"""What the workers of one response have its owner do."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Inbox:
    """Steps that only the owner of a response may take, in the order in which they were asked for.

    Whoever asks for a step waits until it was taken and what it told has left, so there is never more than one of each
    worker, and a client that does not read holds up all of them.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[Callable[[], Any], asyncio.Future[Any] | None]] = deque()
        self._replies: list[tuple[asyncio.Future[Any], Any, Exception | None]] = []
        self._waiter: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._steps)

    async def ask(self, step: Callable[[], _T]) -> _T:
        """Have a step taken, and return what it returns; what it raises is raised here."""
        reply: asyncio.Future[tuple[_T, Exception | None]] = asyncio.get_running_loop().create_future()
        self._steps.append((step, reply))
        self.wake()
        result, error = await reply
        if error is not None:
            try:
                raise error
            finally:
                del error  # which leads back here
        return result

    def post(self, step: Callable[[], None]) -> None:
        """Have a step taken for which nobody waits; what it raises is the owner's."""
        self._steps.append((step, None))
        self.wake()

    def wake(self) -> None:
        """Have the owner look around."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ the owner's side

    def take_steps(self) -> None:
        """Take all steps that were asked for, except those of workers that have been stopped."""
        while self._steps:
            step, reply = self._steps.popleft()
            if reply is None:
                step()
            elif not reply.done():
                self._replies.append((reply, *_try(step)))

    def reply(self) -> None:
        """Let the workers go on whose steps were taken."""
        replies, self._replies = self._replies, []
        for reply, result, error in replies:
            if not reply.done():
                reply.set_result((result, error))

    async def wait(self, until: float | None) -> None:
        """Wait until there is something to do.

        Args:
            until: by the loop's clock, when to look around at the latest.
        """
        if self._steps:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if until is None else loop.call_at(until, self.wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


def _try(step: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Return what a step returns, or what it raises."""
    try:
        return step(), None
    except Exception as error:  # noqa: BLE001 - whoever asked gets it
        return None, error
