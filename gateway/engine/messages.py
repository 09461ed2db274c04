"""Items as the messages of OpenTelemetry's GenAI conventions, for traces that may tell content."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.protocol.items import CLIENT_CALLS, CLIENT_OUTPUTS

Json = dict[str, Any]

# Where calls of one kind or another say what they ask for.
_ASKED = ("arguments", "input", "action", "actions", "operation")


def build_messages(items: Iterable[Any], **fields: str) -> list[Json]:
    """Return a message for each item, input or output, with further fields that are the same for all."""
    return [{**_build_message(msgspec.to_builtins(item)), **fields} for item in items]


def build_text(text: str) -> list[Json]:
    """Return the parts of a message that is text alone."""
    return [{"type": "text", "content": text}]


def _build_message(item: Json) -> Json:
    kind = str(item.get("type", "message"))
    if kind == "message":
        content = item.get("content")
        parts = build_text(content) if isinstance(content, str) else [_build_part(part) for part in _objects(content)]
        return {"role": item.get("role", "assistant"), "parts": parts}
    if kind == "reasoning":
        told = _objects(item.get("content")) or _objects(item.get("summary"))
        return {"role": "assistant", "parts": [{"type": "reasoning", "content": part.get("text")} for part in told]}
    call_id = item.get("call_id")
    if kind in CLIENT_CALLS:
        arguments = next((item[name] for name in _ASKED if name in item), None)
        name = item.get("name", kind.removesuffix("_call"))
        call = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        return {"role": "assistant", "parts": [call]}
    if kind in CLIENT_OUTPUTS:
        output = item.get("output", item.get("tools"))
        response = _build_part(output) if isinstance(output, dict) else output
        return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": response}]}
    return {"role": "assistant", "parts": [{"type": kind}]}


def _objects(value: Any) -> list[Json]:
    """Return what is an object in a list that callers and servers filled."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _build_part(part: Json) -> Json:
    """Return a part of a message; of what is neither text nor refusal, pictures for one, the kind is enough."""
    text = part.get("text", part.get("refusal"))
    return {"type": "text", "content": text} if isinstance(text, str) else {"type": part.get("type", "unknown")}
