"""The injects and steers of one connection: taken beside the lanes, and answered in the numbers of their responses.

Nobody who reads waits here. What is taken is bounded by entries and bytes, and an entry is held until its answer has
left for the client.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from gateway.config.schema import GatewayConfig
from gateway.engine.plan import Plan
from gateway.engine.service import Engine
from gateway.engine.steering import explain_unsteerable
from gateway.protocol import codec, events
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded, TooManyInjections
from gateway.protocol.events import Event
from gateway.protocol.frames import CreateFrame, InjectFrame, SteerFrame, tag
from gateway.protocol.injection import Standing, refuse_inject
from gateway.protocol.requests import RequestPolicy
from gateway.protocol.response_routes import Route, RouteLimits, Routes
from gateway.protocol.steering import (
    Steer,
    SteerPhase,
    SteerRefusal,
    fail_steer,
    list_required,
    read_steer,
)
from gateway.telemetry.metrics import Metrics
from gateway.transport.outbound import OutboundQueue

# What a response takes of which nothing is known.
_ANY = RequestPolicy(remote_images=True)

ControlFrame: TypeAlias = InjectFrame | SteerFrame


class Controls:
    """What the client of a connection says about its running responses.

    Args:
        engine: makes these.
        queue: of the connection.
        config: bounds.
        metrics: what is counted.
        expects: whether a create that waits on a lane names a response as the one it continues.
        rest: called when nothing waits here any more.

    Attributes:
        routes: the responses.
    """

    def __init__(
        self,
        engine: Engine,
        queue: OutboundQueue[Sequence[bytes]],
        config: GatewayConfig,
        metrics: Metrics,
        *,
        expects: Callable[[str | None, str], bool],
        rest: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._bounds = config.websocket.inject
        self._steering = config.websocket.steer
        self._responses = config.responses
        self._metrics = metrics
        self._expects = expects
        self._rest = rest
        self._loop = asyncio.get_running_loop()
        self.routes = Routes(
            RouteLimits(
                max_completed=self._bounds.completed_routes_max, completed_seconds=self._bounds.completed_route_ttl_s
            )
        )
        self._entries = 0
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        # What came when its response was ending already, in this order.
        self._held: dict[str, list[tuple[ControlFrame, int]]] = {}
        self._closed = False

    # ------------------------------------------------------------ what the reader calls

    @property
    def idle(self) -> bool:
        """Whether every answer has left."""
        return not self._entries and not self._tasks

    def take(self, frame: ControlFrame, size: int) -> None:
        """Take a control; it is answered in time.

        Args:
            frame: what came.
            size: its bytes.

        Raises:
            RateLimitExceeded: too many, or too large ones, wait to be answered; nothing of it was applied.
        """
        self._admit(frame, size)
        self._answer(frame, size)

    def close(self) -> None:
        """The client has gone: nobody wants an answer."""
        self._closed = True
        self._held.clear()
        for task in self._tasks:
            task.cancel()
        self._move(-self._entries, -self._bytes)
        # Nor is the connection kept alive by who answers for it.
        self._expects, self._rest = _expect_nothing, _rest

    async def ended(self) -> None:
        """Wait until nothing of it runs on."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------ creates

    def find_target(self, frame: CreateFrame) -> Route | None:
        """Return the response whose steers a create takes along, if there is one."""
        return self.routes.find_waiting(frame.body.get("previous_response_id"), frame.stream_id)

    def open(self, plan: Plan, lane: str | None) -> Route:
        """Know a response from here on."""
        unsteerable = explain_unsteerable(plan, self._steering.models)
        route = Route(plan.response_id, lane, plan.route.policy, plan.request.agents is not None, unsteerable)
        self.routes.open(route)
        return route

    def end(self, route: Route, plan: Plan) -> list[dict[str, Any]]:
        """The response has ended, and its client knows; returns the input of what has to follow it at once."""
        if self._closed:
            return []
        response = plan.turn.response
        required = () if route.unsteerable else list_required(response.output)
        failed = route.end(plan.turn.next_number, self._loop.time(), response.status, required)
        return self._go_on(route, failed) if self._held or route.steered is not None else []

    def _go_on(self, route: Route, failed: Sequence[Steer]) -> list[dict[str, Any]]:
        """Say what the end of a response means for what was sent to it."""
        if failed:
            words = f"Response '{route.response_id}' has ended as {route.status}."
            reason = SteerRefusal("response_not_active", words)
            self._tell_late(route, [steer.fail(reason) for steer in failed])
        if route.waiting:
            self._tell_pending(route)
        if self._held:
            self._answer_held(route)
        return route.steers.offer() if route.passing else []

    def leave(self, route: Route | None) -> None:
        """A create has ended, whether its response was told of or not."""
        forgotten = self.routes.leave(route)
        if self._closed:
            return
        for lost in forgotten:
            reason = SteerRefusal(
                "response_not_found",
                f"Response '{lost.response_id}' was forgotten, because too many others have ended since "
                "([websocket.inject] completed_routes_max).",
            )
            self._tell_late(lost, [steer.fail(reason) for steer in lost.steers.give_up()])
        if route is not None and self._held:
            self._answer_held(route)

    def remind(self, frame: CreateFrame) -> None:
        """A create was refused: tell of the steers it would have taken along, if that has not been done."""
        target = self.find_target(frame)
        if target is not None and not self._closed:
            self._tell_pending(target)

    def give_up(self, target: Route, error: GatewayError) -> None:
        """The successor of a response could not be made."""
        if self._closed:
            return
        reason = SteerRefusal("successor_creation_failed", f"The response that was to follow failed: {error.message}")
        self._tell_late(target, [steer.fail(reason) for steer in target.steers.give_up()])

    # ------------------------------------------------------------ answers

    def _answer(self, frame: ControlFrame, size: int) -> None:
        """Answer a control; while its response is ending it is held, and told behind the terminal event."""
        route = self.routes.find(frame.response_id, self._loop.time())
        answered = self._inject(frame, route) if isinstance(frame, InjectFrame) else self._steer(frame, route, size)
        if answered is None:
            self._held.setdefault(frame.response_id, []).append((frame, size))
        else:
            self._spawn(self._settle(frame, size, answered))

    def _answer_held(self, route: Route) -> None:
        for frame, size in self._held.pop(route.response_id, ()):
            self._answer(frame, size)

    async def _settle(self, frame: ControlFrame, size: int, answered: Awaitable[bool | None]) -> None:
        """Let go of a control when its answer has left; False for an answer: its response ended first."""
        again = False
        try:
            again = await answered is False
            if not again:
                await self._queue.passed()
        finally:
            if not again and not self._closed:
                self._move(-1, -size)
        if again:
            self._answer(frame, size)

    def _inject(self, frame: InjectFrame, route: Route | None) -> Awaitable[bool | None] | None:
        standing = Standing.UNKNOWN if route is None else route.standing
        refused = refuse_inject(frame.response_id, frame.input, standing)
        if refused is not None:
            return self._tell(route, refused)
        return self._engine.runs.inject(frame.response_id, frame.input)

    def _steer(self, frame: SteerFrame, route: Route | None, size: int) -> Awaitable[bool | None] | None:
        if route is not None and route.steers.phase is SteerPhase.ENDING:
            return None
        try:
            items = self._check_steer(frame, route, size)
        except SteerRefusal as refusal:
            return self._tell(route, fail_steer(frame.response_id, frame.input, refusal))
        assert route is not None
        steer = Steer(
            id=self._engine.mint("steer"), target=route.response_id, given=frame.input, items=tuple(items), size=size
        )
        answered = self._tell(route, steer.accepted, steers=True)
        if answered is None:
            route.steers.close()
        else:
            route.steers.add(steer)
            self._tell_pending(route)
        return answered

    def _check_steer(self, frame: SteerFrame, route: Route | None, size: int) -> Sequence[dict[str, Any]]:
        """Return the input of a steer that its response takes.

        Raises:
            SteerRefusal: it does not.
        """
        response_id, bounds = frame.response_id, self._steering
        policy = _ANY if route is None else route.policy
        items = read_steer(
            frame.input, stray=frame.stray, max_items=policy.max_input_items, remote_images=policy.remote_images
        )
        if route is None:
            raise SteerRefusal("response_not_found", f"Response '{response_id}' was not found.")
        route.steers.check(response_id)
        if route.unsteerable is not None:
            raise SteerRefusal("steering_not_supported", route.unsteerable)
        if len(route.steers.waiting) >= bounds.max_pending:
            raise SteerRefusal(
                "too_many_pending_steers",
                f"{bounds.max_pending} steers wait at this response, the most that may "
                "([websocket.steer] max_pending); send more when its successor has been created.",
            )
        if (
            sum([each.steered.bytes for each in self.routes if each.steered is not None]) + size
            > bounds.max_pending_bytes
        ):
            raise SteerRefusal(
                "too_many_pending_steers",
                f"With this steer of {size} bytes, those that wait on this connection would pass "
                f"{bounds.max_pending_bytes} bytes ([websocket.steer] max_pending_bytes).",
            )
        return items

    # ------------------------------------------------------------ telling

    def _tell(self, route: Route | None, event: Event, *, steers: bool = False) -> Awaitable[bool | None] | None:
        """Tell an event of a response, or of none that is known; None, and nothing told, while it is ending."""
        if route is None or route.ended:
            return self._tell_late(route, [event])
        try:
            answered = self._engine.runs.tell(route.response_id, event, steers=steers)
        except ResourceLimitExceeded:
            answered = self._engine.runs.tell(route.response_id, _shorten(event))
        if answered is not None:
            self._count(event)
        return answered

    def _tell_late(self, route: Route | None, told: Sequence[Event]) -> Awaitable[bool | None]:
        """Tell events of a response whose terminal event has been told, or of none that is known here."""
        payloads = []
        for event in told:
            event.sequence_number = self.routes.number(route)
            payload = self._encode(event, route)
            if len(payload) > self._responses.max_stream_event_bytes:
                payload = self._encode(_shorten(event), route)
            payloads.append(payload)
            self._count(event)
        return self._put(payloads)

    def _encode(self, event: Event, route: Route | None) -> bytes:
        return tag(codec.encode(event), None if route is None else route.lane)

    def _tell_pending(self, route: Route) -> None:
        """Tell of steers that wait, unless what they wait for has come already."""
        steers = route.steers
        if steers.phase is not SteerPhase.WAITING or self._expects(route.lane, route.response_id):
            return
        if untold := steers.list_untold():
            self._tell_late(route, [steer.wait_for(steers.required) for steer in untold])

    def _put(self, payloads: Sequence[bytes]) -> Awaitable[None]:
        """Have payloads put into the queue, one call's after the other's."""
        return self._spawn(self._queue.put(payloads))

    # ------------------------------------------------------------ inside

    def _admit(self, frame: ControlFrame, size: int) -> None:
        bounds = self._bounds
        if self._entries >= bounds.max_outstanding:
            what = f"{bounds.max_outstanding} injects and steers of this connection wait to be answered, the most that"
            key = "max_outstanding"
        elif self._bytes + size > bounds.max_outstanding_bytes:
            what = (
                f"With this event of {size} bytes, those that wait to be answered on this connection would be "
                f"{self._bytes + size} bytes; {bounds.max_outstanding_bytes}"
            )
            key = "max_outstanding_bytes"
        else:
            self._move(1, size)
            return
        raise TooManyInjections(
            f"{what} may ([websocket.inject] {key}). Nothing of what was sent for response "
            f"'{frame.response_id[:128]}' was applied; send it again after others have been answered.",
            bound=f"websocket.inject.{key}",
        )

    def _move(self, entries: int, size: int) -> None:
        self._entries += entries
        self._bytes += size
        load = self._metrics.socket_load
        load.controls.move(entries)
        load.control_bytes.move(size)

    def _count(self, event: Event) -> None:
        match event:
            case events.SteerFailed() | events.InjectFailed():
                outcome = event.error.code
            case events.SteerPending():
                outcome = "pending"
            case _:
                outcome = "accepted"
        control = "inject" if isinstance(event, events.InjectFailed) else "steer"
        self._metrics.controls_total.labels(control, outcome).inc()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.idle:
            self._rest()


def _expect_nothing(lane: str | None, response_id: str) -> bool:  # noqa: ARG001 - as the connection's own
    return False


def _rest() -> None:
    return None


def _shorten(event: Event) -> Event:
    """Return an event without what its client sent, which is more than one event may hold."""
    if isinstance(event, events.InjectFailed):
        event.input = []
    elif isinstance(event, events.SteerFailed):
        event.steer.input = ""
    return event
