"""What agents do, from one boundary to the next: inference, actions and tools."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from gateway.engine.agents.activity import Activity
from gateway.engine.agents.approved import find_approved
from gateway.engine.agents.asking import Asking
from gateway.engine.agents.desk import Desk
from gateway.engine.agents.inference import AgentInference
from gateway.engine.agents.summaries import Draft, Summaries
from gateway.engine.agents.workers import Worker, Workers
from gateway.engine.failures import log_failure
from gateway.engine.hosting import Hosting, cancel_all
from gateway.engine.summary import Summary
from gateway.protocol.agents.action_slots import ActionSlot
from gateway.protocol.agents.agent import Agent, Call, Errored, Phase
from gateway.protocol.agents.mail import Item
from gateway.protocol.agents.outcomes import Outcome
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.round_history import (
    find_answer,
    list_calls,
    recall_agent_round,
    recall_gateway_output,
)
from gateway.protocol.agents.tree_round import TreeRound
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded
from gateway.protocol.hosted_slots import HostedSlot

_NOT_OFFERED = "The tool is not offered any more."
_ERROR = '{"error"'
_MAX_MESSAGES = "max_messages"


class Activations:
    """Takes agents from one boundary to the next. All but what their tasks wait for happens in steps of the owner.

    Args:
        desk: what the owner has at hand.
        asking: what inferences ask for.
        summaries: look after the windows.
        hosting: runs the gateway's tools; None where there are none.
        most: inferences that there may be.

    Attributes:
        workers: what goes on.
    """

    def __init__(self, desk: Desk, asking: Asking, summaries: Summaries, hosting: Hosting | None, *, most: int) -> None:
        self._desk = desk
        self._asking = asking
        self._summaries = summaries
        self._hosting = hosting
        self._one_by_one = desk.plan.request.fields.parallel_tool_calls is False
        self._activity = Activity(desk.plan, desk.metrics, desk.tracing)
        self._rounds = 0
        self._root_rounds = 0
        self._most = most
        self._open: dict[str, TreeRound] = {}
        self.workers = Workers(desk.inbox, self._activity)

    async def stop(self) -> None:
        """End all that goes on, and wait until it has ended."""
        try:
            await self.workers.stop()
        finally:
            self._activity.end()
            self._desk.metrics.agent_rounds.observe(self._rounds)

    def abandon(self) -> None:
        """Leave the rounds that are open as they are: the response has failed."""
        telling, turn = self._desk.telling, self._desk.turn
        for round_ in self._open.values():
            telling.keep_owed(turn.drop_open(round_))
        telling.round = turn.open_round()

    def tells_of(self, call_ids: Iterable[str | None]) -> bool:
        """Whether any of these calls has been made in an inference that still goes on."""
        wanted = set(call_ids)
        slots = (slot for round_ in self.workers.inferring for slot in round_.slots)
        return any(isinstance(slot, CallSlot) and slot.call_id in wanted for slot in slots)

    # ------------------------------------------------------------ the boundary

    def start(self, agent: Agent) -> None:
        """Take a runnable agent over its boundary.

        Raises:
            GatewayError: the root may not be asked again.
        """
        desk = self._desk
        self._activity.begin(agent)
        ends_early = agent.path == ROOT and self._ends_early()
        if desk.tree.is_exhausted(agent) and not ends_early:
            most = desk.tree.bounds.max_rounds_per_activation
            self._give_up(agent, _too_many_rounds(most, "An agent was", "multi_agent.max_rounds_per_turn"))
            return
        desk.tell(desk.turn.tell_messages(desk.tree.enter(agent)))
        if ends_early:
            desk.tree.end_round(agent, [], [])
            desk.tree.interrupt(agent)
            self._activity.note(agent)
        elif approved := find_approved(agent.history):
            self._run_approved(agent, approved)
        elif self._summaries.is_due(agent, self._asking):
            self.compact(agent)
        else:
            self._infer(agent)

    def _ends_early(self) -> bool:
        """Whether the root's last inference was cut short, or was the last that it may have."""
        turn = self._desk.turn
        if not turn.is_cut_short and self._root_rounds >= self._desk.plan.settings.max_rounds:
            turn.cut_short(_MAX_MESSAGES)
        return turn.is_cut_short

    # ------------------------------------------------------------ inference

    def _infer(self, agent: Agent) -> None:
        desk = self._desk
        if self._rounds >= self._most:
            raise _too_many_rounds(self._most, "The agents were", "multi_agent.max_rounds_per_response")
        self._rounds += 1
        self._root_rounds += agent.path == ROOT
        desk.tree.begin_inference(agent)
        round_ = self._open[agent.path] = desk.turn.open_round(agent.path)
        inference = AgentInference(
            self._asking.plan_for(agent), desk.telling, round_, desk.inbox,
            coalescer=desk.coalescer, metrics=desk.metrics, tracing=desk.tracing,
        )  # fmt: skip
        job = inference.run(self._summaries.show(agent), self._asking.offer_for(agent))
        self.workers.begin(Worker(agent, inference), job, partial(self._end_inference, agent, inference))

    def _end_inference(self, agent: Agent, inference: AgentInference, _: None, error: Exception | None) -> None:
        desk, tree, round_ = self._desk, self._desk.tree, inference.round
        if error is not None and (not inference.is_cut or _ends_response(agent, error)):
            self._give_up(agent, error, round_)
            return
        if inference.is_cut:
            self._break_off(agent, round_)
            tree.interrupt(agent)
            return
        desk.telling.accepted = True
        self._summaries.note_usage(agent, round_.usage)
        hosted = [slot for slot in round_.slots if isinstance(slot, HostedSlot) and slot.awaits]
        calls = list_calls(round_.slots)
        tree.end_round(agent, recall_agent_round(round_.slots), calls)
        self._act_in_turn(agent, round_)
        if hosted:
            job = self._run_tools(agent, round_, hosted)
            self.workers.begin(Worker(agent), job, partial(self._end_tools, agent))
        else:
            self._settle(agent, None if calls else find_answer(round_.slots))

    def _act_in_turn(self, agent: Agent, round_: TreeRound) -> None:
        """Carry out the actions of a round up to the first call of a tool that still runs.

        The client hears of a round in its order: behind such a call it would hear of an action too late, after what
        came of it.
        """
        for slot in round_.slots:
            if isinstance(slot, HostedSlot) and slot.awaits:
                return
            if isinstance(slot, ActionSlot) and slot.awaits:
                self._act(agent, round_, slot)

    def _act(self, agent: Agent, round_: TreeRound, slot: ActionSlot) -> None:
        desk = self._desk
        outcome = desk.tree.act(agent, slot.call_id, slot.action, slot.arguments, desk.now)
        desk.tell(desk.turn.conclude_action(round_, slot, outcome.output, outcome.delivered))
        if outcome.spawned is not None:
            desk.metrics.agents_spawned_total.inc()
        desk.metrics.agent_actions_total.labels(slot.action, "refused" if _is_error(outcome) else "done").inc()
        if outcome.cut is not None:
            self.workers.cut(outcome.cut)

    def _settle(self, agent: Agent, text: str | None) -> None:
        del self._open[agent.path]
        self._desk.tree.settle(agent, text)
        if agent.path == ROOT and isinstance(agent.status, Errored):
            raise GatewayError(f"The model wrote no answer: {agent.status.text}")
        self._activity.note(agent)

    # ------------------------------------------------------------ the gateway's tools

    def _run_approved(self, agent: Agent, requests: Sequence[Item]) -> None:
        """Run what the client has approved, in a round without an inference."""
        desk, hosting = self._desk, self._hosting
        found = [(request, None if hosting is None else hosting.find_approved(request)) for request in requests]
        calls = [Call(call_id=request["id"], kind="gateway", name=request["name"]) for request, _ in found]
        desk.tree.end_round(agent, [], calls)
        round_ = self._open[agent.path] = desk.turn.open_round(agent.path)
        runnable = [(tool, request["arguments"], request["id"]) for request, tool in found if tool is not None]
        slots, told = desk.turn.open_approved(round_, runnable)
        desk.tell(told)
        for request in [request for request, tool in found if tool is None]:
            output = {"type": "function_call_output", "call_id": request["id"], "output": _NOT_OFFERED}
            desk.tree.answer_gateway_call(agent, [output])
        job = self._run_tools(agent, round_, slots)
        self.workers.begin(Worker(agent), job, partial(self._end_tools, agent))

    async def _run_tools(self, agent: Agent, round_: TreeRound, slots: Sequence[HostedSlot]) -> None:
        jobs = [partial(self._run_tool, agent, round_, slot) for slot in slots]
        if self._one_by_one:
            for job in jobs:
                await job()
            return
        tasks = [asyncio.ensure_future(job()) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_all(tasks)

    async def _run_tool(self, agent: Agent, round_: TreeRound, slot: HostedSlot) -> None:
        assert self._hosting is not None
        result = await self._hosting.run_call(slot)

        def take() -> None:
            self._desk.tell(self._desk.turn.conclude_call(round_, slot, result))
            self._desk.tree.answer_gateway_call(agent, recall_gateway_output(slot))
            self._act_in_turn(agent, round_)

        await self._desk.inbox.ask(take)

    def _end_tools(self, agent: Agent, _: None, error: Exception | None) -> None:
        if error is not None:
            self._desk.fail(error)
        else:
            self._settle(agent, None)

    # ------------------------------------------------------------ summaries

    def compact(self, agent: Agent, *, only: bool = False) -> None:
        """Have an agent's window summarized, and let the agent go on then, unless nothing but that is wanted."""
        draft = self._summaries.begin(agent)
        job = self._summaries.write(agent, draft, self._asking)
        self.workers.begin(Worker(agent), job, partial(self._end_summary, agent, draft, only))

    def _end_summary(
        self, agent: Agent, draft: Draft, only: bool, summary: Summary | None, error: Exception | None
    ) -> None:
        failure = error
        if summary is not None:
            failure = self._summaries.take(agent, draft, summary, smaller=not only)
        if failure is not None and (only or not isinstance(failure, GatewayError)):
            self._desk.fail(failure)
        elif isinstance(failure, GatewayError):
            failed = self._summaries.fail(agent, draft, failure)
            if failed is not None and agent.phase is Phase.INFERRING:
                self._give_up(agent, failed)
                return
        # One that was interrupted meanwhile has perhaps begun something else.
        if not (only or self._desk.has_failed) and agent.phase is Phase.INFERRING:
            self._infer(agent)

    # ------------------------------------------------------------ failures

    def _break_off(self, agent: Agent, round_: TreeRound) -> None:
        """End a round that stops in the middle: what the client knows to be done stays, and its calls with it."""
        desk = self._desk
        del self._open[agent.path]
        desk.tell(desk.turn.drop_open(round_))
        desk.tree.end_round(agent, recall_agent_round(round_.slots), list_calls(round_.slots))

    def _give_up(self, agent: Agent, error: Exception, round_: TreeRound | None = None) -> None:
        """Let an agent fail, or with it the response."""
        if _ends_response(agent, error):
            self._desk.fail(error)
            return
        assert isinstance(error, GatewayError)
        if round_ is not None:
            self._break_off(agent, round_)
        log_failure(error, f"agent {agent.path}")
        self._desk.metrics.note_rejection(error.bound)
        self._desk.tree.fail(agent, error.message)
        self._activity.note(agent)


def _ends_response(agent: Agent, error: Exception) -> bool:
    return agent.path == ROOT or not isinstance(error, GatewayError) or isinstance(error, ResourceLimitExceeded)


def _is_error(outcome: Outcome) -> bool:
    """Whether an action came to nothing by what its model wrote, or by a bound."""
    return outcome.output is not None and outcome.output.startswith(_ERROR)


def _too_many_rounds(most: int, who: str, bound: str) -> GatewayError:
    section, key = bound.split(".")
    return GatewayError(f"{who} not done after {most} inferences ([{section}] {key}).", bound=bound)
