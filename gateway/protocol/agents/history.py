"""Histories of agents: which items are calls and outputs, and what a model is shown of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.protocol.agents.mail import Item, read_mail
from gateway.protocol.items import CLIENT_CALLS, CLIENT_OUTPUTS

CALL = "multi_agent_call"
OUTPUT = "multi_agent_call_output"
MESSAGE = "agent_message"
NOTE = "agent_note"

# What stands for the output of a call whose round was interrupted.
INTERRUPTED = '{"status": "interrupted"}'


def read_call(item: Item) -> str | None:
    """Return the id of the call that an item makes, if it does: one that has or will have an output of its own."""
    kind = item.get("type")
    if kind in CLIENT_CALLS or kind == CALL:
        return _read_id(item, "call_id")
    return _read_id(item, "id") if kind == "mcp_approval_request" else None


def read_output(item: Item) -> str | None:
    """Return the id of the call that an item answers, if it does."""
    kind = item.get("type")
    if kind in CLIENT_OUTPUTS or kind == OUTPUT:
        return _read_id(item, "call_id")
    return _read_id(item, "approval_request_id") if kind in ("mcp_approval_response", "mcp_call") else None


def find_call(items: Sequence[Item], call_id: str) -> int | None:
    """Return where the newest call of this id is."""
    return next((at for at in reversed(range(len(items))) if read_call(items[at]) == call_id), None)


def is_cut_short(item: Item) -> bool:
    """Tell whether an item is a call that its model could not finish, which nobody is to carry out or to see."""
    return item.get("type") in CLIENT_CALLS and item.get("status") == "incomplete"


def match_calls(items: Sequence[Item]) -> dict[int, list[int]]:
    """Return where the outputs of each call are, by the call's position.

    An output belongs to the nearest call of its id before it that waits for one. A call that was approved has two: the
    approval, and what came of it.
    """
    found: dict[int, list[int]] = {}
    pending: dict[str, int] = {}
    for position, item in enumerate(items):
        if (made := read_call(item)) is not None:
            pending[made] = position
            found[position] = []
        elif (answered := read_output(item)) is not None and answered in pending:
            found[pending[answered]].append(position)
            if not _is_approval(item):
                del pending[answered]
    return found


def is_settled(items: Sequence[Item], outputs: Iterable[int]) -> bool:
    """Tell whether a call has an output besides an approval, given where its outputs are."""
    return any(not _is_approval(items[at]) for at in outputs)


def find_covered(items: Sequence[Item]) -> int:
    """Return how many items a summary may replace: those before the first open call, no output without its call."""
    matches = match_calls(items)
    covered = min((at for at, outputs in matches.items() if not is_settled(items, outputs)), default=len(items))
    for output, call in sorted(((at, call) for call, outputs in matches.items() for at in outputs), reverse=True):
        if output >= covered:
            covered = min(covered, call)
    return covered


def recall_agents(items: Sequence[Item]) -> list[Item]:
    """Return items in which those of agents are calls of functions, their outputs, and messages of the user.

    Every output stands right behind its call, whenever it came, and a call that has none has a stand-in. Calls that
    were cut short are left out.
    """
    kept = [item for item in items if not is_cut_short(item)]
    matches = match_calls(kept)
    moved = {at for outputs in matches.values() for at in outputs}
    out: list[Item] = []
    for position, item in enumerate(kept):
        if position in moved:
            continue
        out.append(_recall(item))
        if position in matches:
            out += [_recall(kept[at]) for at in matches[position]]
            if not is_settled(kept, matches[position]):
                out.append(build_stand_in(read_call(item)))
    return out


def build_stand_in(call_id: str | None) -> Item:
    """Return what a model is told in the place of an output that an interrupted round did not wait for."""
    return _build_output(call_id, INTERRUPTED)


def build_note(call_id: str, name: str, output: str) -> Item:
    """Return what a model is told of an output that came after it had been shown a stand-in."""
    text = f"[The call of `{name}` ({call_id}), which was interrupted, has its output now.]\n{output}"
    return {"type": NOTE, "call_id": call_id, "text": text}


def _read_id(item: Item, name: str) -> str | None:
    """Return an id; None for none, and for what can be none: outputs are looked at before anybody has checked them."""
    found = item.get(name)
    return found if isinstance(found, str) and found else None


def _is_approval(item: Item) -> bool:
    return item.get("type") == "mcp_approval_response" and item.get("approve") is True


def _recall(item: Item) -> Item:
    match item.get("type"):
        case "multi_agent_call":
            return {
                "type": "function_call",
                "call_id": item["call_id"],
                "name": item["action"],
                "arguments": item["arguments"],
            }
        case "multi_agent_call_output":
            return _build_output(item["call_id"], item["output"])
        case "agent_message":
            return _build_message(read_mail(item).show())
        case "agent_note":
            return _build_message(item["text"])
        case _:
            return item


def _build_output(call_id: Any, output: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _build_message(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
