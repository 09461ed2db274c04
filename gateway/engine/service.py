"""The facade every transport calls: prepare, answer or stream, retrieve, delete."""

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from gateway.config.schema import GatewayConfig
from gateway.engine.admission import Admission, Place, Seats
from gateway.engine.agents.coordination import Coordination
from gateway.engine.archive import Archive, show_response
from gateway.engine.coalescing import Coalescer
from gateway.engine.commit import Committer
from gateway.engine.compaction import Compaction
from gateway.engine.conversations import Conversations, HoldingChannel
from gateway.engine.delivery import Channel
from gateway.engine.extras import Extras
from gateway.engine.failures import shutting_down
from gateway.engine.input_items import Page, list_input_items
from gateway.engine.plan import Caller, Plan, read_policy
from gateway.engine.preparation import Preparation
from gateway.engine.quotas import Quotas
from gateway.engine.room import Room
from gateway.engine.routing import RawHeaders, Route, Routing, model_not_found
from gateway.engine.run import Run, RunParts
from gateway.engine.runs import Runs
from gateway.engine.session import Continuation, Session, Sessions
from gateway.engine.usage import UsageBook
from gateway.ports import Clock, Deletion, Ids, Sealer, Store, Tools, Upstream
from gateway.protocol import codec
from gateway.protocol.agents.asked import has_beta_header
from gateway.protocol.ids import prefix_of
from gateway.protocol.requests import CreateRequest, check_request, read_object
from gateway.protocol.response import DeletedResponse, ModelList
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing


