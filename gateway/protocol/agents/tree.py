"""A tree of agents: the one object that a run of several agents changes."""

from collections.abc import Mapping, Sequence

from gateway.protocol.agents.agent import Agent, Call
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.mail import Item, Mail
from gateway.protocol.agents.outcomes import Outcome, Rejection, ResolvedWait
from gateway.protocol.agents.stored import StoredAgent


class Tree:
    """Agents, root first, and everything that happens between them.

    One response has one tree, and one task changes it. The order of calls for one round of an agent is: `enter`,
    inference, `end_round`, `act` or `answer_gateway_call` for each of its calls, `settle`. After each of these other
    agents may have changed, so whoever drives the tree then looks at `resolve_waits` and `runnable`. Nothing here
    reads a clock: `now` is in seconds on any clock that only goes forward within one response.

    Attributes:
        bounds: bounds of this response.
        agents: by path, in the order they were made, root first.
        is_live: outputs may come while the response runs (WebSocket): agents that wait for them may be answered.
            Otherwise nobody can answer them, and who waits for such agents is parked until the next response.
        call_ids: ids of all calls in all histories. A turn may use it as its set of used ids and add to it.
        size: bytes of all histories and of all mail that waits, kept up to date; above `bounds.max_tree_bytes` the
            response is to end.
    """

    bounds: Bounds
    agents: Mapping[str, Agent]
    is_live: bool
    call_ids: set[str]
    size: int

    def __init__(self, bounds: Bounds) -> None:
        """Make a tree of a root alone, which is idle."""
        raise NotImplementedError

    @classmethod
    def adopt(cls, history: Sequence[Item], bounds: Bounds) -> "Tree":
        """Return a tree whose root has the history of a conversation without agents; its pending calls go on waiting.

        Args:
            history: all effective items in stored form, outputs included; calls that were cut short are left out.
            bounds: bounds of this response.
        """
        raise NotImplementedError

    @classmethod
    def restore(cls, rows: Sequence[StoredAgent], bounds: Bounds) -> "Tree":
        """Return the tree that a chain of responses left.

        Args:
            rows: `snapshot` of each response of the chain, oldest response first.
            bounds: bounds of this response.

        Raises:
            ValueError: the rows are none of a tree, or of a version that is not known here.
        """
        raise NotImplementedError

    def snapshot(self) -> list[StoredAgent]:
        """Return what changed since the tree was restored, one row for each agent that changed, in order.

        Changes nothing. Without a restored tree (`adopt`, a new one) everything is a change. Every agent is to be at
        rest (`is_quiescent`, or after `halt`).
        """
        raise NotImplementedError

    @property
    def active(self) -> int:
        """How many agents besides the root are busy: what `bounds.max_concurrent` bounds."""
        raise NotImplementedError

    # ------------------------------------------------------------ input of a request

    def take_input(self, items: Sequence[Item]) -> None:
        """Take the input of a request: outputs go to the agents that wait for them, all else is a new user turn.

        Parked agents go on. The root does if there is anything besides outputs, or nothing at all.

        Raises:
            InvalidRequest: `invalid_tool_output` (param `input[i].call_id`) or `missing_tool_output` (param `input`);
                nothing has changed then.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ rounds

    def runnable(self) -> list[Agent]:
        """Return the agents whose next inference may begin, oldest first."""
        raise NotImplementedError

    def is_exhausted(self, agent: Agent) -> bool:
        """Tell whether a runnable agent has used up its rounds; whoever drives it ends the response or the agent."""
        raise NotImplementedError

    def enter(self, agent: Agent) -> list[Mail]:
        """Pass a runnable agent's boundary: deliver its mail into its history. It is inferring then.

        Returns:
            The delivered mail in order, to be told as `agent_message` items. A new task that waits is delivered only
            at the first boundary after the work before it was done.
        """
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError

    def answer_gateway_call(self, agent: Agent, items: Sequence[Item]) -> None:
        """Take call and output of one of the gateway's own tools, or the output alone where the call is there already.

        The calls of these ids have their outputs then.
        """
        raise NotImplementedError

    def settle(self, agent: Agent, text: str | None) -> None:
        """End an agent's round after all its actions and gateway calls.

        With calls it is runnable once all have outputs, else it waits or is blocked. Without calls the text is its
        answer: it is done, and its parent has mail. Without text it is asked again, at most twice, then it has failed.
        A new task that waits begins at once. If it was interrupted meanwhile it is idle.

        Args:
            agent: the acting agent.
            text: text of the round's last message that is not empty, or None.
        """
        raise NotImplementedError

    def fail(self, agent: Agent, reason: str) -> None:
        """End an agent's work with an error of which its parent has mail.

        Where it is the root the response is to fail.
        """
        raise NotImplementedError

    def interrupt(self, agent: Agent) -> None:
        """End an agent's work after its inference was cut (`Outcome.cut`). It is idle, or begins a task that waits.

        Client calls given to `end_round` stay answerable, all its other calls are forgotten.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ waits

    def resolve_waits(self, now: float) -> list[ResolvedWait]:
        """End the waits that are over, and return them in order; their outputs are in the histories.

        A wait is over when there is mail, when its time is up, when its agent was interrupted, or when nobody is left
        who could send anything.
        """
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """Return when the first wait ends by itself, if any goes on."""
        raise NotImplementedError

    # ------------------------------------------------------------ the end

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing goes on or can go on without the client; look at `resolve_waits` before."""
        raise NotImplementedError

    @property
    def has_pending_calls(self) -> bool:
        """Whether any agent cannot go on without a client's output."""
        raise NotImplementedError

    def revive_root(self) -> bool:
        """Let a root that is idle, has mail and has not answered in this response go on; tell whether it does."""
        raise NotImplementedError

    def flush_mail(self) -> list[Mail]:
        """Deliver all mail but new tasks, and return it in order, to be told. Nobody begins to work."""
        raise NotImplementedError

    def halt(self) -> list[ResolvedWait]:
        """Interrupt all agents that are not idle, blocked or parked, for a response that ends before they are done.

        Returns:
            Waits that ended so.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ injected outputs

    def check_outputs(self, items: Sequence[Item], response_id: str) -> Rejection | None:
        """Tell why outputs that a client injects cannot be taken, or None. Changes nothing."""
        raise NotImplementedError

    def take_outputs(self, items: Sequence[Item]) -> list[str]:
        """Take outputs that `check_outputs` has passed.

        Returns:
            Paths of the agents that got outputs, in order; those that have all they need are runnable.
        """
        raise NotImplementedError

    # ------------------------------------------------------------ compaction

    def begin_compaction(self, agent: Agent) -> int:
        """Let an agent's history be summarized, at a boundary or while it is blocked. It is compacting then.

        Returns:
            How many items from the beginning may be replaced: all before the first call that may still get an output.
        """
        raise NotImplementedError

    def end_compaction(self, agent: Agent, items: Sequence[Item] | None, covered: int) -> None:
        """Put other items in the place of those covered, or none if that failed. The agent goes on as before.

        An agent that was interrupted meanwhile is idle; look at it before its inference begins.

        Args:
            agent: the compacting agent.
            items: what stays of the user's messages, then the compaction item; None if the summary failed.
            covered: what `begin_compaction` returned.
        """
        raise NotImplementedError
