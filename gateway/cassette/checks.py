"""What must hold for every recording of a Responses API: the assertions A1 to A11."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from gateway.cassette.dialogue import OUTCOMES, STEERING, TERMINALS, Control, Event, Run
from gateway.cassette.shapes import is_event
from gateway.cassette.transcript import Session

_ACTIONS: Final = frozenset(
    {"spawn_agent", "interrupt_agent", "list_agents", "send_message", "followup_task", "wait_agent"}
)
_UNATTRIBUTED: Final = TERMINALS | OUTCOMES | STEERING | {"response.created", "response.in_progress", "response.queued"}
_ITEM_EVENTS: Final = (
    "response.output_item.",
    "response.content_part.",
    "response.output_text.",
    "response.function_call_arguments.",
    "response.custom_tool_call_input.",
    "response.reasoning_",
    "response.refusal.",
    "response.compaction.",
)
# Sessions that a scenario leaves without a goodbye.
_LEFT: Final[Mapping[str, int]] = MappingProxyType({"R13": 0})
_CLOSED_BY_SERVER: Final = frozenset({"R9"})

Problems = Iterator[str | None]
"""One for each thing that was looked at: what is wrong with it, or None."""


class Finding(Struct, frozen=True):
    """What one assertion came to.

    Attributes:
        name: `A1` to `A11`.
        title: what is asserted.
        checked: how many things were looked at.
        problems: what is wrong with them.
    """

    name: str
    title: str
    checked: int
    problems: Sequence[str]


def check_sessions(sessions: Sequence[Session], scenario: str | None = None) -> list[Finding]:
    """Check all sessions of a recording.

    Args:
        sessions: as `read_sessions` returns them.
        scenario: its name, which tells how sessions are expected to end.
    """
    findings = []
    for name, (title, check) in _CHECKS.items():
        results = [problem for session in sessions for problem in check(session)]
        findings.append(Finding(name, title, len(results), [problem for problem in results if problem]))
    closes = [_check_close(session, scenario or "") for session in sessions if session.kind == "websocket"]
    findings.insert(9, Finding("A10", "sessions end as expected", len(closes), [text for text in closes if text]))
    return findings


def _streamed(session: Session) -> Iterator[Run]:
    return (run for run in session.dialogue.runs if run.events)


def _check_numbers(session: Session) -> Problems:
    for run in _streamed(session):
        numbers = [event["sequence_number"] for event in run.events if "sequence_number" in event]
        wrong = next((at for at, number in enumerate(numbers) if number != at), None)
        yield None if wrong is None else f"{run.id}: event {wrong} has the number {numbers[wrong]}"


def _check_frame(session: Session) -> Problems:
    yield from (f"{str(event)[:80]} is no event" for event in session.dialogue.malformed)
    for run in _streamed(session):
        kinds = [event["type"] for event in run.events]
        ends = sum(kind in TERMINALS for kind in kinds)
        if kinds[0] != "response.created" or kinds.count("response.created") > 1:
            yield f"{run.id}: begins with {kinds[0]}"
        elif ends != 1 and not (ends == 0 and _is_cut(session)):
            yield f"{run.id}: has {ends} terminal events"
        else:
            yield None


def _check_items(session: Session) -> Problems:
    for run in _streamed(session):
        opened: dict[int, set[str]] = {}
        done: set[int] = set()
        wrong = [text for event in run.events if (text := _follow_item(event, opened, done))]
        completed = run.terminal is not None and run.terminal["type"] == "response.completed"
        if completed and set(opened) - done:
            wrong.append(f"items {sorted(set(opened) - done)} are never done")
        yield f"{run.id}: {wrong[0]}" if wrong else None


def _follow_item(event: Event, opened: dict[int, set[str]], done: set[int]) -> str | None:
    """Take in one event of an item; return what is wrong with it."""
    kind, index = str(event["type"]), event.get("output_index")
    if not kind.startswith(_ITEM_EVENTS) or index is None:
        return None
    if kind == "response.output_item.added":
        if index in opened:
            return f"item {index} is added twice"
        opened[index] = set()
        return None
    if index not in opened or index in done:
        return f"{kind} of item {index}, which is not open"
    part = f"{kind.rpartition('.')[0].rpartition('.')[2]}/{event.get('content_index', event.get('summary_index'))}"
    if kind.endswith("part.added"):
        opened[index].add(part)
    elif kind.endswith("part.done"):
        if part not in opened[index]:
            return f"{kind} of item {index} without its beginning"
        opened[index].discard(part)
    elif kind == "response.output_item.done":
        done.add(index)
        if opened[index]:
            return f"item {index} is done before its parts"
    return None


def _check_output(session: Session) -> Problems:
    for run in _streamed(session):
        if run.terminal is None:
            continue
        output = run.response.get("output") or []
        done = [item for _, item in sorted(run.items(), key=lambda pair: pair[0])]
        if run.terminal["type"] != "response.completed":
            ids = {item.get("id") for item in done}
            output = [item for item in output if item.get("id") in ids]
            done = done if run.terminal["type"] == "response.incomplete" else output
        wrong = next((at for at, (left, right) in enumerate(zip(output, done, strict=False)) if left != right), None)
        if len(output) != len(done):
            yield f"{run.id}: {len(done)} items were done, and the output has {len(output)}"
        else:
            yield None if wrong is None else f"{run.id}: item {wrong} of the output is not the one that was done"


def _check_agents(session: Session) -> Problems:
    for run in session.dialogue.runs:
        if not run.is_tree:
            continue
        for event in run.events:
            kind = str(event["type"])
            if kind in _UNATTRIBUTED:
                yield f"{run.id}: {kind} names an agent" if event.get("agent") is not None else None
            elif kind.startswith(_ITEM_EVENTS):
                named = (event.get("agent") or {}).get("agent_name")
                yield None if named else f"{run.id}: {kind} {event.get('sequence_number')} names no agent"


def _injects(session: Session) -> Iterator[tuple[Run | None, Control]]:
    for run in session.dialogue.runs:
        yield from ((run, inject) for inject in run.injects)
    yield from ((None, lost) for lost in session.dialogue.lost if lost.sent.get("type") == "response.inject")


def _check_outcomes(session: Session) -> Problems:
    for run, inject in _injects(session):
        outcome = inject.outcome
        shown = f"{run.id if run else 'unknown response'}: inject of {', '.join(inject.call_ids) or 'nothing'}"
        if outcome is None:
            yield None if _is_cut(session) else f"{shown} has no outcome"
        elif outcome["type"] == "response.inject.failed" and outcome.get("input") != inject.sent.get("input"):
            yield f"{shown} failed, and its input came back changed"
        else:
            yield None
    for stray in session.dialogue.strays:
        if stray.get("type") in OUTCOMES and not any(lost.outcome is stray for lost in session.dialogue.lost):
            yield f"{stray['type']} that nothing was sent for"


def _check_lateness(session: Session) -> Problems:
    for run, inject in _injects(session):
        outcome = inject.outcome or {}
        code = (outcome.get("error") or {}).get("code")
        if run is None or not outcome:
            continue
        if outcome["type"] == "response.inject.created":
            yield f"{run.id}: an inject was accepted after the end" if inject.is_late else None
        elif code == "response_already_completed":
            yield None if inject.is_late else f"{run.id}: {code} before the end"


def _check_actions(session: Session) -> Problems:
    for run in session.dialogue.runs:
        items = [item for _, item in run.items()] or list(run.response.get("output") or [])
        outputs = [
            (item.get("call_id"), item.get("action")) for item in items if item.get("type") == "multi_agent_call_output"
        ]
        completed = run.response.get("status") == "completed"
        for call in items:
            if call.get("type") != "multi_agent_call":
                continue
            count = outputs.count((call.get("call_id"), call.get("action")))
            if count == 1 or (count == 0 and not completed):
                yield None
            else:
                yield f"{run.id}: {call.get('action')} {call.get('call_id')} has {count} outputs"


def _check_ownership(session: Session) -> Problems:
    for run in session.dialogue.runs:
        items = [item for _, item in run.items()] or list(run.response.get("output") or [])
        hosted = {item.get("call_id") for item in items if item.get("type") == "multi_agent_call"}
        for call in run.calls.values():
            asked = run.is_tree and call.item.get("name") in _ACTIONS
            yield f"{run.id}: the client is asked for {call.call_id}" if call.call_id in hosted or asked else None


def _check_milestones(session: Session) -> Problems:
    """Check that nothing was sent before what it answers was seen."""
    later = {run.id for run in session.dialogue.runs if run.id}
    seen = {id for id in session.dialogue.known if id not in later}
    calls = {call_id for run in session.dialogue.runs for call_id in run.calls}
    for message in session.messages:
        event = message.event or {}
        if message.direction == "s2c" and is_event(event):
            calls.discard(str((event.get("item") or {}).get("call_id")))
            seen.add(str((event.get("response") or {}).get("id")))
        elif message.direction == "c2s" and str(event.get("type")) in {"response.inject", "response.steer"}:
            target = str(event.get("response_id", event.get("previous_response_id")))
            early = sorted(calls.intersection(Control(event).call_ids))
            if target in later and target not in seen:
                yield f"{event['type']} for {target} was sent before it was created"
            else:
                yield f"{event['type']} answers {', '.join(early)} too early" if early else None


def _check_close(session: Session, scenario: str) -> str | None:
    shown = f"session {session.number}"
    if session.opened is not None and session.opened.status not in {101, None}:
        return f"{shown}: the upgrade was answered with status {session.opened.status}"
    close = session.close
    if close is None:
        return f"{shown}: has no end"
    if _LEFT.get(scenario) == session.number:
        return None if close.by == "client" and not close.clean else f"{shown}: was not left without a goodbye"
    if scenario in _CLOSED_BY_SERVER:
        return None if close.by == "server" else f"{shown}: was ended by the {close.by} instead of the server"
    if not close.clean or close.by != "client":
        return f"{shown}: ended by the {close.by}, code {close.code}, {'clean' if close.clean else 'not clean'}"
    return None


def _is_cut(session: Session) -> bool:
    """Return whether the session ended before what was open could end."""
    close = session.close
    return close is None or not close.clean or close.by == "server"


_CHECKS: Final[Mapping[str, tuple[str, Callable[[Session], Problems]]]] = MappingProxyType(
    {
        "A1": ("numbers of each response run from 0 without a gap", _check_numbers),
        "A2": ("created first, one terminal event", _check_frame),
        "A3": ("items are added, filled and done, each at an index of its own", _check_items),
        "A4": ("the output is the items that were done, in order", _check_output),
        "A5": ("events of items name an agent, all others none", _check_agents),
        "A6": ("each inject has one outcome, what failed comes back as it was", _check_outcomes),
        "A7": ("accepted before the end, too late after it", _check_lateness),
        "A8": ("each action of an agent has one output", _check_actions),
        "A9": ("no action of an agent is asked of the client", _check_ownership),
        "A11": ("nothing is sent before what it answers", _check_milestones),
    }
)
