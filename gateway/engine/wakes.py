"""Who waits for what happens to a background response, while it is made in this process."""

import asyncio
from contextlib import suppress


class Wakes:
    """Wakes waiters when something has happened to a response; of responses made elsewhere it knows nothing."""

    def __init__(self) -> None:
        self._next: dict[str, asyncio.Event] = {}

    def open(self, response_id: str) -> None:
        """Tell what happens to a response from now on."""
        self._next[response_id] = asyncio.Event()

    def note(self, response_id: str) -> None:
        """Something has happened to a response, and can be read."""
        self._next[response_id].set()
        self._next[response_id] = asyncio.Event()

    def close(self, response_id: str) -> None:
        """Nothing more happens to a response here."""
        self._next.pop(response_id).set()

    def watch(self, response_id: str) -> asyncio.Event | None:
        """Return what is set when something happens from now on; None if the response is not made here."""
        return self._next.get(response_id)


async def rest(seconds: float, event: asyncio.Event | None) -> None:
    """Wait for so long, or until the event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await (event or asyncio.Event()).wait()
