"""One WebSocket as it is served: creates come in on lanes, events go out tagged with theirs."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from gateway.config.schema import GatewayConfig, WebSocketConfig
from gateway.engine.plan import Caller
from gateway.engine.service import Engine
from gateway.protocol import codec
from gateway.protocol.agents.asked import has_beta_header
from gateway.protocol.errors import ConnectionLimitReached, GatewayError, Unavailable
from gateway.protocol.frames import (
    CreateFrame,
    Frame,
    FrameError,
    build_error_frame,
    tag_overhead,
)
from gateway.protocol.lanes import LaneLimits, LaneScheduler, Ticket
from gateway.telemetry import names
from gateway.telemetry.loads import SocketShare
from gateway.telemetry.logs import request_id_var, response_id_var
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Span, Tracing, current_span
from gateway.transport.controls import Controls
from gateway.transport.idle import IdleWatch
from gateway.transport.intake import FrameRules, Intake
from gateway.transport.lane_channel import LaneChannel
from gateway.transport.making import Making, Successor
from gateway.transport.outbound import OutboundQueue
from gateway.transport.socket import ClientSocket
from gateway.transport.wire_errors import from_exception, name_code

CLOSE_DONE = 1000
CLOSE_GOING_AWAY = 1001
CLOSE_POLICY = 1008

_logger = logging.getLogger(names.LOGGER_ENGINE)


class LaneConnection:
    """Serves one accepted WebSocket until it ends.

    One task reads, and one task makes each running response. The reader waits for nobody but a client that takes no
    error frames; what comes while it waits for a message, and is not refused, is taken without it.

    Args:
        socket: the WebSocket.
        engine: makes the responses.
        config: bounds.
        metrics: what is counted.
        tracing: starts the span of each create.
        principal: owner of what is stored.
        check_caller: raises where the caller may start nothing any more.
        headers: of the upgrade; those the operator listed go to the upstreams.
        default_model: the model of creates that name none.

    Attributes:
        told: set when the client has been told all there is to tell, and Close, or has gone.
    """

    def __init__(
        self,
        socket: ClientSocket,
        engine: Engine,
        config: GatewayConfig,
        metrics: Metrics,
        tracing: Tracing,
        *,
        principal: str,
        check_caller: Callable[[], None],
        headers: Iterable[tuple[bytes, bytes]],
        default_model: str | None,
    ) -> None:
        bounds = config.websocket
        self._socket = socket
        self._engine = engine
        self._bounds: WebSocketConfig = bounds
        self._metrics = metrics
        self._tracing = tracing
        self._span = current_span()
        self._principal = principal
        self._check_caller = check_caller
        self._headers = headers
        self._agents_header = has_beta_header(headers)
        self._loop = asyncio.get_running_loop()
        self._session = engine.open_session()
        self._scheduler: LaneScheduler[CreateFrame] = LaneScheduler(_read_limits(bounds))
        self._queue: OutboundQueue[Sequence[bytes]] = OutboundQueue(
            self._write,
            _measure,
            max_batches=bounds.delivery_max_batches,
            max_bytes=bounds.delivery_max_bytes,
            metrics=metrics,
        )
        self._controls = Controls(engine, self._queue, config, metrics, expects=self._expects, rest=self._end_if_idle)
        self._tasks: dict[asyncio.Task[None], str | None] = {}
        self._share = SocketShare(metrics.socket_load)
        self._last_words: Callable[[], GatewayError] | None = None
        self._cut = False
        self._closing: asyncio.Task[None] | None = None
        self.told = asyncio.Event()
        self._timers: list[asyncio.TimerHandle] = []
        self._gone = False
        self._idle = IdleWatch(
            self._queue,
            rests=lambda: self._scheduler.idle and self._controls.idle,
            close=lambda: self._close(CLOSE_DONE, "idle"),
            first_seconds=bounds.handshake_timeout_seconds,
            later_seconds=bounds.idle_timeout_seconds,
        )
        agents = config.multi_agent
        rules = FrameRules(
            max_depth=config.responses.max_json_depth,
            default_model=default_model,
            injects=agents.enabled and (self._agents_header or not agents.require_beta_header),
        )
        self._intake = Intake(socket, rules, self._idle, metrics)

    # ------------------------------------------------------------ from the first message to the end

    async def serve(self) -> None:
        """Read messages until the connection ends; nothing of it runs on after that."""
        self._metrics.socket_load.connections.move(1)
        self._socket.watch(self._leave, self._queue.resume)
        self._after(self._bounds.lifetime_seconds, self._expire)
        self._idle.look()
        try:
            await self._intake.run(self._accept, self._refuse_frame)
        finally:
            self._socket.watch(None)
            for timer in self._timers:
                timer.cancel()
            self._idle.end()
            self._leave()
            await asyncio.gather(*self._tasks, self._controls.ended(), return_exceptions=True)
            self._share.set(0, 0, 0)
            self._session.close()
            self._metrics.socket_load.connections.move(-1)
            if self._closing is not None:
                await self._closing

    def begin_drain(self) -> None:
        """Refuse every create that has not begun, and close as soon as what has begun has ended."""
        if self._last_words is None:
            self._stop_creates(_shutting_down)

    def _accept(self, frame: Frame, size: int) -> None:
        """Do what a frame asks for; what comes when the connection is at its end asks for nothing.

        Raises:
            FrameError: it is refused; nothing of it was done.
        """
        if self._gone or self._cut:
            return
        try:
            self._check_caller()
            if isinstance(frame, CreateFrame):
                self._scheduler.admit(frame.stream_id, size, frame)
                self._start(self._scheduler.start())
            else:
                self._controls.take(frame, size)
        except GatewayError as error:
            stream_id = frame.stream_id if isinstance(frame, CreateFrame) else None
            raise FrameError(error, stream_id=stream_id, event_id=frame.event_id) from None

    # ------------------------------------------------------------ creates

    def _start(self, tickets: Iterable[Ticket[CreateFrame]]) -> None:
        for ticket in tickets:
            self._tasks[self._loop.create_task(self._run(ticket))] = None
        scheduler = self._scheduler
        self._share.set(scheduler.active, scheduler.waiting, scheduler.outstanding_bytes)

    async def _run(self, ticket: Ticket[CreateFrame]) -> None:
        frame, task = ticket.payload, _current_task(self._loop)
        # It may have been started by the end of another, and so have begun with that one's id.
        response_id_var.set(None)
        span = self._tracing.start_create(frame.trace, self._span)
        if span.recording:
            _describe(span, frame)
        successor: Ticket[CreateFrame] | None = None
        try:
            successor = await self._make(frame, task)
        except asyncio.CancelledError:
            # Nobody waits for what comes of this task. An error kept in it would hold its frames, and they the task:
            # all that a client left unread, until the collector comes.
            if self._cut and not self._left and self._last_words is not None:
                await self._refuse(frame, self._last_words())
        except GatewayError as error:
            await self._refuse(frame, error)
        except Exception as error:  # noqa: BLE001  # it fails this create alone
            await self._refuse(frame, from_exception(error))
        finally:
            span.end()
            del self._tasks[task]
            self._idle.note()
            if not self._left:
                self._start(self._scheduler.finish(ticket, successor=successor))
            self._end_if_idle()

    async def _make(self, frame: CreateFrame, task: "asyncio.Task[None]") -> Ticket[CreateFrame] | None:
        """Make the response of a create; returns what has to follow it at once on its lane."""
        engine = self._engine
        self._refuse_late()
        # It may have waited for long; and whoever may do nothing forgets nothing either.
        self._check_caller()
        with (
            Making(self._controls, frame) as making,
            engine.admit(self._principal),
            self._session.begin(frame.stream_id, making.parent_id) as continuation,
        ):
            frame = making.frame
            request, route = engine.read_fields(frame.body, on_websocket=True, agents_header=self._agents_header)
            caller = Caller(
                principal=self._principal,
                transport=names.TRANSPORT_WEBSOCKET,
                headers=route.pick_headers(self._headers),
                overhead=tag_overhead(frame.stream_id),
                progress_seconds=self._bounds.progress_seconds,
            )
            plan = await engine.prepare(caller, request, route, continuation)
            if self._cut:
                await plan.abandon()
                self._refuse_late()
            response_id_var.set(plan.response_id)
            self._tasks[task] = plan.response_id
            if request.toolset.unsupported:
                _logger.info(
                    "tools of a create were left out, because they cannot be run",
                    extra={"tools": request.toolset.name_unsupported()},
                )
            channel = LaneChannel(self._queue, frame.stream_id)
            making.open(plan, channel)
            await engine.stream(plan, channel)
        successor = making.successor
        if successor is None:
            return None
        return Ticket(lane=successor.stream_id, size=len(codec.encode(successor.body)), payload=successor)

    def _expects(self, lane: str | None, response_id: str) -> bool:
        """Whether a create that waits on a lane goes on from this response."""
        return any(
            frame.body.get("previous_response_id") == response_id for frame in self._scheduler.list_waiting(lane)
        )

    async def _refuse_frame(self, refusal: FrameError) -> None:
        """Tell what is wrong with a frame; some end the connection, and what runs as if the client had gone."""
        if self._gone:
            return
        if refusal.closes:
            self._gone = True
            self._cancel()
        await self._tell(refusal.error, refusal.stream_id, refusal.event_id)
        if refusal.closes:
            self._close(CLOSE_POLICY, "malformed event")

    async def _refuse(self, frame: CreateFrame, error: GatewayError) -> None:
        """Tell that a create was not made; of one that its client has not sent, those hear who steered."""
        if isinstance(frame, Successor):
            self._controls.give_up(frame.target, error)
        else:
            await self._tell(error, frame.stream_id, frame.event_id)
            self._controls.remind(frame)

    def _refuse_late(self) -> None:
        """Raise what is said to creates that come when the connection ends."""
        if self._last_words is not None:
            raise self._last_words()

    async def _tell(self, error: GatewayError, stream_id: str | None = None, event_id: str | None = None) -> None:
        self._metrics.websocket_errors_total.labels(code=name_code(error)).inc()
        self._metrics.note_failure(names.TRANSPORT_WEBSOCKET, error.status, error.code, error.bound)
        if error.status >= 500:
            current_span().fail(error.code)
        _logger.info("an error frame", extra={"code": error.code, "status": error.status, "stream_id": stream_id})
        await self._queue.put([build_error_frame(error, stream_id=stream_id, event_id=event_id)])

    def _write(self, payloads: Sequence[bytes]) -> bool:
        if self._socket.write_paused:
            return False
        self._socket.write(payloads)
        return True

    # ------------------------------------------------------------ the end

    @property
    def _left(self) -> bool:
        return self._gone or self._socket.close_code is not None

    def _leave(self) -> None:
        """The client is gone: nobody wants what runs, or waits for the client."""
        if self._tasks and not self._gone:
            self._metrics.client_disconnects_total.inc()
        self._gone = True
        self._queue.close()
        self._cancel()

    def _cancel(self) -> None:
        self._controls.close()
        for task in self._tasks:
            task.cancel()

    def _expire(self) -> None:
        """The lifetime is over: what runs may end."""
        if self._last_words is None:
            self._stop_creates(lambda: ConnectionLimitReached(self._bounds.lifetime_seconds))
            self._after(self._bounds.lifetime_grace_seconds, self._cut_off)

    def _stop_creates(self, last_words: Callable[[], GatewayError]) -> None:
        # What waits is refused when its turn comes, or its client would take that for the end of what runs before it.
        self._last_words = last_words
        self._end_if_idle()

    def _cut_off(self) -> None:
        """The grace is over too: what still runs ends as failed."""
        self._cut = True
        assert self._last_words is not None
        for task, response_id in self._tasks.items():
            if response_id is not None:
                self._engine.runs.cut_off_response(response_id, self._last_words())
            else:
                # It has not begun, and waits for its client or for what it refers to.
                task.cancel()
        # A client that reads, but hardly, cannot hold up the end for ever: then what waits for it is dropped.
        self._after(self._bounds.send_deadline_seconds, self._queue.close)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._last_words is None or self._tasks or self._left or not self._controls.idle:
            return
        error = self._last_words()
        if isinstance(error, ConnectionLimitReached):
            self._close(CLOSE_DONE, "The connection's lifetime is over.", error)
        else:
            self._close(CLOSE_GOING_AWAY, "The gateway is shutting down.")

    def _close(self, code: int, reason: str, last_words: GatewayError | None = None) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._say_close(code, reason, last_words))

    async def _say_close(self, code: int, reason: str, last_words: GatewayError | None) -> None:
        if self._last_words is None and not self._scheduler.idle and not self._gone:
            # A create came in the same moment.
            self._closing = None
            self._idle.look()
            return
        if last_words is not None:
            await self._tell(last_words)
        await self._queue.drained()
        self.told.set()
        await self._socket.close(code, reason)

    # ------------------------------------------------------------ inside

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, act))


def _measure(payloads: Sequence[bytes]) -> int:
    return sum([len(payload) for payload in payloads])


def _read_limits(bounds: WebSocketConfig) -> LaneLimits:
    return LaneLimits(
        max_active=bounds.max_active,
        max_named_lanes=bounds.max_named_lanes,
        max_outstanding=bounds.max_outstanding,
        max_outstanding_bytes=bounds.max_outstanding_bytes,
    )


def _describe(span: Span, frame: CreateFrame) -> None:
    span.annotate({names.ATTR_STREAM_ID: frame.stream_id, names.ATTR_REQUEST_ID: request_id_var.get()})


def _shutting_down() -> Unavailable:
    return Unavailable("The gateway is shutting down; send the request again, on a new connection.")


def _current_task(loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None]":
    # To find out the loop costs a system call, until Python 3.12.
    task = asyncio.current_task(loop)
    assert task is not None
    return task
