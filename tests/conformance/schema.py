"""Checks events, items and response objects against the published field tables in `events.json`."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Check = Callable[[Any], bool]
Fields = Mapping[str, str]

TABLE = Path(__file__).with_name("events.json")
STATUSES = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")
# Items that are there whole or not at all.
STATUSLESS = frozenset({"compaction", "multi_agent_call", "multi_agent_call_output", "agent_message"})
NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs")
NEVER_NULL = (*NUMBERS, "text", "truncation", "service_tier", "metadata", "store", "background")
PARTS: Mapping[str, Fields] = {
    "output_text": {"text": "string", "annotations": "array<Annotation>", "logprobs": "array<Logprob>"},
    "refusal": {"refusal": "string"},
    "reasoning_text": {"text": "string"},
    "summary_text": {"text": "string"},
    "input_text": {"text": "string"},
    "encrypted_content": {"encrypted_content": "string"},
}
USAGE: Fields = {
    "input_tokens": "integer",
    "input_tokens_details": "InputTokensDetails",
    "output_tokens": "integer",
    "output_tokens_details": "OutputTokensDetails",
    "total_tokens": "integer",
}

_SIMPLE: Mapping[str, Check] = {
    "any": lambda value: True,
    "null": lambda value: value is None,
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


class Schema:
    """The field tables of one API version.

    Args:
        table: path of the JSON file with `sse`, `objects` and the list of required response fields.
        beta: take the tables of the beta API, with items of agents and what a WebSocket carries.
    """

    def __init__(self, table: Path = TABLE, *, beta: bool = False) -> None:
        loaded = json.loads(table.read_text())
        self._events: dict[str, Any] = loaded["beta_ws_server" if beta else "sse"]
        self._items: dict[str, Any] = loaded["objects"]["beta_output_items" if beta else "output_items"]
        self._response: dict[str, Any] = loaded["objects"]["BetaResponse" if beta else "Response"]
        self._complete: list[str] = loaded["_extra_not_from_sdk"]["openresponses_2026_04_24_response_resource_required"]

    def check_event(self, event: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with one event, everything inside it included."""
        entry = self._events.get(event.get("type", ""))
        if entry is None:
            return [f"unknown event type {event.get('type')!r}"]
        faults = list(_check_entry(entry, event))
        if isinstance(event.get("response"), dict):
            faults += self.check_response(event["response"])
        if isinstance(event.get("item"), dict):
            faults += self.check_item(event["item"])
        if isinstance(event.get("part"), dict):
            faults += _check_part(event["part"])
        return faults

    def check_item(self, item: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with one output item; beyond the table every item carries an id and most a status."""
        entry = self._items.get(item.get("type", ""))
        if entry is None:
            return [f"unknown item type {item.get('type')!r}"]
        faults = list(_check_entry(entry, item))
        always = ("id",) if item["type"] in STATUSLESS else ("id", "status")
        faults += [f"item {name} is {item.get(name)!r}" for name in always if not isinstance(item.get(name), str)]
        parts = [*(item.get("content") or []), *(item.get("summary") or [])]
        parts += item.get("output", []) if item["type"] == "multi_agent_call_output" else []
        return [f"{item['type']}: {fault}" for fault in [*faults, *(f for part in parts for f in _check_part(part))]]

    def check_response(self, response: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with one response object: every field present, numbers never null, a legal status."""
        faults = [f"response lacks {name}" for name in self._complete if name not in response]
        faults += [f"response {name} is null" for name in NEVER_NULL if name in response and response[name] is None]
        faults += _check_entry(self._response, response)
        if response.get("status") not in STATUSES:
            faults.append(f"response status is {response.get('status')!r}")
        if isinstance(response.get("output"), list):
            faults += [fault for item in response["output"] for fault in self.check_item(item)]
        return [*faults, *_check_outcome(response)]


def _check_entry(entry: Mapping[str, Any], value: Mapping[str, Any]) -> Iterator[str]:
    """Check the fields of one object against its table entry; fields beyond the table are free."""
    yield from (f"{name} is missing" for name in entry["required"] if name not in value)
    for name, type_ in {**entry["optional"], **entry["required"]}.items():
        if name in value and not reader_of(type_)(value[name]):
            yield f"{name} is {json.dumps(value[name])[:60]}, expected {type_[:80]}"


def _check_part(part: Any) -> Iterator[str]:
    fields = PARTS.get(part.get("type", "")) if isinstance(part, dict) else None
    if fields is None:
        yield f"unknown part {json.dumps(part)[:60]}"
        return
    yield from _check_entry({"required": fields, "optional": {}}, part)


def _check_outcome(response: Mapping[str, Any]) -> Iterator[str]:
    """Check the members that depend on the status."""
    status, error, usage = (response.get(name) for name in ("status", "error", "usage"))
    details = response.get("incomplete_details")
    if (status == "failed") != (error is not None):
        yield f"status {status!r} with error {json.dumps(error)[:80]}"
    if error is not None and not all(isinstance(error.get(name), str) for name in ("code", "message")):
        yield f"error without a string code and message: {json.dumps(error)[:80]}"
    if (status == "incomplete") != (details is not None):
        yield f"status {status!r} with incomplete_details {details!r}"
    if details is not None and not isinstance(details.get("reason"), str):
        yield "incomplete_details without a reason"
    if status == "completed" and not _SIMPLE["number"](response.get("completed_at")):
        yield f"completed without completed_at ({response.get('completed_at')!r})"
    if isinstance(usage, dict):
        yield from (f"usage: {fault}" for fault in _check_entry({"required": USAGE, "optional": {}}, usage))


@cache
def reader_of(type_: str) -> Check:
    """Turn a type of the table into a predicate.

    The language: `string integer number boolean null any`, `array<T>`, `map<string, T>`, `"literal"|"literal"`,
    unions of these with ` | `, and names of further objects.
    """
    options = _split(re.sub(r"\s*\(.*?\)$", "", type_))
    if len(options) > 1:
        checks = [reader_of(option) for option in options]
        return lambda value: any(check(value) for check in checks)
    (only,) = options
    if only in _SIMPLE:
        return _SIMPLE[only]
    if only.startswith('"'):
        literals = {literal.strip('"') for literal in only.split("|")}
        return lambda value: isinstance(value, str) and value in literals
    if only.startswith("array<"):
        element = reader_of(only[len("array<") : -1])
        return lambda value: isinstance(value, list) and all(element(each) for each in value)
    if only.startswith("map<"):
        member = reader_of(only[len("map<") : -1].partition(",")[2].strip())
        return lambda value: isinstance(value, dict) and all(member(each) for each in value.values())
    return lambda value: isinstance(value, dict)


def _split(type_: str) -> list[str]:
    """Split a union at its outermost ` | `."""
    options, depth, start = [], 0, 0
    for at, character in enumerate(type_):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0 and type_.startswith(" | ", at):
            options.append(type_[start:at].strip())
            start = at + 3
    return [*options, type_[start:].strip()]
