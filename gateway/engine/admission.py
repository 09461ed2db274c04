"""Who may start now: the count of running responses, the drain, and the seats of one inference server."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Self

from gateway.protocol.errors import Unavailable
from gateway.telemetry.loads import Level
from gateway.telemetry.metrics import Metrics
from gateway.timing.permits import Permits


class Admission:
    """Counts responses being made and refuses new ones at the limit or while draining.

    Args:
        max_active: most responses at once.
        metrics: holds their number.
    """

    def __init__(self, max_active: int, metrics: Metrics) -> None:
        self._max_active = max_active
        self._active = metrics.active_responses
        self._draining = False
        self._emptied: asyncio.Event | None = None

    @property
    def active(self) -> int:
        """Responses being made now."""
        return self._active.now

    def resize(self, max_active: int) -> None:
        """Change the limit; responses above a lower one go on, and nothing new starts until they are fewer."""
        self._max_active = max_active

    def begin_drain(self) -> None:
        """Refuse new responses from now on."""
        self._draining = True

    async def drained(self, timeout: float) -> bool:
        """Wait until none runs, for at most `timeout` seconds; tell whether that came true."""
        if not self._active.now:
            return True
        self._emptied = self._emptied or asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    def admit(self) -> "Place":
        """Hold a place for one response, from now until the `with` block ends.

        Raises:
            Unavailable: the gateway drains, or `[server] max_concurrent_requests` responses run.
        """
        if self._draining:
            raise Unavailable("The gateway is shutting down; send the request again.")
        if self._active.now >= self._max_active:
            raise Unavailable(
                f"The gateway is at its limit of {self._max_active} concurrent requests "
                "([server] max_concurrent_requests); send the request again later.",
                bound="server.max_concurrent_requests",
            )
        return self.hold()

    def hold(self) -> "Place":
        """Hold a place, whatever the limit, for a response that was admitted before."""
        self._active.move(1)
        return Place(self._leave)

    def _leave(self) -> None:
        self._active.move(-1)
        if self._emptied is not None and not self._active.now:
            self._emptied.set()
            self._emptied = None


class Place:
    """What somebody holds until the end of a `with` block. A class: generators cost the hot path more.

    Args:
        leave: gives it back.
        headers: what is left for its holder, in the form of headers with names in lower case.
    """

    __slots__ = ("headers", "leave")

    def __init__(self, leave: Callable[[], None], headers: Mapping[str, str] | None = None) -> None:
        self.leave = leave
        self.headers = headers or {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Seats:
    """The concurrent calls one inference server gets, with a bounded wait for a free one.

    Args:
        name: the upstream's name, for messages.
        limit: calls at once.
        wait_seconds: longest wait for a free seat.

    Attributes:
        running: seats held.
        waiting: calls that wait for one.
    """

    def __init__(self, name: str, limit: int, wait_seconds: float) -> None:
        self._name = name
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._places = Permits(limit)
        self.running = Level()
        self.waiting = Level()

    def resize(self, limit: int, wait_seconds: float) -> None:
        """Change the bounds; calls above a lower limit go on, and who waits already waits as long as it was told."""
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._places.resize(limit)

    async def take(self) -> Self:
        """Hold a seat, from now until the `with` block of what is returned ends.

        Raises:
            Unavailable: none became free in time.
        """
        if not self._places.take_at_once():
            await self._wait()
        self.running.move(1)
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.running.move(-1)
        self._places.give_back()

    async def _wait(self) -> None:
        self.waiting.move(1)
        # Not wait_for: before Python 3.12 it swallows a cancellation that arrives together with the seat.
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.take()
        except TimeoutError:
            raise Unavailable(
                f"Upstream '{self._name}' is at its limit of {self._limit} concurrent calls "
                "([upstream] max_concurrent); send the request again later.",
                bound="upstream.max_concurrent",
            ) from None
        finally:
            self.waiting.move(-1)
