"""What a request refers to is found and fitted together; nothing has been sent or stored yet."""

from gateway.config.schema import GatewayConfig
from gateway.engine.agents.trees import Trees, inherit_agents, list_decided, list_known
from gateway.engine.archive import Archive, decode_item
from gateway.engine.commit import Lineage
from gateway.engine.compaction import Compaction, nothing_to_compact
from gateway.engine.conversations import Hold
from gateway.engine.plan import Caller, Plan, RunSettings, choose_summary_mode, refers_to_items
from gateway.engine.room import Room
from gateway.engine.routing import Route
from gateway.engine.session import Checkpoint, Continuation
from gateway.engine.toolkits import find_tools
from gateway.ports import Clock, History, Ids, Sealer, Store, Tools
from gateway.protocol.agents.asked import refuse_beside_agents
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.turn import TreeTurn
from gateway.protocol.approvals import require_servers, settle_approvals
from gateway.protocol.history import call_ids, drop_incomplete_calls, is_plain, match_outputs
from gateway.protocol.hosted_history import Item, recall_hosted
from gateway.protocol.ids import prefix_of
from gateway.protocol.requests import CreateRequest, build_response, load_tools
from gateway.protocol.response import Response
from gateway.protocol.tools import list_loaded
from gateway.protocol.turn import Turn
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import TRANSPORT_WEBSOCKET


