"""What a continuation replays, and which calls still wait for an output."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.protocol.errors import InvalidRequest
from gateway.protocol.items import CLIENT_CALLS, CLIENT_OUTPUTS

# Items that call nothing, answer nothing and bring nothing.
_PLAIN = frozenset({"message", "reasoning"})
# A search without a call id is none that a client was asked for.
_SEARCHES = ("tool_search_call", "tool_search_output")
# Clients of before there was an output of its own answer a local shell call as that of a function.
_OTHER_OUTPUTS = {"local_shell_call": "function_call_output"}


def is_plain(items: Sequence[dict[str, Any]]) -> bool:
    """Tell whether items are words alone, so that nothing in them has to be matched, looked up or retold."""
    for item in items:  # noqa: SIM110
        if item.get("type") not in _PLAIN:
            return False
    return True


def is_answer(call: str, output: str) -> bool:
    """Tell whether an item of one type answers a call of another."""
    if call == "mcp_approval_request":
        return output == "mcp_approval_response"
    return output in (CLIENT_CALLS[call], _OTHER_OUTPUTS.get(call))


def drop_incomplete_calls(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items a model is shown: a call that was cut short is neither pending nor repeated."""
    return [item for item in history if not (item.get("type") in CLIENT_CALLS and item.get("status") == "incomplete")]


def match_outputs(history: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], *, complete: bool = True) -> None:
    """Check that the new input answers every pending call, each once, and nothing else.

    An output belongs to the nearest earlier unanswered call of its id.

    Args:
        history: what came before.
        new: the new input.
        complete: no call may go on waiting.

    Raises:
        InvalidRequest: `invalid_tool_output` for an unknown, duplicate or mismatched output, `missing_tool_output`
            for a call left without one; param `input`.
    """
    pending: dict[str, str] = {}
    answered: set[str] = set()
    first_new = len(history)
    for position, item in enumerate([*history, *new]):
        kind = item.get("type")
        if kind not in CLIENT_CALLS and kind not in CLIENT_OUTPUTS:
            continue
        if kind in _SEARCHES and not item.get("call_id"):
            continue
        call_id = str(item.get("call_id"))
        if kind in CLIENT_CALLS:
            pending[call_id] = str(kind)
        else:
            waiting = pending.get(call_id)
            if waiting is not None and is_answer(waiting, str(kind)):
                del pending[call_id]
                answered.add(call_id)
            elif position >= first_new:
                raise _refuse_output(str(kind), call_id, waiting, duplicate=call_id in answered)
    if pending and complete:
        call_id, kind = next(iter(pending.items()))
        raise InvalidRequest(
            f"No tool output found for {_name(kind)} {call_id[:128]}.", code="missing_tool_output", param="input"
        )


def drop_orphaned_outputs(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items without outputs that answer no call before them, and approvals of what nobody asked for.

    Engines refuse such outputs, and what somebody took out of a conversation, or put in, is to spoil no later turn.
    """
    pending: dict[str, str] = {}
    asked: set[str] = set()
    kept = []
    for item in history:
        kind, call_id = item.get("type"), str(item.get("call_id"))
        if kind == "mcp_approval_request":
            asked.add(str(item.get("id")))
        elif kind == "mcp_approval_response":
            if (request_id := str(item.get("approval_request_id"))) not in asked:
                continue
            asked.remove(request_id)
        elif kind in CLIENT_CALLS:
            pending[call_id] = str(kind)
        elif kind in CLIENT_OUTPUTS and not (kind in _SEARCHES and not item.get("call_id")):
            waiting = pending.get(call_id)
            if waiting is None or not is_answer(waiting, str(kind)):
                continue
            del pending[call_id]
        kept.append(item)
    return kept


def call_ids(items: Iterable[dict[str, Any]]) -> set[str]:
    """Return every call id in use."""
    return {str(item["call_id"]) for item in items if item.get("call_id")}


def _refuse_output(kind: str, call_id: str, waiting: str | None, *, duplicate: bool) -> InvalidRequest:
    word = _name(CLIENT_OUTPUTS[kind])
    shown = call_id[:128]
    if waiting is not None:
        message = f"Call {shown} is {_name(waiting, article=True)}; answer it with a {CLIENT_CALLS[waiting]}."
    elif duplicate:
        message = f"The {word} with call_id {shown} already has an output."
    else:
        message = f"No tool call found for {word} output with call_id {shown}."
    return InvalidRequest(message, code="invalid_tool_output", param="input")


def _name(kind: str, *, article: bool = False) -> str:
    """Return a type of call in words."""
    words = kind.replace("_", " ")
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}" if article else words
