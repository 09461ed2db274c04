"""What the messages of one session mean together: which response each belongs to, and what is still open.

The same reading serves a driver while it talks, the checks of a recording, and its replay. No I/O, no clock.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.cassette.shapes import is_event

Event = dict[str, Any]

TERMINALS: Final = frozenset({"response.completed", "response.failed", "response.incomplete"})
OUTCOMES: Final = frozenset({"response.inject.created", "response.inject.failed"})
STEERING: Final = frozenset({"response.steer.accepted", "response.steer.pending", "response.steer.failed"})
# Items of a response that the client has to answer, and the type of the answer.
CLIENT_CALLS: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
ROOT: Final = "/root"


class Call(Struct):
    """A call that the client has to answer.

    Attributes:
        call_id: of the call.
        item: as `response.output_item.done` told it.
        agent: who called; the root where nobody is named.
        is_answered: whether an output was accepted or sent with a create.
    """

    call_id: str
    item: Event
    agent: str
    is_answered: bool = False


class Control(Struct):
    """An inject or a steer that was sent.

    Attributes:
        sent: as it was sent.
        outcome: the event that decided it; None while it waits.
        is_late: whether the response had ended when the outcome came.
    """

    sent: Event
    outcome: Event | None = None
    is_late: bool = False

    @property
    def call_ids(self) -> list[str]:
        """The calls that it answers."""
        return [str(item.get("call_id")) for item in list_items(self.sent)]


class Run(Struct):
    """One create and what came of it.

    Attributes:
        lane: the `stream_id`, if the create had one.
        create: as it was sent; None for a response that followed by itself.
        id: of the response, once it is known.
        events: of this response, in order; events without a number too.
        error: the error that answered the create instead of a response.
    """

    lane: str | None = None
    create: Event | None = None
    id: str | None = None
    events: list[Event] = msgspec.field(default_factory=list)
    terminal: Event | None = None
    error: Event | None = None
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    injects: list[Control] = msgspec.field(default_factory=list)
    steers: list[Control] = msgspec.field(default_factory=list)
    parent: "Run | None" = None

    @property
    def is_over(self) -> bool:
        """Whether a terminal event or an error has come."""
        return self.terminal is not None or self.error is not None

    @property
    def is_tree(self) -> bool:
        """Whether several agents may work at it."""
        asked = (self.create or {}).get("multi_agent")
        if isinstance(asked, dict):
            return asked.get("enabled") is True
        return self.parent is not None and self.parent.is_tree

    @property
    def response(self) -> Event:
        """The response of the terminal event; empty before."""
        return (self.terminal or {}).get("response") or {}

    @property
    def open_calls(self) -> list[Call]:
        """The calls that nobody has answered."""
        return [call for call in self.calls.values() if not call.is_answered]

    @property
    def waiting(self) -> list[Control]:
        """The injects without an outcome."""
        return [inject for inject in self.injects if inject.outcome is None]

    def items(self) -> Iterator[tuple[int, Event]]:
        """Yield index and item of each `response.output_item.done`."""
        for event in self.events:
            if event.get("type") == "response.output_item.done":
                yield event["output_index"], event["item"]


class Dialogue:
    """The messages of one session, or of one HTTP exchange.

    Args:
        known: responses of earlier sessions, by id.

    Attributes:
        runs: one for each create, and for each response that followed by itself.
        strays: events that belong to no response of this session.
        malformed: what is no event at all.
        lost: injects and steers for responses that this session does not know.
    """

    def __init__(self, known: Mapping[str, Run] | None = None) -> None:
        self.runs: list[Run] = []
        self.strays: list[Event] = []
        self.malformed: list[Event] = []
        self.lost: list[Control] = []
        self.known: dict[str, Run] = dict(known or {})
        self._lanes: dict[str | None, Run] = {}

    @property
    def is_settled(self) -> bool:
        """Whether every response has ended, and every inject and steer has its outcome."""
        if not all(run.is_over and not run.waiting for run in self.runs):
            return False
        steers = all(self._is_resolved(run, steer) for run in self.runs for steer in run.steers)
        return steers and all(lost.outcome for lost in self.lost)

    def _is_resolved(self, run: Run, steer: Control) -> bool:
        """Return whether a steer was refused, waits for the client, or has become part of another response."""
        if steer.outcome is None or steer.outcome.get("type") != "response.steer.accepted":
            return steer.outcome is not None
        id = steer.outcome["steer"]["id"]
        pending = (event for event in run.events if event.get("type") == "response.steer.pending")
        if any(event["steer"]["id"] == id for event in pending):
            return True
        return any(other.parent is run and other.id is not None for other in self.runs)

    def send(self, event: Event) -> Run | None:
        """Take in what the client sends; return the response it is for, if there is one."""
        kind = str(event.get("type"))
        if kind == "response.create":
            return self._create(event)
        if kind not in {"response.inject", "response.steer"}:
            return None
        target = event.get("response_id" if kind == "response.inject" else "previous_response_id")
        run = next((run for run in self.runs if run.id == target and target), None)
        control = Control(event)
        if run is None:
            self.lost.append(control)
        else:
            (run.injects if kind == "response.inject" else run.steers).append(control)
        return run

    def _create(self, event: Event) -> Run:
        run = Run(event.get("stream_id"), event, parent=self.known.get(str(event.get("previous_response_id"))))
        answered = {str(item.get("call_id")) for item in list_items(event) if "output" in item}
        source = run.parent
        while source is not None:
            for call in source.calls.values():
                call.is_answered = call.is_answered or call.call_id in answered
            source = source.parent
        self.runs.append(run)
        return run

    def receive(self, event: Event) -> Run | None:
        """Take in what the server sends; return the response it belongs to, if there is one."""
        if not is_event(event):
            self.malformed.append(event)
            return None
        kind = str(event["type"])
        if kind == "error":
            return self._fail(event)
        run = self._find(kind, event)
        if run is None:
            self.strays.append(event)
            if kind in OUTCOMES | STEERING:
                _decide(self.lost, event)
            return None
        run.events.append(event)
        if kind == "response.created":
            run.id = event["response"]["id"]
            self.known[str(run.id)] = self._lanes[run.lane] = run
        elif kind in TERMINALS:
            run.terminal = event
        elif kind in OUTCOMES:
            self._take_outcome(run, kind, event)
        elif kind in STEERING:
            _take_steering(run, kind, event)
        elif kind == "response.output_item.done":
            _note_call(run, event)
        return run

    def _find(self, kind: str, event: Event) -> Run | None:
        lane = event.get("stream_id")
        if kind == "response.created":
            return self._find_created(lane, event.get("response") or {})
        if kind in OUTCOMES:
            return self._by_id(event.get("response_id"))
        if kind in STEERING:
            return self._by_id((event.get("steer") or {}).get("previous_response_id"))
        response = event.get("response")
        if isinstance(response, dict) and "id" in response:
            return self._by_id(response["id"])
        return self._lanes.get(lane)

    def _by_id(self, id: Any) -> Run | None:
        return next((run for run in self.runs if run.id == id and id), None)

    def _find_created(self, lane: str | None, response: Event) -> Run:
        for run in self.runs:
            if run.id is None and run.error is None and run.lane == lane and run.create is not None:
                if run.create.get("previous_response_id") == response.get("previous_response_id"):
                    return run
                if not self._is_steered(response.get("previous_response_id")):
                    return run
        successor = Run(lane, parent=self.known.get(str(response.get("previous_response_id"))))
        self.runs.append(successor)
        return successor

    def _is_steered(self, id: Any) -> bool:
        run = self._by_id(id)
        return run is not None and bool(run.steers)

    def _take_outcome(self, run: Run, kind: str, event: Event) -> None:
        inject = _decide(run.injects, event)
        if inject is None:
            self.strays.append(event)
            return
        inject.is_late = run.terminal is not None
        if kind == "response.inject.created":
            for call_id in inject.call_ids:
                if call_id in run.calls:
                    run.calls[call_id].is_answered = True

    def _fail(self, event: Event) -> Run | None:
        """Find what an error answers: a create that waits, an inject or a steer, or nothing in particular."""
        lane = event.get("stream_id")
        for run in self.runs:
            if run.id is None and run.error is None and run.lane == lane:
                run.error = event
                return run
        if _decide(self.lost, event):
            return None
        for run in self.runs:
            if _decide(run.injects, event) or _decide(run.steers, event):
                return run
        self.strays.append(event)
        return None


def list_items(event: Event) -> list[Event]:
    """Return the items of a message's input; a text has none."""
    items = event.get("input")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def note_output(run: Run) -> None:
    """Find the calls of a response that came as one object."""
    for item in run.response.get("output") or ():
        _note_call(run, {"item": item})


def read_agent(event: Event) -> str:
    """Return who an event is of; the root where nobody is named."""
    agent = event.get("agent") or (event.get("item") or {}).get("agent") or {}
    return str(agent.get("agent_name") or ROOT)


def _note_call(run: Run, event: Event) -> None:
    item = event.get("item") or {}
    call_id = item.get("call_id")
    if item.get("type") in CLIENT_CALLS and isinstance(call_id, str):
        run.calls.setdefault(call_id, Call(call_id, item, read_agent(event)))


def _take_steering(run: Run, kind: str, event: Event) -> None:
    if kind == "response.steer.pending":
        return
    decided = _decide(run.steers, event)
    if decided is None and kind == "response.steer.failed":
        # Accepted before, and then without a successor.
        id = (event.get("steer") or {}).get("id")
        for steer in run.steers:
            if ((steer.outcome or {}).get("steer") or {}).get("id") == id:
                steer.outcome = event


def _decide(controls: list[Control], event: Event) -> Control | None:
    """Give an outcome to the first that waits: outcomes come in the order of what was sent."""
    for control in controls:
        if control.outcome is None:
            control.outcome = event
            return control
    return None
