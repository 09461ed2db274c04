"""Streams that keep every promise, to be broken one promise at a time."""

import json
from typing import Any

Event = dict[str, Any]

HEX = "0123456789abcdef" * 2


def response(status: str = "completed", **members: Any) -> Event:
    """A complete response object."""
    base: Event = {
        "id": f"resp_{HEX}",
        "object": "response",
        "created_at": 1790000000,
        "completed_at": 1790000002 if status == "completed" else None,
        "status": status,
        "background": False,
        "error": {"code": "server_error", "message": "broken"} if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "sample",
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "conversation": None,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
    }
    return {**base, **members}


def text_item(kind: str, index: int, pieces: list[str], status: str = "completed") -> list[Event]:
    """All events of a `message`, `refusal` or `reasoning` item."""
    part_type, name = {"message": ("output_text", "text"), "refusal": ("refusal", "refusal")}.get(
        kind, ("reasoning_text", "text")
    )
    extra: Event = {"annotations": [], "logprobs": []} if kind == "message" else {}
    logprobs = {"logprobs": []} if kind == "message" else {}
    base: Event = {"id": f"rs_{HEX}", "type": "reasoning", "summary": []}
    if kind != "reasoning":
        base = {"id": f"msg_{HEX}", "type": "message", "role": "assistant"}
    part = {"type": part_type, name: "".join(pieces), **extra}
    place = {"item_id": base["id"], "output_index": index, "content_index": 0}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**base, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, name: ""}},
        *({"type": f"response.{part_type}.delta", **place, "delta": piece, **logprobs} for piece in pieces),
        {"type": f"response.{part_type}.done", **place, name: "".join(pieces), **logprobs},
        {"type": "response.content_part.done", **place, "part": part},
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**base, "status": status, "content": [part]},
        },
    ]


def call_item(index: int, pieces: list[str]) -> list[Event]:
    """All events of a function call."""
    base = {"id": f"fc_{HEX}", "type": "function_call", "call_id": "call_1", "name": "get_weather"}
    place = {"item_id": base["id"], "output_index": index}
    done = {**base, "status": "completed", "arguments": "".join(pieces)}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**done, "status": "in_progress", "arguments": ""},
        },
        *({"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces),
        {"type": "response.function_call_arguments.done", **place, "arguments": "".join(pieces)},
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def stream(*items: list[Event], status: str = "completed", output: list[Event] | None = None) -> list[Event]:
    """A whole numbered stream around the events of its items."""
    done = [item[-1]["item"] for item in items if item[-1]["type"] == "response.output_item.done"]
    opening = response("in_progress")
    events = [
        {"type": "response.created", "response": opening},
        {"type": "response.in_progress", "response": opening},
        *(event for item in items for event in item),
        {"type": f"response.{status}", "response": response(status, output=done if output is None else output)},
    ]
    return renumber(events)


def renumber(events: list[Event]) -> list[Event]:
    """A deep copy with fresh sequence numbers."""
    return [{**json.loads(json.dumps(event)), "sequence_number": number} for number, event in enumerate(events)]


def encode(events: list[Event]) -> bytes:
    """The stream as bytes, `[DONE]` at its end."""
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "".join([*frames, "data: [DONE]\n\n"]).encode()


def full_stream() -> list[Event]:
    """Reasoning, a message and a function call, completed."""
    return stream(
        text_item("reasoning", 0, ["Let me ", "think."]),
        text_item("message", 1, ["Grüße ", "aus ", "Köln"]),
        call_item(2, ['{"city":', ' "Paris"}']),
    )