class Preparation:
    """Makes plans of requests.

    Args:
        config: bounds.
        store: durable responses.
        room: how much each principal may still store.
        compaction: windows of conversations.
        metrics: what is counted.
        clock: time of creation.
        ids: mints every id.
        tools: what the gateway runs itself; None for nothing.
        sealer: seals what agents write to each other; None where there are no keys.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        store: Store,
        room: Room,
        compaction: Compaction,
        metrics: Metrics,
        clock: Clock,
        ids: Ids,
        tools: Tools | None,
        sealer: Sealer | None,
    ) -> None:
        self._store = store
        self._archive = Archive(store)
        self._room = room
        self._compaction = compaction
        self._metrics = metrics
        self._clock = clock
        self._ids = ids
        self._tools = tools
        self._trees = Trees(config.multi_agent, sealer)
        self.reconfigure(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use another configuration for every request from now on."""
        self._responses = config.responses
        self._settings = RunSettings.read(config)
        self._trees.reconfigure(config.multi_agent)

    async def prepare(
        self,
        caller: Caller,
        request: CreateRequest,
        route: Route,
        continuation: Continuation | None,
        hold: Hold | None = None,
    ) -> Plan:
        """Return the plan of a request.

        Args:
            caller: who asks.
            request: the request.
            route: the upstream.
            continuation: the session of the caller's connection, if it has one.
            hold: the conversation that it goes on with, if it names one.

        Raises:
            GatewayError: as `Engine.prepare` tells.
        """
        lineage = await self._find_lineage(caller, request, continuation, hold)
        if request.agents is not None or lineage.tree is not None:
            return await self._prepare_tree(caller, request, route, lineage)
        history = [decode_item(item) for item in lineage.history]
        # Most requests are words alone, which are spared what can only concern other items.
        plain = is_plain(request.items) and is_plain(history) and not request.toolset.unmet
        new = request.items if plain else await self._archive.resolve_references(caller.principal, request.items)
        if hold is not None:
            history = hold.recall(drop_incomplete_calls(history), new)
        items = told = [*history, *new]
        if not plain:
            history = drop_incomplete_calls(history)
            request, items, told = self._match_calls(request, history, drop_incomplete_calls(new), route)
        window = None
        if not plain or request.threshold or request.compacts:
            window = self._compaction.find_window(caller.principal, request, items, len(history))
        turn = Turn(
            self._build_response(request),
            self._settings.limits,
            self._ids.mint,
            carriage=request.toolset.carriage,
            used_call_ids=set() if plain else call_ids(items),
            summary_mode=choose_summary_mode(request, self._responses),
        )
        return Plan(
            caller=caller,
            request=request,
            inputs=new,
            items=request.toolset.carriage.carry(told) if window is None else window.show(),
            turn=turn,
            lineage=lineage,
            route=route,
            settings=self._settings,
            open_tools=find_tools(self._tools, caller, request, turn, items, len(history)),
            window=window,
        )

    def _match_calls(
        self, request: CreateRequest, history: list[Item], new: list[Item], route: Route
    ) -> tuple[CreateRequest, list[Item], list[Item]]:
        """Check that outputs and approvals answer the calls before them.

        Args:
            request: the request.
            history: what came before.
            new: its own input.
            route: the upstream.

        Returns:
            The request with all tools that its effective input has loaded, that input, and what a model is told of it.
        """
        match_outputs(history, new, complete=not request.compacts)
        items = [*history, *new]
        request = load_tools(request, items, route.policy, types=self._tools)
        told = recall_hosted(items)
        if told is not items:
            decisions = settle_approvals(items, len(history), complete=not request.compacts)
            require_servers(decisions, request.toolset.hosted)
        return request, items, told

    async def _find_lineage(
        self, caller: Caller, request: CreateRequest, continuation: Continuation | None, hold: Hold | None
    ) -> Lineage:
        """Return what a request continues, having made sure that the response can be stored if it is to be."""
        parent_id = request.fields.previous_response_id
        kept = continuation.find_parent(parent_id) if continuation and parent_id is not None else None
        stored = request.store
        if stored or (parent_id is not None and kept is None) or refers_to_items(request):
            await self._store.verify()
        if (stored or hold is not None) and self._room.is_limited:
            await self._room.check(caller.principal)
        found: Checkpoint | Hold | History | None = kept or hold
        if found is None and parent_id is not None:
            found = await self._archive.load_history(caller.principal, parent_id)
        return Lineage(
            history=() if found is None else found.items,
            parent_id=parent_id if kept is None or kept.stored else None,
            continuation=continuation,
            hold=hold,
            tree=None if found is None or isinstance(found, Hold) else found.tree,
        )

    async def _prepare_tree(self, caller: Caller, request: CreateRequest, route: Route, lineage: Lineage) -> Plan:
        """Return the plan of a response that a tree of agents makes."""
        tree = self._trees.find(request, lineage, route.policy.agents)
        if request.agents is None:
            request = inherit_agents(request, tree)
        tree.is_live = caller.transport == TRANSPORT_WEBSOCKET
        new = await self._archive.resolve_references(caller.principal, request.items)
        self._compaction.notes.read(caller.principal, new, first_new=0)
        tree.take_input(drop_incomplete_calls(new), complete=not request.compacts)
        if request.compacts and not tree.agents[ROOT].history:
            raise nothing_to_compact()
        known = list_known(tree)
        refuse_beside_agents(request.fields, list_loaded(known))
        request = load_tools(request, known, route.policy, types=self._tools)
        items, first_new = list_decided(known, new)
        require_servers(settle_approvals(items, first_new), request.toolset.hosted)
        turn = TreeTurn(
            self._build_response(request),
            self._settings.limits,
            self._ids.mint,
            carriage=request.toolset.carriage,
            used_call_ids=tree.call_ids,
            summary_mode=choose_summary_mode(request, self._responses),
            seal=self._trees.seal_for(caller.principal),
        )
        return Plan(
            caller=caller,
            request=request,
            inputs=new,
            items=[],
            turn=turn,
            lineage=lineage,
            route=route,
            settings=self._settings,
            open_tools=find_tools(self._tools, caller, request, turn, items, first_new),
            tree=tree,
        )

    def _build_response(self, request: CreateRequest) -> Response:
        """Return the response in progress, and count the tools that it has to do without."""
        if request.toolset.unsupported:
            self._metrics.unsupported_tools_total.inc(len(request.toolset.unsupported))
        return build_response(
            request, response_id=self._ids.mint(prefix_of("response")), created_at=int(self._clock.now())
        )
