"""What a client has sent over its WebSocket and nobody has read yet."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from uvicorn._types import ASGIReceiveEvent

Take: TypeAlias = Callable[[str], bool]
"""Takes a text message; False, and nothing done, when it has to be read."""

# What a waiting message weighs besides its text: the event around it and its place in the queue.
_EVENT_BYTES = 256


class Inbox(asyncio.Queue[ASGIReceiveEvent]):
    """A queue that knows how much memory it takes, and may be spared what its reader takes in the moment it comes.

    Attributes:
        weight: bytes of memory that waiting messages take, about.
    """

    weight = 0
    _take: Take | None = None

    async def read(self, take: Take | None) -> ASGIReceiveEvent:
        """Return the next event; while none waits, messages are offered to `take` first."""
        if self.empty():
            self._take = take
        try:
            return await self.get()
        finally:
            self._take = None

    def offer(self, text: str) -> bool:
        """Offer a message to the reader, outside of its task; tells whether it was taken, or else has to be put."""
        return self._take is not None and self._take(text)

    def _put(self, item: ASGIReceiveEvent) -> None:
        # What comes behind it has to wait as well.
        self._take = None
        self.weight += _weigh(item)
        super()._put(item)

    def _get(self) -> ASGIReceiveEvent:
        item = super()._get()
        self.weight -= _weigh(item)
        return item


def _weigh(event: Any) -> int:
    if event["type"] != "websocket.receive":
        return 0
    return _EVENT_BYTES + sys.getsizeof(event.get("text") or event.get("bytes"))
