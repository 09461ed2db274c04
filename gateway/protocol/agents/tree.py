"""A tree of agents: the one object that a run of several agents changes."""

from collections.abc import Mapping, Sequence

from gateway.protocol.agents.actions import read_arguments
from gateway.protocol.agents.acts import Act, perform
from gateway.protocol.agents.agent import Agent, Call, LateCall, Phase, Running
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.history import find_call, find_covered, is_cut_short, match_calls, read_call, read_output
from gateway.protocol.agents.mail import Item, Mail
from gateway.protocol.agents.outcomes import Outcome, Rejection, ResolvedWait
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.refusals import Refusal, show_refusal
from gateway.protocol.agents.roster import Roster
from gateway.protocol.agents.routing import check_outputs, sort_input, take_outputs
from gateway.protocol.agents.snapshots import read_agents, write_agents
from gateway.protocol.agents.stored import StoredAgent
from gateway.protocol.agents.waits import resolve_waits

MAX_EMPTY_ROUNDS = 2
NO_ANSWER = "it wrote neither an answer nor a call"

_AT_REST = frozenset({Phase.IDLE, Phase.BLOCKED, Phase.PARKED})


class Tree:
    """Agents, root first, and everything that happens between them.

    One response has one tree, and one task changes it. The order of calls for one round of an agent is: `enter`,
    `begin_inference`, `end_round`, `act` or `answer_gateway_call` for each of its calls, `settle`. After each of these
    other agents may have changed, so whoever drives the tree then looks at `resolve_waits` and `runnable`. Nothing
    here reads a clock: `now` is in seconds on any clock that only goes forward within one response.

    Attributes:
        is_live: outputs may come while the response runs (WebSocket): agents that wait for them may be answered.
            Otherwise nobody can answer them, and who waits for such agents is parked until the next response.
    """

    def __init__(self, bounds: Bounds) -> None:
        """Make a tree of a root alone, which is idle."""
        self.is_live = False
        self._roster = Roster(bounds)
        self._roster.add(ROOT, None)

    @classmethod
    def adopt(cls, history: Sequence[Item], bounds: Bounds) -> "Tree":
        """Return a tree whose root has the history of a conversation without agents; its pending calls go on waiting.

        Args:
            history: all effective items in stored form, outputs included; calls that were cut short are left out.
            bounds: bounds of this response.
        """
        tree = cls(bounds)
        root = tree._roster.root
        tree._roster.append(root, (item for item in history if not is_cut_short(item)))
        for position, outputs in match_calls(root.history).items():
            item = root.history[position]
            call = _describe_call(Call(call_id=str(read_call(item)), kind="client"), item)
            if not outputs and call.type == "mcp_approval_request":
                root.late[call.call_id] = LateCall(call)
            elif not outputs:
                root.calls[call.call_id] = call
        if root.calls:
            root.phase, root.status = Phase.BLOCKED, Running()
        return tree

    @classmethod
    def restore(cls, rows: Sequence[StoredAgent], bounds: Bounds, *, inherits: bool = False) -> "Tree":
        """Return the tree that a chain of responses left.

        Args:
            rows: `snapshot` of each response of the chain, oldest response first.
            bounds: bounds of this response.
            inherits: as many agents may be busy as in the response before, whatever `max_concurrent` says.

        Raises:
            ValueError: the rows are none of a tree, or of a version that is not known here.
        """
        tree = cls(bounds)
        tree._roster = read_agents(rows, bounds, inherits=inherits)
        return tree

    def snapshot(self) -> list[StoredAgent]:
        """Return what changed since the tree was restored, one row for each agent that changed, in order.

        Changes nothing. Without a restored tree (`adopt`, a new one) everything is a change. Every agent is to be at
        rest (`is_quiescent`).
        """
        return write_agents(self._roster.agents, self.bounds.max_concurrent)

    @property
    def bounds(self) -> Bounds:
        """Bounds of this response."""
        return self._roster.bounds

    @property
    def agents(self) -> Mapping[str, Agent]:
        """All agents by path, in the order they were made, root first."""
        return self._roster.agents

    @property
    def call_ids(self) -> set[str]:
        """Ids of all calls in all histories; a turn may use it as its set of used ids and add to it."""
        return self._roster.call_ids

    @property
    def size(self) -> int:
        """Bytes of all histories and of all mail that waits; above `bounds.max_tree_bytes` the response is to end."""
        return self._roster.size

    @property
    def active(self) -> int:
        """How many agents besides the root are busy: what `bounds.max_concurrent` bounds."""
        return self._roster.active

    # ------------------------------------------------------------ input of a request

    def take_input(self, items: Sequence[Item], *, complete: bool = True) -> None:
        """Take the input of a request: outputs go to the agents that wait for them, all else is a new user turn.

        The root goes on if there is anything besides outputs, or nothing at all. Other parked agents, and the root with
        outputs alone, go on when what they wait for has come (`resolve_waits`).

        Args:
            items: the input, normalised.
            complete: False where only the root's history is to be summarized: calls may go on waiting, and nobody
                begins to work who has no new input.

        Raises:
            InvalidRequest: `invalid_tool_output` (param `input[i].call_id`) or `missing_tool_output` (param `input`);
                nothing has changed then.
        """
        roster = self._roster
        given = sort_input(roster, items, complete=complete)
        take_outputs(roster, list(given.outputs.values()))
        root = roster.root
        if given.rest or (complete and not items):
            roster.append(root, given.rest)
            if root.is_idle:
                roster.start(root)
            elif root.phase is Phase.PARKED and complete:
                root.move(Phase.RUNNABLE)
            root.rounds = root.empty_rounds = 0

    # ------------------------------------------------------------ rounds

    def runnable(self) -> list[Agent]:
        """Return the agents whose next inference may begin, oldest first."""
        return [agent for agent in self._roster.agents.values() if agent.phase is Phase.RUNNABLE]

    def is_exhausted(self, agent: Agent) -> bool:
        """Tell whether a runnable agent has used up its rounds; whoever drives it ends the response or the agent."""
        return agent.rounds >= self.bounds.max_rounds_per_activation

    def enter(self, agent: Agent) -> list[Mail]:
        """Pass a runnable agent's boundary: deliver its mail into its history. It is inferring then.

        Its history may be summarized yet, before `begin_inference`.

        Returns:
            The delivered mail in order, to be told as `agent_message` items. A new task that waits is delivered only
            at the first boundary after the work before it was done.
        """
        agent.move(Phase.INFERRING)
        agent.rounds += 1
        with_task, agent.kept.starts_task = agent.kept.starts_task, False
        return self._roster.deliver(agent, with_task=with_task)

    def begin_inference(self, agent: Agent) -> None:
        """Note that the agent's model is asked now: from here on it knows that interrupted calls have no outputs."""
        self._roster.stand_in(agent, [call_id for call_id, late in agent.late.items() if not late.shown])
        agent.late = {call_id: LateCall(late.call, shown=True) for call_id, late in agent.late.items()}

    def end_round(self, agent: Agent, items: Sequence[Item], calls: Sequence[Call]) -> None:
        """Take what an inference brought. The agent is acting then, until `settle`.

        An inference that was cut is ended the same way, with the items and calls that were told, and then
        `interrupt`.

        Args:
            agent: the agent, inferring.
            items: the items of the round in tree form, calls of actions and of clients among them.
            calls: all calls of the round; those of the gateway's own tools have their items from
                `answer_gateway_call`. A request for an approval is a client call with the item's id and type.
        """
        kept = agent.kept
        kept.round_start = len(agent.history)
        kept.had_calls, kept.has_waited = bool(calls), False
        made = {read_call(item): item for item in items}
        agent.calls = {call.call_id: _describe_call(call, made.get(call.call_id)) for call in calls}
        self._roster.append(agent, items)
        agent.move(Phase.ACTING)

    def act(self, agent: Agent, call_id: str, name: str, arguments: str, now: float) -> Outcome:
        """Carry out a call of one of the six actions, at once and in the order of the calls.

        Never raises for what a model wrote: its mistakes are outputs `{"error": ...}`.

        Args:
            agent: the acting agent.
            call_id: the call, one of those given to `end_round`.
            name: the action.
            arguments: the model's own string.
            now: the time, from which a wait is measured.
        """
        try:
            outcome = perform(self._roster, name, Act(agent, call_id, read_arguments(name, arguments), now))
        except Refusal as refusal:
            outcome = Outcome(output=show_refusal(refusal))
        if outcome.output is not None:
            self._roster.record_output(agent, call_id, name, outcome.output)
        return outcome

    def remember(self, agent: Agent, items: Sequence[Item]) -> None:
        """Add to an agent's history what is no part of a round; what it is doing stays the same."""
        self._roster.append(agent, items)

    def answer_gateway_call(self, agent: Agent, items: Sequence[Item]) -> None:
        """Take call and output of one of the gateway's own tools, or the output alone where the call is there already.

        The calls of these ids have their outputs then.
        """
        for item in items:
            call_id = read_call(item)
            if call_id is not None and (at := find_call(agent.history, call_id)) is not None:
                self._roster.replace(agent, at, at + 1, [item])
            else:
                self._roster.append(agent, [item])
            agent.calls.pop(read_output(item) or "", None)

    def settle(self, agent: Agent, text: str | None) -> None:
        """End an agent's round after all its actions and gateway calls.

        With calls it is runnable once all have outputs, else it waits or is blocked. Without calls the text is its
        answer: it is done, and its parent has mail. Without text it is asked again, at most twice, then it has failed.
        A new task that waits begins at once. If it was interrupted meanwhile it is idle.

        Args:
            agent: the acting agent.
            text: text of the round's last message that is not empty, or None.
        """
        if agent.interrupting:
            self._roster.stop(agent)
        elif agent.kept.had_calls:
            agent.empty_rounds = 0
            self._roster.go_on(agent)
        elif text:
            self._roster.complete(agent, text)
        elif agent.empty_rounds < MAX_EMPTY_ROUNDS:
            agent.empty_rounds += 1
            agent.move(Phase.RUNNABLE)
        else:
            self._roster.fail(agent, NO_ANSWER)

    def fail(self, agent: Agent, reason: str) -> None:
        """End an agent's work with an error of which its parent has mail.

        Where it is the root the response is to fail.
        """
        self._roster.fail(agent, reason)

    def interrupt(self, agent: Agent) -> None:
        """End an agent's work after its inference was cut (`Outcome.cut`). It is idle, or begins a task that waits.

        Client calls given to `end_round` stay answerable, all its other calls are forgotten.
        """
        self._roster.stop(agent)

    # ------------------------------------------------------------ waits

    def resolve_waits(self, now: float) -> list[ResolvedWait]:
        """End the waits that are over, and return them in order; their outputs are in the histories.

        A wait is over when there is mail, when its time is up, when its agent was interrupted, or when nobody is left
        who could send anything.
        """
        return resolve_waits(self._roster, now, is_live=self.is_live)

    def next_deadline(self) -> float | None:
        """Return when the first wait ends by itself, if any goes on."""
        return min((agent.wait.deadline for agent in self._roster.agents.values() if agent.wait), default=None)

    # ------------------------------------------------------------ the end

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing goes on or can go on without the client; look at `resolve_waits` before."""
        return all(agent.phase in _AT_REST for agent in self._roster.agents.values())

    @property
    def has_pending_calls(self) -> bool:
        """Whether any agent cannot go on without a client's output."""
        return any(agent.client_calls for agent in self._roster.agents.values())

    def revive_root(self) -> bool:
        """Let a root that is idle, has mail and has not answered in this response go on; tell whether it does."""
        root = self._roster.root
        is_due = self.bounds.finish_unanswered_root and root.is_idle and root.has_mail and not root.answered
        if is_due:
            self._roster.start(root)
        return is_due

    def flush_mail(self) -> list[Mail]:
        """Deliver all mail but new tasks, and return it in order, to be told. Nobody begins to work."""
        return [mail for agent in self._roster.agents.values() for mail in self._roster.deliver(agent)]

    # ------------------------------------------------------------ injected outputs

    def check_outputs(self, items: Sequence[Item], response_id: str) -> Rejection | None:
        """Tell why outputs that a client injects cannot be taken, or None. Changes nothing."""
        return check_outputs(self._roster, items, response_id)

    def take_outputs(self, items: Sequence[Item]) -> list[str]:
        """Take outputs that `check_outputs` has passed.

        Returns:
            Paths of the agents that got outputs, in order; those that have all they need are runnable.
        """
        return take_outputs(self._roster, items)

    # ------------------------------------------------------------ compaction

    def begin_compaction(self, agent: Agent) -> int:
        """Let an agent's history be summarized, at a boundary or while it is blocked. It is compacting then.

        Returns:
            How many items from the beginning may be replaced: all before the first call that may still get an output.
        """
        agent.kept.resumes_as = agent.phase
        agent.move(Phase.COMPACTING)
        return find_covered(agent.history)

    def end_compaction(self, agent: Agent, items: Sequence[Item] | None, covered: int) -> None:
        """Put other items in the place of those covered, or none if that failed. The agent goes on as before.

        An agent that was interrupted meanwhile is idle; look at it before its inference begins.

        Args:
            agent: the compacting agent.
            items: what stays of the user's messages, then the compaction item; None if the summary failed.
            covered: what `begin_compaction` returned.
        """
        if items is None:
            agent.failures += 1
        else:
            agent.failures = 0
            self._roster.replace(agent, 0, covered, items)
        agent.move(agent.kept.resumes_as)
        if agent.interrupting:
            self._roster.stop(agent)
        else:
            self._roster.resume(agent)


def _describe_call(call: Call, item: Item | None) -> Call:
    """Return a call with what its item says of it."""
    if item is None:
        return call
    kind = str(item["type"])
    return Call(call_id=call.call_id, kind=call.kind, type=kind, name=str(item.get("name") or kind))
