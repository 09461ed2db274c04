"""Who is in a tree, what each one has, and how its work begins and ends."""

from collections.abc import Iterable, Sequence

from gateway.protocol import codec
from gateway.protocol.agents.agent import Agent, Completed, Errored, Interrupted, LateCall, Phase, Running, Status
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.history import OUTPUT, build_stand_in, read_call
from gateway.protocol.agents.mail import Item, Mail, MailKind
from gateway.protocol.agents.outcomes import ResolvedWait
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.refusals import Refusal, show_refusal

FAILED = "[agent failed] "


class Roster:
    """The agents of a tree and the books about them.

    Attributes:
        bounds: bounds of this response.
        agents: by path, in the order they were made.
        size: bytes of all histories and of all mail that waits.
        call_ids: ids of all calls in all histories.
        ended_waits: waits that ended with their agent's work, until they are told.
        answered: client calls that got an output in this response.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.agents: dict[str, Agent] = {}
        self.size = 0
        self.call_ids: set[str] = set()
        self.ended_waits: list[ResolvedWait] = []
        self.answered: set[str] = set()

    @property
    def root(self) -> Agent:
        """The root."""
        return self.agents[ROOT]

    @property
    def active(self) -> int:
        """How many agents besides the root are busy."""
        return sum(not agent.is_idle for agent in self.agents.values()) - (not self.root.is_idle)

    def add(self, path: str, parent: str | None) -> Agent:
        """Make an agent."""
        agent = Agent(number=len(self.agents), path=path, parent=parent)
        self.agents[path] = agent
        return agent

    def adopt(self, agent: Agent) -> None:
        """Take an agent that was stored, with all it has."""
        self.agents[agent.path] = agent
        self.size += sum(agent.kept.sizes) + sum(measure(mail.to_item()) for mail in agent.mailbox)
        self._note_calls(agent.history)

    # ------------------------------------------------------------ histories

    def append(self, agent: Agent, items: Iterable[Item]) -> None:
        """Put items behind an agent's history."""
        added = list(items)
        sizes = [measure(item) for item in added]
        agent.history += added
        agent.kept.sizes += sizes
        self.size += sum(sizes)
        self._note_calls(added)

    def replace(self, agent: Agent, start: int, end: int, items: Sequence[Item]) -> None:
        """Put items in the place of others in an agent's history, which is to be stored as a whole then."""
        kept = agent.kept
        sizes = [measure(item) for item in items]
        self.size += sum(sizes) - sum(kept.sizes[start:end])
        agent.history[start:end] = items
        kept.sizes[start:end] = sizes
        kept.stored_items = None

    def record_output(self, agent: Agent, call_id: str, action: str, text: str) -> None:
        """Put the output of an action into its caller's history."""
        del agent.calls[call_id]
        self.append(agent, [{"type": OUTPUT, "call_id": call_id, "action": action, "output": text}])

    def stand_in(self, agent: Agent, call_ids: Iterable[str]) -> None:
        """Put stand-ins for outputs into a history: what its model sees of calls that it will not wait for."""
        self.append(agent, [build_stand_in(call_id) for call_id in call_ids])

    # ------------------------------------------------------------ mail

    def post(self, mail: Mail) -> None:
        """Put mail into its recipient's mailbox."""
        self.agents[mail.recipient].mailbox.append(mail)
        self.size += measure(mail.to_item())

    def deliver(self, agent: Agent, *, with_task: bool = False) -> list[Mail]:
        """Put an agent's mail into its history, in order; of new tasks the first, if it is wanted, else none."""
        delivered: list[Mail] = []
        left: list[Mail] = []
        for mail in agent.mailbox:
            is_task = mail.kind is MailKind.NEW_TASK
            (left if is_task and not with_task else delivered).append(mail)
            with_task = with_task and not is_task
        agent.mailbox = left
        for mail in delivered:
            self.size -= measure(mail.to_item())
            self.hand_over(mail)
        return delivered

    def hand_over(self, mail: Mail) -> None:
        """Put a message into its recipient's history at once."""
        agent = self.agents[mail.recipient]
        if mail.kind is MailKind.NEW_TASK:
            agent.last_task = mail.payload
        self.append(agent, [mail.to_item()])

    # ------------------------------------------------------------ work

    def start(self, agent: Agent) -> None:
        """Let an agent begin to work, with a task if one waits."""
        agent.move(Phase.RUNNABLE)
        agent.status = Running()
        agent.rounds = agent.empty_rounds = 0
        agent.kept.starts_task = agent.has_task

    def resume(self, agent: Agent) -> None:
        """Let an agent that waited or was blocked go on as far as it can."""
        if agent.phase in (Phase.WAITING, Phase.BLOCKED):
            self.go_on(agent)

    def go_on(self, agent: Agent) -> None:
        """Let an agent that has called go on as far as its calls have outputs."""
        open_phase = Phase.BLOCKED if agent.calls else Phase.RUNNABLE
        agent.move(Phase.WAITING if agent.wait else open_phase)

    def complete(self, agent: Agent, text: str) -> None:
        """End an agent's work with its answer, of which its parent has mail."""
        agent.answered = True
        self._report(agent, text)
        self.end(agent, Completed(text))

    def fail(self, agent: Agent, reason: str) -> None:
        """End an agent's work with an error, of which its parent has mail."""
        self._report(agent, FAILED + reason)
        self.end(agent, Errored(reason))

    def stop(self, agent: Agent) -> None:
        """End an agent's work because another one wants so. Nobody has mail of that."""
        self.end(agent, Interrupted())

    def end(self, agent: Agent, status: Status) -> None:
        """End an agent's work: its wait has an output, its client calls stay answerable, a task that waits begins."""
        if agent.wait is not None:
            text = show_refusal(Refusal("interrupted_wait"))
            self.ended_waits.append(ResolvedWait(agent.path, agent.wait.call_id, text))
            self.record_output(agent, agent.wait.call_id, "wait_agent", text)
            agent.wait = None
        agent.late.update({call.call_id: LateCall(call) for call in agent.client_calls})
        made = {read_call(item) for item in agent.history[agent.kept.round_start :]}
        self.stand_in(agent, [call_id for call_id in agent.calls if call_id in made and call_id not in agent.late])
        agent.calls.clear()
        agent.interrupting = False
        agent.status = status
        agent.move(Phase.IDLE)
        if agent.has_task:
            self.start(agent)

    def _note_calls(self, items: Sequence[Item]) -> None:
        self.call_ids.update(call_id for item in items if (call_id := read_call(item)) is not None)

    def _report(self, agent: Agent, text: str) -> None:
        if agent.parent is not None:
            self.post(Mail(kind=MailKind.FINAL_ANSWER, author=agent.path, recipient=agent.parent, payload=text))


def measure(item: Item) -> int:
    """Return how many bytes an item takes."""
    return len(codec.encode(item))
