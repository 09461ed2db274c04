"""Where the controls of a connection find their responses: by id, while they run and for some time after that.

A response that has ended is remembered so that a late control can be answered in its numbers. Few are ever steered, so
what steers need is made for those alone. Pure: time comes as an argument.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.protocol.errors import RateLimitExceeded
from gateway.protocol.injection import Standing
from gateway.protocol.requests import RequestPolicy
from gateway.protocol.steering import Steer, SteerPhase, SteerQueue


class RouteLimits(Struct, frozen=True, kw_only=True):
    """The bounds of one connection.

    Attributes:
        max_completed: responses that have ended and are remembered; as many may run.
        completed_seconds: how long they are remembered.
    """

    max_completed: int
    completed_seconds: float


class Route(Struct, eq=False):
    """One response of a connection.

    Attributes:
        response_id: its id.
        lane: the lane it runs on.
        policy: what the operator decides about requests to its model.
        agents: whether several agents make it.
        unsteerable: why it cannot be steered, or None.
        ended: whether its terminal event has been told.
        ended_at: when that was, in seconds.
        next_number: the number of the next event told of it, once it has ended.
        status: how it ended.
        required: stubs of the outputs it waits for since.
        steered: what waits for its end, if anybody has looked.
    """

    response_id: str
    lane: str | None
    policy: RequestPolicy
    agents: bool
    unsteerable: str | None
    ended: bool = False
    ended_at: float = 0.0
    next_number: int = 0
    status: str = ""
    required: Sequence[Mapping[str, Any]] = ()
    steered: SteerQueue | None = None

    @property
    def steers(self) -> SteerQueue:
        """What waits for its end."""
        steers = self.steered
        if steers is None:
            steers = self.steered = SteerQueue()
            if self.ended:
                steers.end(self.status, self.required)
        return steers

    @property
    def waiting(self) -> Sequence[Steer]:
        """The steers without a fate."""
        return () if self.steered is None else self.steered.waiting

    @property
    def passing(self) -> bool:
        """Whether its steers are being passed to a successor."""
        return self.steered is not None and self.steered.phase is SteerPhase.PASSING

    @property
    def standing(self) -> Standing:
        """Where it stands for those who inject."""
        if self.ended:
            return Standing.ENDED
        return Standing.WORKING if self.agents else Standing.ALONE

    def end(self, next_number: int, now: float, status: str, required: Sequence[Mapping[str, Any]]) -> Sequence[Steer]:
        """Its terminal event has been told.

        Args:
            next_number: the number after that event's.
            now: time in seconds.
            status: how it ended.
            required: stubs of the outputs it waits for.

        Returns:
            The steers that fail, because it has not ended well.
        """
        self.ended = True
        self.ended_at = now
        self.next_number = next_number
        self.status = status
        self.required = required
        return () if self.steered is None else self.steered.end(status, required)


class Routes:
    """The responses of one connection.

    Args:
        limits: how many, and for how long.
    """

    def __init__(self, limits: RouteLimits) -> None:
        self._limits = limits
        self._live: dict[str, Route] = {}
        # In the order of their ends.
        self._ended: dict[str, Route] = {}
        self._reserved = 0
        self._lost = 0

    def __iter__(self) -> Iterator[Route]:
        yield from self._live.values()
        yield from self._ended.values()

    def number(self, route: Route | None) -> int:
        """Return the number of an event that is told of a response after its end, or of one not known here."""
        if route is None:
            self._lost += 1
            return self._lost - 1
        route.next_number += 1
        return route.next_number - 1

    # ------------------------------------------------------------ from a create to its end

    def reserve(self) -> None:
        """Keep a place for one response that is to run.

        Raises:
            RateLimitExceeded: as many run as may.
        """
        limit = self._limits.max_completed
        if self._reserved >= limit:
            raise RateLimitExceeded(
                f"{limit} responses run on this connection, the most of which it knows where controls go "
                "([websocket.inject] completed_routes_max); send it again after one has ended.",
                bound="websocket.inject.completed_routes_max",
            )
        self._reserved += 1

    def open(self, route: Route) -> None:
        """Take a response that begins."""
        self._live[route.response_id] = route

    def leave(self, route: Route | None) -> Sequence[Route]:
        """Give back the place of a response, and remember the response if it was told of.

        Returns:
            Routes that had to go for it although steers wait there.
        """
        self._reserved -= 1
        if route is None:
            return ()
        del self._live[route.response_id]
        if not route.ended:
            return ()
        self._ended[route.response_id] = route
        return self._make_room() if len(self._ended) > self._limits.max_completed else []

    # ------------------------------------------------------------ look-ups

    def find(self, response_id: str, now: float) -> Route | None:
        """Return the response, if it runs or is still remembered.

        Args:
            response_id: its id.
            now: time in seconds.
        """
        live = self._live.get(response_id)
        if live is not None:
            return live
        route = self._ended.get(response_id)
        if route is not None and self._is_over(route, now):
            del self._ended[response_id]
            return None
        return route

    def find_waiting(self, response_id: object, lane: str | None) -> Route | None:
        """Return the response if it waits for its client's outputs with steers, and a create of that lane takes those.

        Args:
            response_id: what the create continues, as it came.
            lane: the lane of the create.
        """
        route = self._ended.get(response_id) if isinstance(response_id, str) else None
        if route is None or not route.waiting or route.lane != lane:
            return None
        return route if route.steers.phase is SteerPhase.WAITING else None

    def _is_over(self, route: Route, now: float) -> bool:
        """Whether it has been remembered for long enough; steers that wait keep it."""
        if route.waiting or route.passing:
            return False
        return now - route.ended_at > self._limits.completed_seconds

    def _make_room(self) -> Sequence[Route]:
        """Forget the oldest beyond the limit: those nobody waits for before those with steers."""
        lost = []
        while len(self._ended) > self._limits.max_completed:
            going = self._oldest()
            if going is None:
                break
            del self._ended[going.response_id]
            if going.waiting:
                lost.append(going)
        return lost

    def _oldest(self) -> Route | None:
        oldest = None
        for route in self._ended.values():
            if route.passing:
                continue
            if not route.waiting:
                return route
            oldest = oldest or route
        return oldest
