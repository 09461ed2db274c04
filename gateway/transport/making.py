"""One create of a connection, from its start to its end, as those see it who control its response."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from msgspec import structs

from gateway.engine.plan import Plan
from gateway.protocol.frames import CreateFrame
from gateway.protocol.response_routes import Route
from gateway.transport.controls import Controls
from gateway.transport.lane_channel import LaneChannel


class Successor(CreateFrame, frozen=True, kw_only=True):
    """A create the gateway makes itself, because a response ended with steers.

    Attributes:
        target: that response.
    """

    target: Route


class Making:
    """A create while it is made, as a `with` block.

    Args:
        controls: of the connection.
        frame: the create.

    Attributes:
        frame: the same, with the steers it takes along before its own input.
        parent_id: the response whose failed continuation it would be.
        successor: what follows it on its lane before anything else, once the block has ended.
    """

    __slots__ = ("_channel", "_controls", "_plan", "_route", "_target", "frame", "parent_id", "successor")

    def __init__(self, controls: Controls, frame: CreateFrame) -> None:
        self._controls = controls
        self._plan: Plan | None = None
        self._channel: LaneChannel | None = None
        self._route: Route | None = None
        self._target: Route | None = None
        self.frame = frame
        self.parent_id = frame.body.get("previous_response_id")
        self.successor: Successor | None = None

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            RateLimitExceeded: as many responses run on the connection as may.
        """
        self._controls.routes.reserve()
        if isinstance(self.frame, Successor):
            self._target = self.frame.target
            # It was not the client's: its failure takes nothing out of the connection's memory.
            self.parent_id = None
        elif self.parent_id is not None:
            self._target = self._controls.find_target(self.frame)
            if self._target is not None:
                self.frame = _prepend(self.frame, self._target.steers.offer())
        return self

    def open(self, plan: Plan, channel: LaneChannel) -> None:
        """The response is about to be told."""
        self._plan, self._channel = plan, channel
        if self._target is not None:
            channel.on_open = self._target.steers.apply
        self._route = self._controls.open(plan, self.frame.stream_id)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        route, plan, channel = self._route, self._plan, self._channel
        if route is not None and plan is not None and channel is not None and channel.opened:
            steers = self._controls.end(route, plan)
            if steers:
                self.successor = _succeed(self.frame, route, steers)
        elif self._target is not None and not isinstance(self.frame, Successor):
            self._target.steers.take_back()
        self._controls.leave(route)


def _prepend(frame: CreateFrame, steers: Sequence[dict[str, Any]]) -> CreateFrame:
    """Return a create with input before its own, which is left as it is if it is none."""
    own = frame.body.get("input")
    if isinstance(own, str):
        own = [{"type": "message", "role": "user", "content": own}] if own else []
    if own is not None and not isinstance(own, list):
        return frame
    return structs.replace(frame, body={**frame.body, "input": [*steers, *(own or ())]})


def _succeed(frame: CreateFrame, target: Route, steers: Sequence[dict[str, Any]]) -> Successor:
    """Return the create that follows a response: its settings, with the steers for input."""
    return Successor(
        stream_id=frame.stream_id,
        event_id=None,
        body={**frame.body, "previous_response_id": target.response_id, "input": list(steers)},
        trace=frame.trace,
        target=target,
    )
