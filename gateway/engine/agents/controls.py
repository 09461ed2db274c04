"""What a client sends into a response that is being made."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

Item = dict[str, Any]


class Controls:
    """Injected outputs, in the order in which they came, and what has become of them.

    Args:
        wake: has the owner of the response look around.

    Attributes:
        is_open: whether any may still be accepted; what comes later is answered when the response has ended.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.is_open = True
        self._wake = wake
        self._waiting: deque[tuple[list[Item], asyncio.Future[bool]]] = deque()
        self._told: list[asyncio.Future[bool]] = []

    @property
    def next(self) -> list[Item] | None:
        """What is to be decided about first; None for nothing, or nothing any more."""
        return self._waiting[0][0] if self._waiting and self.is_open else None

    def offer(self, items: list[Item]) -> asyncio.Future[bool]:
        """Take outputs in; tells whether their fate was told in the stream, once that has left."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, answer))
        self._wake()
        return answer

    def decide(self) -> None:
        """Note that the event about the first has been kept."""
        self._told.append(self._waiting.popleft()[1])

    def reply(self) -> None:
        """Answer those whose events have left."""
        told, self._told = self._told, []
        for answer in told:
            _answer(answer, told=True)

    def close(self) -> None:
        """Accept nothing more: the response is about to end."""
        self.is_open = False

    def end(self) -> None:
        """Answer all that is left: the response has ended."""
        self.close()
        self.reply()
        while self._waiting:
            _answer(self._waiting.popleft()[1], told=False)


def _answer(answer: asyncio.Future[bool], *, told: bool) -> None:
    if not answer.done():
        answer.set_result(told)
