"""One agent of a tree: what it is doing, what it knows, what it waits for."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

from gateway.protocol.agents.mail import Item, Mail, MailKind


class Phase(StrEnum):
    """What an agent is doing at the moment."""

    RUNNABLE = "runnable"
    """It may begin its next inference."""
    INFERRING = "inferring"
    """Its model is writing."""
    ACTING = "acting"
    """Its model has written; calls of that round are being carried out."""
    COMPACTING = "compacting"
    """Its history is being summarized."""
    WAITING = "waiting"
    """It is in a `wait_agent`; client calls of the same round may be open as well."""
    BLOCKED = "blocked"
    """Client calls of its last round have no output yet."""
    PARKED = "parked"
    """It goes on in the next response: all it could wait for are client calls of others."""
    IDLE = "idle"
    """It has nothing to do."""


_SUMMARIZED = frozenset({Phase.RUNNABLE, Phase.INFERRING, Phase.BLOCKED, Phase.PARKED, Phase.IDLE})
"""What an agent does when its history is summarized, and afterwards again."""

MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.RUNNABLE: frozenset({Phase.INFERRING, Phase.COMPACTING, Phase.PARKED, Phase.IDLE}),
    Phase.INFERRING: frozenset({Phase.ACTING, Phase.COMPACTING, Phase.IDLE}),
    Phase.ACTING: frozenset({Phase.RUNNABLE, Phase.WAITING, Phase.BLOCKED, Phase.IDLE}),
    Phase.COMPACTING: _SUMMARIZED,
    Phase.WAITING: frozenset({Phase.RUNNABLE, Phase.BLOCKED, Phase.IDLE}),
    Phase.BLOCKED: frozenset({Phase.RUNNABLE, Phase.COMPACTING, Phase.IDLE}),
    Phase.PARKED: frozenset({Phase.RUNNABLE, Phase.COMPACTING, Phase.IDLE}),
    Phase.IDLE: frozenset({Phase.RUNNABLE, Phase.COMPACTING}),
}
"""From which phase an agent may go to which."""


class Completed(Struct, frozen=True, tag="completed", tag_field="kind"):
    """The agent has answered; `text` is None for a root that was never asked."""

    text: str | None


class Errored(Struct, frozen=True, tag="errored", tag_field="kind"):
    """The agent could not go on; `text` says why in a few words."""

    text: str


class Running(Struct, frozen=True, tag="running", tag_field="kind"):
    """The agent is busy: in any phase but idle."""


class Interrupted(Struct, frozen=True, tag="interrupted", tag_field="kind"):
    """Another agent stopped it; it keeps what it knows."""


Status = Running | Interrupted | Completed | Errored


class Call(Struct, frozen=True, kw_only=True):
    """A call that an inference made.

    Attributes:
        call_id: our id of it. A request for an approval has its item's id here.
        kind: who carries it out: the tree, the client, or the gateway with a tool of its own.
        type: type of the call's item.
        name: name of the tool, for what a model is told of the call later on; the type if empty.
    """

    call_id: str
    kind: Literal["action", "client", "gateway"]
    type: str = "function_call"
    name: str = ""


class Wait(Struct, frozen=True):
    """A `wait_agent` that goes on.

    Attributes:
        call_id: the call.
        deadline: when it ends at the latest, on the clock of `now` in seconds.
    """

    call_id: str
    deadline: float


class LateCall(Struct, frozen=True):
    """A client call of a round that was interrupted.

    Attributes:
        call: the call.
        shown: the model has inferred since, so it has seen a stand-in for the output.
    """

    call: Call
    shown: bool = False


class Kept(Struct):
    """The books of one agent.

    Attributes:
        sizes: bytes of the history's items, one for each.
        round_start: how long the history was before its last round.
        had_calls: its last round made calls.
        has_waited: its last round called `wait_agent`.
        starts_task: its next boundary delivers a new task that waits.
        resumes_as: what it did before its summary began.
        stored_items: how many items of the history are stored; None if these are no longer as they were stored.
        stored_state: what is stored of everything else.
    """

    sizes: list[int] = field(default_factory=list)
    round_start: int = 0
    had_calls: bool = False
    has_waited: bool = False
    starts_task: bool = False
    resumes_as: Phase = Phase.RUNNABLE
    stored_items: int | None = None
    stored_state: bytes = b""


class Agent(Struct, kw_only=True):
    """One agent. Only the tree changes it.

    Attributes:
        number: how many agents were there before it.
        path: its name in the tree.
        parent: path of the agent that spawned it; None for the root.
        status: what `list_agents` shows.
        phase: what it is doing.
        history: its items in tree form, oldest first.
        mailbox: what was sent to it and is not yet in its history, oldest first.
        calls: calls of its last round without an output, by id.
        late: client calls without an output from a round that was interrupted, by id; the values tell whether the
            model has been shown a stand-in for the output. They may still be answered.
        wait: the wait it is in.
        last_task: payload of the newest NEW_TASK it was given.
        rounds: inferences since it was given work.
        empty_rounds: inferences in a row without text and calls.
        failures: summaries in a row that failed.
        interrupting: it is to stop as soon as its inference, its calls or its summary end.
        answered: it has completed in this response.
        kept: what only the tree's own modules use.
    """

    number: int
    path: str
    parent: str | None
    status: Status = Completed(None)
    phase: Phase = Phase.IDLE
    history: list[Item] = field(default_factory=list)
    mailbox: list[Mail] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    late: dict[str, LateCall] = field(default_factory=dict)
    wait: Wait | None = None
    last_task: str | None = None
    rounds: int = 0
    empty_rounds: int = 0
    failures: int = 0
    interrupting: bool = False
    answered: bool = False
    kept: Kept = field(default_factory=Kept)

    def move(self, to: Phase) -> None:
        """Enter a phase; it may be the one it is in.

        Raises:
            RuntimeError: the table has no such move; always a fault of the gateway, never of a model or a client.
        """
        if to is not self.phase and to not in MOVES[self.phase]:
            raise RuntimeError(f"{self.path} cannot go from {self.phase.value} to {to.value}")
        self.phase = to

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do; everything else counts as busy."""
        return self.phase is Phase.IDLE

    @property
    def has_mail(self) -> bool:
        """Whether anything waits that the next boundary delivers: all mail but new tasks."""
        return any(mail.kind is not MailKind.NEW_TASK for mail in self.mailbox)

    @property
    def has_task(self) -> bool:
        """Whether a new task waits."""
        return any(mail.kind is MailKind.NEW_TASK for mail in self.mailbox)

    @property
    def client_calls(self) -> list[Call]:
        """Client calls it cannot go on without."""
        return [call for call in self.calls.values() if call.kind == "client"]

    def weigh(self, items: Iterable[Item]) -> int:
        """Return how many bytes items of its history take, which were measured when they came."""
        sizes = dict(zip(map(id, self.history), self.kept.sizes, strict=True))
        return sum(sizes[id(item)] for item in items)


def show_status(status: Status) -> Any:
    """Return a status as `list_agents` and `interrupt_agent` write it."""
    match status:
        case Completed(text):
            return {"completed": text}
        case Errored(text):
            return {"errored": text}
        case Interrupted():
            return "interrupted"
        case _:
            return "running"
