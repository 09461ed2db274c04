"""Points of a session that a replay waits for, named so that they are found again in another run of it."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.cassette.dialogue import OUTCOMES, TERMINALS, Dialogue, Event, Run, read_agent
from gateway.cassette.transcript import Message, Session


class Milestones:
    """Watches a session and names what is reached in it.

    Names hold no ids: a response is the first, second, ... of its lane, a call is known by its arguments.

    Args:
        dialogue: of the session; it takes in each message first.

    Attributes:
        reached: the names so far.
        ids: the id of each response and call, by a name of its own.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._counts: dict[str, int] = {}
        self.reached: set[str] = set()
        self.ids: dict[str, str] = {}

    def note(self, event: Event, run: Run | None) -> None:
        """Take in an event of the server and the response it belongs to."""
        kind = str(event.get("type"))
        if kind == "error":
            self._add("an error")
        elif run is None:
            self._add(f"{kind} for an unknown response")
        elif kind == "response.created":
            name = self._name(run)
            self.reached.add(f"{name} is created")
            self.ids[name] = str(run.id)
        elif kind in TERMINALS:
            self.reached.add(f"{self._name(run)} ends")
        elif kind in OUTCOMES or kind.startswith("response.steer."):
            # Whether it was accepted is for the comparison; a replay goes on either way.
            what = "inject" if kind in OUTCOMES else "steer pending" if kind.endswith("pending") else "steer"
            self._add(f"{self._name(run)}: outcome of {what}")
        elif kind == "response.output_text.delta":
            self.reached.add(f"{self._name(run)}: {read_agent(event)} writes")
        elif kind == "response.output_item.done":
            self._note_call(run, event.get("item") or {})

    def _note_call(self, run: Run, item: Event) -> None:
        call_id = item.get("call_id")
        if call_id not in run.calls or run.calls[call_id].item is not item:
            return
        name = self._add(f"{self._name(run)}: call of {item.get('name')} {_canonicalise(item)}")
        self.ids[name] = str(call_id)

    def _name(self, run: Run) -> str:
        lane = [other for other in self._dialogue.runs if other.lane == run.lane]
        number = next(at for at, other in enumerate(lane, 1) if other is run)
        return f"response {number}" + (f" of lane {run.lane}" if run.lane is not None else "")

    def _add(self, name: str) -> str:
        self._counts[name] = count = self._counts.get(name, 0) + 1
        name = f"{name} ({count})"
        self.reached.add(name)
        return name


class Step(Struct, frozen=True):
    """One message of the client, and what has to be reached before it is sent."""

    message: Message
    needs: frozenset[str]


class Plan(Struct, frozen=True):
    """How a session is replayed.

    Attributes:
        steps: the client's messages in order.
        ends: what was reached in the end.
        ids: as of `Milestones`.
    """

    steps: list[Step]
    ends: frozenset[str]
    ids: Mapping[str, str]


def plan_session(session: Session, known: Mapping[str, Run]) -> Plan:
    """Return when each of a session's messages was sent, by what was reached before."""
    dialogue = Dialogue(known)
    milestones = Milestones(dialogue)
    steps = []
    for message in session.messages:
        if message.direction == "c2s":
            steps.append(Step(message, frozenset(milestones.reached)))
            if message.event is not None:
                dialogue.send(message.event)
        elif message.event is not None:
            milestones.note(message.event, dialogue.receive(message.event))
    return Plan(steps, frozenset(milestones.reached), milestones.ids)


def replace_ids(value: Any, ids: Mapping[str, str]) -> Any:
    """Return a JSON value with each string that is an id of the recording replaced by that of the replay."""
    if isinstance(value, dict):
        return {name: replace_ids(item, ids) for name, item in value.items()}
    if isinstance(value, list):
        return [replace_ids(item, ids) for item in value]
    return ids.get(value, value) if isinstance(value, str) else value


def _canonicalise(item: Event) -> str:
    """Return a call's arguments in one form, however they were written."""
    written = str(item.get("arguments") or item.get("input") or "")
    try:
        return msgspec.json.encode(msgspec.json.decode(written), order="sorted").decode()
    except (msgspec.DecodeError, RecursionError):
        return written
