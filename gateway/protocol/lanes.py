"""Who is next on a connection: creates of one lane follow each other, those of different lanes run side by side.

A lane that has something to start and nothing running is ready, and ready lanes stand in one queue. Whoever starts
leaves it and comes back at its end, so between two creates of one lane every other ready lane has its turn, however
many creates a lane has waiting. No step takes longer with more of them.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct

from gateway.protocol.errors import RateLimitExceeded, StreamLimitReached

Payload = TypeVar("Payload")


class LaneLimits(Struct, frozen=True, kw_only=True):
    """The bounds of one connection.

    Attributes:
        max_active: creates that run at once, over all lanes; more wait.
        max_named_lanes: distinct names of lanes; a name once used stays used.
        max_outstanding: creates that wait or run.
        max_outstanding_bytes: the frames of those.
    """

    max_active: int
    max_named_lanes: int
    max_outstanding: int
    max_outstanding_bytes: int


class Ticket(Struct, Generic[Payload], frozen=True, eq=False, kw_only=True):
    """One create, from its admission to its end; no two are equal.

    Attributes:
        lane: the name of its lane; None for the default lane.
        size: bytes of its frame.
        payload: what is to be started.
    """

    lane: str | None
    size: int
    payload: Payload


class _Lane(Generic[Payload]):
    """What waits on one lane, and what runs."""

    __slots__ = ("active", "waiting")

    def __init__(self) -> None:
        self.active: Ticket[Payload] | None = None
        self.waiting: deque[Ticket[Payload]] = deque()


class LaneScheduler(Generic[Payload]):
    """Orders the creates of one connection; it starts nothing itself.

    The caller starts every ticket that `start` and `finish` return, and finishes each once.

    Attributes:
        active: creates that run.
        waiting: creates that wait.
        outstanding_bytes: bytes of the frames of both.
    """

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._lanes: dict[str | None, _Lane[Payload]] = {}
        self._ready: deque[_Lane[Payload]] = deque()
        self.active = 0
        self.waiting = 0
        self.outstanding_bytes = 0

    @property
    def named_lanes(self) -> int:
        """Names of lanes used so far."""
        return len(self._lanes) - (None in self._lanes)

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self.active and not self.waiting

    def admit(self, lane: str | None, size: int, payload: Payload) -> Ticket[Payload]:
        """Queue a create on its lane; a refused one leaves no trace.

        Args:
            lane: the name of the lane; None for the default lane, which needs no name.
            size: bytes of the frame.
            payload: what is to be started.

        Raises:
            StreamLimitReached: the name would be one too many.
            RateLimitExceeded: the create would be one too many, or too large beside the others.
        """
        self._check(lane, size)
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = _Lane()
        ticket = Ticket(lane=lane, size=size, payload=payload)
        if queue.active is None and not queue.waiting:
            self._ready.append(queue)
        queue.waiting.append(ticket)
        self.waiting += 1
        self.outstanding_bytes += size
        return ticket

    def list_waiting(self, lane: str | None) -> Iterable[Payload]:
        """Return what waits on a lane, in its order."""
        queue = self._lanes.get(lane)
        return [] if queue is None else [ticket.payload for ticket in queue.waiting]

    def start(self) -> list[Ticket[Payload]]:
        """Return what is to be started now, which runs from here on."""
        started = []
        while self._ready and self.active < self._limits.max_active:
            lane = self._ready.popleft()
            lane.active = lane.waiting.popleft()
            self.active += 1
            self.waiting -= 1
            started.append(lane.active)
        return started

    def finish(self, ticket: Ticket[Payload], *, successor: Ticket[Payload] | None = None) -> list[Ticket[Payload]]:
        """End what runs and return what is to be started now, which runs from here on.

        Args:
            ticket: what ended.
            successor: what goes on in its place, on the same lane, before anything that waits there. It was promised
                when its predecessor ran, so no limit refuses it; its bytes count.

        Raises:
            ValueError: the ticket does not run, or its successor is of another lane.
        """
        lane = self._lanes.get(ticket.lane)
        if lane is None or lane.active is not ticket:
            raise ValueError("only what runs can end")
        if successor is not None and successor.lane != ticket.lane:
            raise ValueError("a successor stays on the lane")
        self.outstanding_bytes -= ticket.size
        lane.active = successor
        if successor is not None:
            self.outstanding_bytes += successor.size
            return [successor]
        self.active -= 1
        if lane.waiting:
            self._ready.append(lane)
        return self.start()

    def _check(self, lane: str | None, size: int) -> None:
        # First what waiting does not mend.
        limits = self._limits
        if lane is not None and lane not in self._lanes and self.named_lanes >= limits.max_named_lanes:
            raise StreamLimitReached(limits.max_named_lanes)
        if self.active + self.waiting >= limits.max_outstanding:
            raise RateLimitExceeded(
                f"This connection has {limits.max_outstanding} creates waiting or running, the most it may have "
                "([websocket] max_outstanding); send it again after one has ended.",
                bound="websocket.max_outstanding",
            )
        if size > limits.max_outstanding_bytes:
            raise RateLimitExceeded(
                f"This create of {size} bytes is larger than all that may wait or run on a connection, "
                f"{limits.max_outstanding_bytes} bytes ([websocket] max_outstanding_bytes); send less.",
                bound="websocket.max_outstanding_bytes",
            )
        if self.outstanding_bytes + size > limits.max_outstanding_bytes:
            raise RateLimitExceeded(
                f"With this create of {size} bytes, those waiting or running on this connection would be "
                f"{self.outstanding_bytes + size} bytes; {limits.max_outstanding_bytes} are accepted "
                "([websocket] max_outstanding_bytes). Send it again after others have ended.",
                bound="websocket.max_outstanding_bytes",
            )
