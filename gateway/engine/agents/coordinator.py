"""The owner of a response that a tree of agents makes: the one task that changes the tree and the turn."""

import asyncio

from msgspec import Struct, structs

from gateway.engine.agents.activations import Activations
from gateway.engine.agents.asking import Asking
from gateway.engine.agents.controls import Controls, Item
from gateway.engine.agents.desk import Desk
from gateway.engine.agents.summaries import Summaries
from gateway.engine.agents.trees import list_known
from gateway.engine.hosting import Hosting
from gateway.ports import HostedTool
from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.agents.asked import refuse_beside_agents
from gateway.protocol.agents.history import read_output
from gateway.protocol.agents.outcomes import Rejection
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.round_history import recall_agent_round
from gateway.protocol.errors import InvalidRequest, ResourceLimitExceeded
from gateway.protocol.events import ControlError, InjectCreated, InjectFailed
from gateway.protocol.inputs import read_input
from gateway.protocol.ledger import charge
from gateway.protocol.requests import load_tools
from gateway.protocol.tools import list_loaded

_WAIT = "wait_agent"
_TOO_LARGE = Rejection("invalid_input", "The outputs are too large for this response.")


class TreeSettings(Struct, frozen=True, kw_only=True):
    """Bounds of responses of trees of agents, besides those of the tree itself.

    Attributes:
        deadline_seconds: longest life of a run.
        max_rounds: most inferences of all agents.
        grace_seconds: how long a live run that waits for nothing but its client's tools stays open for their outputs.
    """

    deadline_seconds: float
    max_rounds: int
    grace_seconds: float


