"""How a replay differs from its recording, ids, times, numbers of tokens and opaque content aside."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from gateway.cassette.dialogue import Control, Event, Run
from gateway.cassette.transcript import Session

Depth = Literal["none", "outcomes", "texts"]

# Arguments of actions that are sealed for the client.
_SEALED: Final = frozenset({"message"})
_MAX_SHOWN: Final = 80


def compare_sessions(before: Sequence[Session], after: Sequence[Session], depth: Depth) -> list[str]:
    """Return the differences.

    Args:
        before: of the recording.
        after: of the replay.
        depth: `outcomes` compares how responses, injects, steers and sessions ended, `texts` the items with their
            joined texts too, as only a scripted model repeats them.
    """
    differences = []
    if len(before) != len(after):
        differences.append(f"{len(before)} sessions were recorded, {len(after)} were replayed")
    for number, (left, right) in enumerate(zip(before, after, strict=False)):
        pairs = [
            *_pair("response", map(_describe_end, left.dialogue.runs), map(_describe_end, right.dialogue.runs)),
            *_pair("control", _list_outcomes(left), _list_outcomes(right)),
            *_pair("end", [_describe_close(left)], [_describe_close(right)]),
        ]
        if depth == "texts":
            pairs += _pair("item", _list_items(left), _list_items(right))
        differences += [f"session {number}: {text}" for text in pairs]
    return differences


def _pair(what: str, before: Iterator[str] | list[str], after: Iterator[str] | list[str]) -> list[str]:
    left, right = list(before), list(after)
    texts = [
        f"{what} {number}: {_cut(old)} was recorded, {_cut(new)} came"
        for number, (old, new) in enumerate(zip(left, right, strict=False), 1)
        if old != new
    ]
    if len(left) != len(right):
        texts.append(f"{len(left)} of {what} were recorded, {len(right)} came")
    return texts


def _describe_end(run: Run) -> str:
    if run.error is not None:
        error = run.error.get("error") or {}
        return f"refused, param {error.get('param')}, code {error.get('code')}"
    if run.terminal is None:
        return "without an end"
    reason = (run.response.get("incomplete_details") or {}).get("reason")
    return f"{run.response.get('status')}" + (f" ({reason})" if reason else "")


def _list_outcomes(session: Session) -> list[str]:
    controls: list[Control] = [*session.dialogue.lost]
    for run in session.dialogue.runs:
        controls += [*run.injects, *run.steers]
    return [_describe_outcome(control) for control in controls]


def _describe_outcome(control: Control) -> str:
    outcome = control.outcome or {}
    code = (outcome.get("error") or {}).get("code")
    return f"{outcome.get('type', 'no outcome')}" + (f" {code}" if code else "")


def _describe_close(session: Session) -> str:
    head, _ = session.answer
    if session.kind == "http":
        return f"status {head.status if head is not None else None}"
    close = session.close
    return f"ended by the {close.by}, code {close.code}" if close is not None else "without an end"


def _list_items(session: Session) -> list[str]:
    """Return the items of each response, agent by agent: how agents interleave is a matter of time."""
    shown = []
    for run in session.dialogue.runs:
        items = [item for _, item in run.items()] or list(run.response.get("output") or [])
        items.sort(key=lambda item: str((item.get("agent") or {}).get("agent_name") or ""))
        shown += [_describe_item(item) for item in items]
    return shown


def _describe_item(item: Event) -> str:
    agent = (item.get("agent") or {}).get("agent_name") or "/root"
    kind = item.get("type")
    if kind == "agent_message":
        return f"{agent}: mail from {item.get('author')}"
    content = item.get("content") or item.get("output") or item.get("summary") or []
    joined = content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)
    return f"{agent}: {kind} {item.get('action') or item.get('name') or ''} {_read_arguments(item)}{joined}"


def _read_arguments(item: Mapping[str, Any]) -> str:
    written = item.get("arguments")
    if not isinstance(written, str):
        return ""
    try:
        arguments = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        return written
    if isinstance(arguments, dict) and item.get("type") == "multi_agent_call":
        arguments = {name: value for name, value in arguments.items() if name not in _SEALED}
    return msgspec.json.encode(arguments, order="sorted").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
