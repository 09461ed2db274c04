"""What an engine is told of the gateway's own tools in history: function calls and their outputs.

Such a call has no id besides that of its item, so that is its `call_id` as well; a call that was approved first has
that of the request for approval. The same items are told in the round after a call and in every continuation, which
keeps the prefixes of engines' caches.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import to_builtins

from gateway.protocol import codec
from gateway.protocol.hosted import name_function
from gateway.protocol.hosted_slots import HostedSlot, WebSearchSlot
from gateway.protocol.slots import Slot

Item = dict[str, Any]

_TYPES = frozenset({"mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "web_search_call"})
_CUT_SHORT = ("in_progress", "incomplete")
_CALL = "function_call"
_WEB_SEARCH = "web_search"
_NO_OUTPUT = "The tool call has no output."
_NO_SOURCES = "The results of this search are no longer at hand; the answer that followed was made from them."
_SEARCH_FAILED = "The search failed."
_DECLINED = "The user declined this tool call."


def recall_round(slots: Iterable[Slot]) -> list[Item]:
    """Return the items of a round that is at its end, its calls of the gateway's tools with their outputs."""
    out: list[Item] = []
    for slot in slots:
        if isinstance(slot, HostedSlot) and slot.result is not None:
            recall = recall_search if isinstance(slot, WebSearchSlot) else recall_call
            recall(out, slot.render("completed"), slot.result.output, slot.tool.function["name"])
        elif slot.final is not None:
            item: Item = to_builtins(slot.final)
            out.append(item)
    return out


def recall_hosted(items: list[Item]) -> list[Item]:
    """Return items in which those of the gateway's own tools are function calls and outputs.

    Listings are left out, and calls that were cut short.
    """
    if _TYPES.isdisjoint([item.get("type") for item in items]):
        return items
    out: list[Item] = []
    for item in items:
        match item.get("type"):
            case "mcp_call" | "web_search_call" if item.get("status") in _CUT_SHORT:
                pass
            case "mcp_call":
                recall_call(out, item, _read_outcome(item))
            case "mcp_approval_request":
                out.append(_build_call(item, item.get("id")))
            case "mcp_approval_response":
                if item.get("approve") is not True:
                    recall_output(out, item.get("approval_request_id"), tell_refusal(item.get("reason")))
            case "web_search_call":
                recall_search(out, item, None)
            case "mcp_list_tools":
                pass
            case _:
                out.append(item)
    return out


def recall_call(out: list[Item], item: Mapping[str, Any], output: str, name: str | None = None) -> None:
    """Add an `mcp_call` and its output; one that was approved was told of by the request for it, if that is there."""
    call_id = item.get("approval_request_id") or item.get("id")
    if not item.get("approval_request_id") or _find_call(out, call_id) is None:
        out.append(_build_call(item, call_id, name))
    recall_output(out, call_id, output)


def recall_search(out: list[Item], item: Mapping[str, Any], output: str | None, name: str = _WEB_SEARCH) -> None:
    """Add a `web_search_call` and what it found; where that is no longer known, what the item tells of it."""
    given = item.get("action")
    action: Mapping[str, Any] = given if isinstance(given, dict) else {}
    # Some clients send their history back without ids.
    given_id = item.get("id")
    call_id = given_id if isinstance(given_id, str) and given_id else f"ws_{len(out)}"
    queries = action.get("queries") or [action.get("query") or action.get("url") or ""]
    out.append(
        {
            "type": "function_call",
            "call_id": call_id,
            "name": name,
            "arguments": codec.encode({"queries": queries}).decode(),
        }
    )
    recall_output(out, call_id, _read_found(item, action) if output is None else output)


def recall_output(out: list[Item], call_id: Any, output: str) -> None:
    """Put an output right behind the call it belongs to, or at the end."""
    told = {"type": "function_call_output", "call_id": call_id, "output": output}
    index = _find_call(out, call_id)
    out.insert(len(out) if index is None else index + 1, told)


def _find_call(out: list[Item], call_id: Any) -> int | None:
    """Return where the newest call of that id is."""
    places = range(len(out) - 1, -1, -1)
    return next((at for at in places if out[at].get("call_id") == call_id and out[at].get("type") == _CALL), None)


def tell_refusal(reason: Any) -> str:
    """Return what a model is told of a call that was not approved."""
    return f"{_DECLINED} Reason: {reason}" if isinstance(reason, str) and reason else _DECLINED


def _build_call(item: Mapping[str, Any], call_id: Any, name: str | None = None) -> Item:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name or name_function(str(item.get("server_label")), str(item.get("name"))),
        "arguments": item.get("arguments"),
    }


def _read_outcome(item: Mapping[str, Any]) -> str:
    output, error = item.get("output"), item.get("error")
    if isinstance(output, str) and output:
        return output
    if isinstance(error, str):
        return error
    if isinstance(error, dict):
        content = error.get("content")
        texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        told = "\n".join(text for text in [error.get("message"), *texts] if isinstance(text, str))
        return told or codec.encode(error).decode()
    return output if isinstance(output, str) else _NO_OUTPUT


def _read_found(item: Mapping[str, Any], action: Mapping[str, Any]) -> str:
    if item.get("status") == "failed":
        return _SEARCH_FAILED
    for listed, members in ((item.get("results"), ("title", "url", "text")), (action.get("sources"), ("url",))):
        entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        told = [[entry[name] for name in members if isinstance(entry.get(name), str)] for entry in entries]
        if found := "\n".join("\n".join(lines) for lines in told if lines):
            return f"Sources found:\n{found}"
    return _NO_SOURCES