class Coordinator:
    """Makes the response of one tree of agents.

    Agents work at once, in tasks of their own; whatever changes the tree or is told to the client happens here, step
    by step, in the order in which it was asked for.

    Args:
        desk: the response.
        settings: bounds.
        summaries: look after the windows of agents.
    """

    def __init__(self, desk: Desk, settings: TreeSettings, summaries: Summaries) -> None:
        self._desk = desk
        self._settings = settings
        self._summaries = summaries
        self._controls = Controls(desk.inbox.wake)
        self._grace_ends: float | None = None
        self._hosted: list[HostedTool]
        self._asking: Asking

    def inject(self, items: list[Item]) -> asyncio.Future[bool]:
        """Take in outputs that the client sent; tells whether their fate was told in the response's own stream.

        If not, the response has ended without a look at them.
        """
        return self._controls.offer(items)

    def end(self) -> None:
        """Answer whatever has not been decided about: the response has ended."""
        self._controls.end()

    async def run(self) -> None:
        """Make the response up to its end.

        Raises:
            GatewayError: it failed; nothing goes on any more.
        """
        plan = self._desk.plan
        kit = None if plan.open_tools is None else plan.open_tools()
        try:
            hosting = None if kit is None else Hosting(plan, kit, self._desk.telling, self._desk.tracing)
            hosted = [] if hosting is None else await self._discover(hosting)
            activations = Activations(
                self._desk, self._offer(hosted), self._summaries, hosting, most=self._settings.max_rounds
            )
            try:
                await self._work(activations)
            except BaseException:
                activations.abandon()
                raise
            finally:
                self._controls.close()
                await activations.stop()
        finally:
            if kit is not None:
                await kit.close()

    async def _discover(self, hosting: Hosting) -> list[HostedTool]:
        """Return the gateway's tools; what had to be asked for is known to the root from now on."""
        hosted = await hosting.discover()
        listed = recall_agent_round(self._desk.telling.round.slots)
        self._desk.tree.remember(self._desk.tree.agents[ROOT], listed)
        return hosted

    def _offer(self, hosted: list[HostedTool]) -> Asking:
        """Have the engine's calls of tools and actions taken as such."""
        desk = self._desk
        self._hosted = hosted
        self._asking = Asking(desk.plan, desk.tree.bounds, hosted)
        desk.turn.host_actions(ACTIONS)
        desk.turn.host(hosted, None)
        return self._asking

    # ------------------------------------------------------------ the owner's loop

    async def _work(self, activations: Activations) -> None:
        desk = self._desk
        if desk.plan.request.compacts:
            activations.compact(desk.tree.agents[ROOT], only=True)
            while activations.workers:
                await desk.inbox.wait(None)
                desk.inbox.take_steps()
                desk.check()
        else:
            await self._converse(activations)
            self._controls.close()
            desk.tell(desk.turn.tell_messages(desk.tree.flush_mail()))
        self._check_size()

    async def _converse(self, activations: Activations) -> None:
        """Have agents work until nothing goes on, and nothing is left that could."""
        desk, tree = self._desk, self._desk.tree
        while True:
            desk.inbox.take_steps()
            desk.check()
            self._decide(activations)
            self._advance(activations)
            self._check_size()
            await desk.telling.send()
            desk.inbox.reply()
            self._controls.reply()
            if desk.inbox or self._is_asked(activations):
                continue
            if activations.workers or not tree.is_quiescent:
                await desk.inbox.wait(tree.next_deadline())
            elif not tree.revive_root():
                until = self._hold_open()
                if until is None:
                    return
                await desk.inbox.wait(until)

    def _advance(self, activations: Activations) -> None:
        """End the waits that are over, and have every agent go on that can."""
        desk, tree = self._desk, self._desk.tree
        while True:
            for wait in tree.resolve_waits(desk.now):
                desk.tell(desk.turn.tell_action_output(wait.agent, wait.call_id, _WAIT, wait.output))
            runnable = tree.runnable()
            if not runnable:
                return
            for agent in runnable:
                activations.start(agent)
            desk.check()

    def _hold_open(self) -> float | None:
        """Return until when a response at rest waits for outputs of its client; None to wait no longer."""
        tree, now = self._desk.tree, self._desk.now
        if not (tree.is_live and tree.has_pending_calls):
            return None
        if self._grace_ends is None:
            self._grace_ends = now + self._settings.grace_seconds
        return self._grace_ends if now < self._grace_ends else None

    def _check_size(self) -> None:
        tree, limit = self._desk.tree, self._desk.tree.bounds.max_tree_bytes
        if tree.size > limit:
            message = f"What the agents know and wrote exceeds [multi_agent] max_tree_bytes ({limit} bytes)."
            raise ResourceLimitExceeded("max_tree_bytes", limit, message)

    # ------------------------------------------------------------ what the client sends

    def _is_asked(self, activations: Activations) -> bool:
        """Whether outputs were injected that can be decided about.

        A call that an inference has told of is known to the tree only when the inference has ended.
        """
        items = self._controls.next
        return items is not None and not activations.tells_of(map(read_output, items))

    def _decide(self, activations: Activations) -> None:
        while self._is_asked(activations):
            items = self._controls.next
            assert items is not None
            rejection = self._take_outputs(items)
            self._tell_fate(items, rejection)
            self._controls.decide()

    def _take_outputs(self, items: list[Item]) -> Rejection | None:
        """Give agents the outputs they wait for, or return why none of these was taken."""
        desk = self._desk
        rejection = desk.tree.check_outputs(items, desk.plan.response_id)
        if rejection is not None:
            return rejection
        policy = desk.plan.route.policy
        try:
            outputs = read_input(items, max_items=policy.max_input_items, remote_images=policy.remote_images)
            size = charge(outputs)
            if not desk.turn.ledger.fits(size) or desk.tree.size + size > desk.tree.bounds.max_tree_bytes:
                return _TOO_LARGE
            self._load_tools(outputs)
        except InvalidRequest as error:
            return Rejection("invalid_input", error.message)
        desk.turn.ledger.grow(self, size)
        desk.tree.take_outputs(outputs)
        self._grace_ends = None
        return None

    def _load_tools(self, outputs: list[Item]) -> None:
        """Offer the tools that outputs bring to all agents, as the next request would.

        Raises:
            InvalidRequest: they are too many, or malformed, or have the names of actions.
        """
        desk, loaded = self._desk, list_loaded(outputs)
        if not loaded:
            return
        plan = desk.plan
        refuse_beside_agents(plan.request.fields, loaded)
        request = load_tools(plan.request, [*list_known(desk.tree), *outputs], plan.route.policy, types=desk.types)
        desk.plan = structs.replace(plan, request=request)
        self._asking.adopt(desk.plan)
        self._summaries.adopt(desk.plan)
        desk.turn.carry_by(request.toolset.carriage, self._hosted)

    def _tell_fate(self, items: list[Item], rejection: Rejection | None) -> None:
        desk, response_id = self._desk, self._desk.plan.response_id
        desk.metrics.controls_total.labels("inject", "accepted" if rejection is None else rejection.code).inc()
        if rejection is None:
            desk.tell(desk.turn.tell(InjectCreated(response_id=response_id)))
            return
        error = ControlError(code=rejection.code, message=rejection.message)
        try:
            desk.tell(desk.turn.tell(InjectFailed(response_id=response_id, input=items, error=error)))
        except ResourceLimitExceeded:
            # What cannot be sent back whole is no reason to end the response.
            desk.tell(desk.turn.tell(InjectFailed(response_id=response_id, input=[], error=error)))
