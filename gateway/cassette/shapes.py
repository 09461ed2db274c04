"""The form that what a server sends must have before anything is read out of it."""

from typing import Any

import msgspec
from msgspec import Struct


class _Agent(Struct):
    agent_name: str | None = None


class _Part(Struct):
    text: str | None = None


class _Item(Struct):
    type: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    action: str | None = None
    author: str | None = None
    agent: _Agent | None = None
    content: list[_Part] | str | None = None
    output: list[_Part] | str | None = None
    summary: list[_Part] | None = None


class _Reason(Struct):
    reason: str | None = None


class _Error(Struct):
    code: str | int | None = None
    message: str | None = None
    param: str | None = None


class _Response(Struct):
    id: str | None = None
    status: str | None = None
    previous_response_id: str | None = None
    output: list[_Item] | None = None
    incomplete_details: _Reason | None = None
    error: _Error | None = None


class _Steer(Struct):
    id: str | None = None
    previous_response_id: str | None = None


class _Event(Struct):
    type: str
    stream_id: str | None = None
    response_id: str | None = None
    output_index: int | None = None
    sequence_number: int | None = None
    agent: _Agent | None = None
    item: _Item | None = None
    response: _Response | None = None
    steer: _Steer | None = None
    error: _Error | None = None


def is_event(value: Any) -> bool:
    """Return whether a JSON object can be read as an event; fields that nobody reads may be anything."""
    try:
        event = msgspec.convert(value, _Event)
    except msgspec.ValidationError:
        return False
    if event.type == "response.created":
        return event.response is not None and event.response.id is not None
    if event.type == "response.steer.accepted":
        return event.steer is not None and event.steer.id is not None
    if event.type.startswith("response.output_item."):
        return event.item is not None and event.output_index is not None
    return True