class Engine:
    """Makes and returns responses. One engine serves every transport.

    Args:
        config: limits, bounds and the upstreams' routing.
        store: durable responses.
        upstreams: inference servers by name.
        metrics: what is counted.
        tracing: spans of inference calls.
        clock: time of creation and completion.
        ids: mints every id.
        tools: what the gateway runs itself; None for nothing.
        sealer: seals notes of compacted histories; None where there are none.

    Attributes:
        routing: where models go, by the configuration in effect.
        usage: the tokens of each principal.
        conversations: what callers do with conversations.
        compaction: windows, notes and summaries.
        committer: stores what has been made.
        runs: what is being made now.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        store: Store,
        upstreams: Mapping[str, Upstream],
        metrics: Metrics,
        tracing: Tracing,
        clock: Clock,
        ids: Ids,
        tools: Tools | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        self._store = store
        self._tools = tools
        self._archive = Archive(store)
        self._clock = clock
        self._ids = ids
        self._upstreams = upstreams
        self._extras = Extras()
        self.runs = Runs()
        self._sessions = Sessions(config.websocket, metrics)
        self._cutting_off = False
        self._room = Room(store, clock, config)
        self.conversations = Conversations(store, clock, ids, self._room, config)
        self.committer = Committer(store, ids, metrics, self._room)
        self._sealer = sealer
        self.compaction = Compaction(config.compaction, sealer, metrics, tracing)
        self._preparation = Preparation(
            config,
            store=store,
            room=self._room,
            compaction=self.compaction,
            metrics=metrics,
            clock=clock,
            ids=ids,
            tools=tools,
            sealer=sealer,
        )
        self._admission = Admission(config.server.max_concurrent_requests, metrics)
        self._quotas = Quotas(config.limits, clock.monotonic())
        self.usage = UsageBook(store, clock, ids, metrics, config.storage)
        self._run_parts = self._build_run_parts(config, metrics, tracing)
        self._seats = _open_seats(config, metrics)
        self._adopt(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use another configuration of the same upstreams for every response that begins from now on.

        What is being made keeps the settings it has; its place and its seat count against the new limits.
        """
        self._adopt(config)
        self._admission.resize(config.server.max_concurrent_requests)
        self._quotas.reconfigure(config.limits, self._clock.monotonic())
        self._room.reconfigure(config)
        self._preparation.reconfigure(config)
        self._run_parts.coordination.reconfigure(config.multi_agent)
        self.conversations.reconfigure(config)
        self.usage.reconfigure(config.storage)
        self._run_parts.coalescer.reconfigure(
            seconds=config.engine.coalesce_seconds, streams=config.engine.coalesce_responses
        )
        for name, upstream in config.upstream_map().items():
            self._seats[name].resize(upstream.max_concurrent, upstream.max_concurrent_wait_seconds)

    def _adopt(self, config: GatewayConfig) -> None:
        self.compaction.reconfigure(config.compaction)
        self.routing = Routing(
            self._upstreams,
            self._seats,
            config.upstream_map(),
            config.responses,
            self.compaction.threshold,
            read_policy(config.multi_agent, can_seal=self._sealer is not None),
        )
        self._max_depth = config.responses.max_json_depth
        self._sessions.reconfigure(config.websocket)

    # ------------------------------------------------------------ creating

    def open_session(self) -> Session:
        """Return the memory of a new connection, within the bounds of the configuration in effect."""
        return self._sessions.open()

    def admit(self, principal: str) -> Place:
        """Hold a place for one response, from before it is prepared until its last byte is sent.

        Args:
            principal: who asks, and against whose limits it counts.

        Raises:
            Unavailable: draining, or at `[server] max_concurrent_requests`.
            RateLimitExceeded: more than `[limits]` allows.
        """
        place = self._admission.admit()
        return self._quotas.enter(place, principal, self._clock.monotonic()) if self._quotas.apply else place

    def hold(self, principal: str) -> Place:
        """Count a response that goes on beyond the request that was admitted for it, until the place is left."""
        return self._quotas.hold(self._admission.hold(), principal, self._clock.monotonic())

    def read(self, body: bytes, headers: RawHeaders = ()) -> tuple[CreateRequest, Route]:
        """Return the request a body holds, and the upstream its model belongs to.

        Args:
            body: of the request.
            headers: likewise, names in lower case.

        Raises:
            InvalidRequest: names the parameter at fault.
            NotFound: no upstream takes the model.
        """
        raw = read_object(body, self._max_depth)
        return self.read_fields(raw, agents_header="multi_agent" in raw and has_beta_header(headers))

    def read_fields(
        self, raw: dict[str, Any], *, on_websocket: bool = False, agents_header: bool = False
    ) -> tuple[CreateRequest, Route]:
        """Return the request its parameters make, and the upstream its model belongs to.

        Args:
            raw: the parameters by name.
            on_websocket: a WebSocket brought them.
            agents_header: with the beta header of trees of agents.

        Raises:
            InvalidRequest: as `read`.
            NotFound: as `read`.
        """
        model = raw.get("model")
        # A missing or malformed model is told by the check of the whole request, under any upstream's policy.
        route = self.routing.choose(model) if isinstance(model, str) and model else self.routing.default
        request = check_request(
            raw, route.policy, on_websocket=on_websocket, agents_header=agents_header, types=self._tools
        )
        self._extras.note(request)
        return request, route

    def prepare(
        self, caller: Caller, request: CreateRequest, route: Route, continuation: Continuation | None = None
    ) -> Coroutine[Any, Any, Plan]:
        """Resolve what a request refers to; nothing has been sent upstream or stored yet.

        Args:
            caller: who asks.
            request: the request.
            route: the upstream.
            continuation: the session of the caller's connection, if it has one.

        Raises:
            InvalidRequest: unknown parent or item, or tool outputs that do not match.
            InsufficientQuota: the response is to be stored, and the caller keeps as much as it may.
            ConversationNotFound: the request names a conversation that the caller does not have.
            ConversationLocked: another request is writing to it.
            StorageUnavailable: the request needs the database, which cannot be read or takes no writes.
        """
        if request.conversation_id is None:
            return self._preparation.prepare(caller, request, route, continuation)
        prepare = partial(self._preparation.prepare, caller, request, route, continuation)
        return self.conversations.hold_for(caller.principal, request.conversation_id, prepare)

    async def answer(self, plan: Plan) -> bytes:
        """Make a response and return it as one JSON body, committed.

        Raises:
            GatewayError: it failed; nothing was stored.
        """
        run = self._run(plan)
        try:
            return await run.answer()
        finally:
            self._conclude(plan)
            if plan.lineage.hold is not None:
                await plan.lineage.hold.release()

    async def stream(self, plan: Plan, channel: Channel) -> None:
        """Make a response as events; cancelling it aborts the upstream and publishes nothing.

        Raises:
            GatewayError: it failed before the client was told anything; later failures are told in the channel.
        """
        run, hold = self._run(plan), plan.lineage.hold
        try:
            await run.stream(channel if hold is None else HoldingChannel(channel, hold))
        finally:
            self._conclude(plan)
            if hold is not None:
                await hold.release()

    # ------------------------------------------------------------ what is stored

    async def retrieve(self, principal: str, response_id: str) -> bytes:
        """Return a stored response as JSON.

        Raises:
            ResponseNotFound: this principal has no such response.
            StorageUnavailable: the database does not answer.
        """
        return show_response(await self._archive.load(principal, response_id))

    async def input_items(self, principal: str, response_id: str, page: Page) -> bytes:
        """Return one page of a stored response's own input as JSON; what it continues from is not in it.

        Raises:
            ResponseNotFound: this principal has no such response.
            InvalidRequest: the page begins after an item that is not there.
            StorageUnavailable: the database does not answer.
        """
        return codec.encode(list_input_items(await self._archive.load(principal, response_id), page))

    async def delete(self, principal: str, response_id: str) -> bytes:
        """Hide a stored response from everybody and return the confirmation as JSON, once that is durable.

        Raises:
            ResponseNotFound: this principal has no such response.
            StorageUnavailable: the database does not answer.
        """
        await self._store.delete(Deletion(id=response_id, principal=principal, at=int(self._clock.now())))
        self._sessions.drop(response_id)
        return codec.encode(DeletedResponse(id=response_id))

    async def models(self) -> bytes:
        """Return the model list as JSON.

        Raises:
            UpstreamError: no upstream could be asked.
        """
        return codec.encode(ModelList(data=await self.routing.models()))

    async def model(self, model_id: str) -> bytes:
        """Return one model as JSON.

        Raises:
            NotFound: no upstream serves it.
            UpstreamError: no upstream could be asked.
        """
        for model in await self.routing.models():
            if model["id"] == model_id:
                return codec.encode(model)
        raise model_not_found(model_id)

    # ------------------------------------------------------------ ending

    @property
    def active(self) -> int:
        """Responses being made now."""
        return self._admission.active

    def begin_drain(self) -> None:
        """Refuse new responses from now on."""
        self._admission.begin_drain()

    async def drained(self, timeout: float) -> bool:
        """Wait for the last running response; tell whether it ended within `timeout` seconds."""
        return await self._admission.drained(timeout)

    def cut_off(self) -> int:
        """End every running response as failed, at once, and each that still begins; returns how many ran.

        Streams get `response.failed` and their normal end, other callers 503; the upstream calls are aborted. A
        response that is being committed is left to end by itself.
        """
        self._admission.begin_drain()
        self._cutting_off = True
        for run in self.runs.values():
            run.cut_off(shutting_down())
        return len(self.runs)

    def mint(self, kind: str) -> str:
        """Return a new id for an object of a kind."""
        return self._ids.mint(prefix_of(kind))

    # ------------------------------------------------------------ inside

    def _build_run_parts(self, config: GatewayConfig, metrics: Metrics, tracing: Tracing) -> RunParts:
        coalescer = Coalescer(
            lambda: self._admission.active,
            seconds=config.engine.coalesce_seconds,
            streams=config.engine.coalesce_responses,
            metrics=metrics,
        )
        coordination = Coordination(
            config.multi_agent,
            types=self._tools,
            compaction=self.compaction,
            coalescer=coalescer,
            metrics=metrics,
            tracing=tracing,
        )
        return RunParts(
            committer=self.committer,
            coalescer=coalescer,
            clock=self._clock,
            metrics=metrics,
            tracing=tracing,
            coordination=coordination,
        )

    def _run(self, plan: Plan) -> Run:
        run = Run(plan, self._run_parts, self.compaction.begin(plan))
        self.runs[plan.response_id] = run
        if plan.lineage.hold is not None:
            plan.lineage.hold.watch(run.cut_off)
        if self._cutting_off:
            run.cut_off(shutting_down())
        return run

    def _conclude(self, plan: Plan) -> None:
        self.runs.pop(plan.response_id).conclude()
        if plan.turn.usage is not None:
            self.usage.count(plan.caller.principal, plan.turn.response.model, plan.turn.usage)


def _open_seats(config: GatewayConfig, metrics: Metrics) -> dict[str, Seats]:
    """Return the seats of every upstream by its name, and show how many are taken."""
    opened = {
        name: Seats(name, upstream.max_concurrent, upstream.max_concurrent_wait_seconds)
        for name, upstream in config.upstream_map().items()
    }
    for name, seats in opened.items():
        metrics.watch_calls(name, seats)
    return opened
