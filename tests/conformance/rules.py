"""The life of one response, judged from its client stream alone.

`check_stream` returns every broken promise with the number of the event that broke it. Each rule has a name, so that
a test can show for every one of them that it fires.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from conformance.schema import STATUSLESS
from conformance.wire import Violation, WireEvent, take_apart

Data = dict[str, Any]
Found = Iterator[tuple[str, str]]

STATUS_OF_TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
ID_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
# event family -> (part type, or None when the item itself holds the text; name of the text; name of the part's index)
CHANNELS: dict[str, tuple[str | None, str, str | None]] = {
    "response.output_text": ("output_text", "text", "content_index"),
    "response.refusal": ("refusal", "refusal", "content_index"),
    "response.reasoning_text": ("reasoning_text", "text", "content_index"),
    "response.reasoning_summary_text": ("summary_text", "text", "summary_index"),
    "response.function_call_arguments": (None, "arguments", None),
    "response.custom_tool_call_input": (None, "input", None),
}
# Commands of shell calls: the one family whose events name no item.
COMMANDS = "response.shell_call_command"
PART_TYPES = frozenset(type_ for type_, _, _ in CHANNELS.values() if type_ is not None)
PART_FAMILIES = {"response.content_part": "content_index", "response.reasoning_summary_part": "summary_index"}
RULES = (
    "framing",
    "done marker",
    "sequence",
    "created first",
    "opening snapshot",
    "one terminal",
    "terminal status",
    "response identity",
    "created_at",
    "own ids",
    "output index",
    "item added first",
    "item identity",
    "opening item",
    "one item at a time",
    "item closed",
    "item status",
    "part added first",
    "part closed",
    "text",
    "logprobs",
    "final output",
    "incomplete last",
)


@dataclass
class Part:
    """A content or summary part while it is open; one of a type without texts comes whole, when it is done."""

    type: str
    pieces: list[str] = field(default_factory=list)
    text_done: bool = False
    closed: bool = False
    whole: Data | None = None

    @property
    def has_text(self) -> bool:
        return self.type in PART_TYPES

    @property
    def said(self) -> Any:
        return "".join(self.pieces) if self.has_text or not self.type else self.whole


@dataclass
class Item:
    """An output item as its events describe it.

    Attributes:
        parts: by (name of the index, index); calls keep their arguments under `("item", 0)`.
        done: the item of `output_item.done`, or None while open.
    """

    added: Data
    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    done: Data | None = None

    @property
    def id(self) -> str:
        return str(self.added.get("id"))


@dataclass
class Judge:
    """Reads the events of one response in order.

    Attributes:
        max_open_items: more than one only where several agents answer at once.
        error_terminal: whether an `error` event may end the stream, as it does when nothing larger fits.
    """

    max_open_items: int = 1
    error_terminal: bool = False
    items: list[Item] = field(default_factory=list)
    response_id: str | None = None
    created_at: Any = None
    terminal: Data | None = None
    opening: tuple[str, ...] = ("response.created", "response.in_progress")

    def read(self, number: int, data: Data) -> Found:
        """Judge one event."""
        type_ = str(data.get("type"))
        if data.get("sequence_number") != number:
            yield "sequence", f"sequence_number {data.get('sequence_number')!r}, expected {number}"
        if number == 0 and (data.get("response") or {}).get("background"):
            self.opening = ("response.created", "response.queued", "response.in_progress")
        if number < len(self.opening) and type_ != self.opening[number]:
            yield "created first", f"{type_} where {' and '.join(self.opening)} were due"
        if self.terminal is not None:
            yield "one terminal", f"{type_} after {self.terminal['type']}"
        if isinstance(data.get("response"), dict):
            yield from self._read_snapshot(type_, data["response"])
        if type_ in STATUS_OF_TERMINAL or (type_ == "error" and self.error_terminal):
            self.terminal = data
            yield from self._read_terminal(type_, data)
        elif type_.startswith("response.output_item."):
            yield from self._read_item(type_, data)
        elif "output_index" in data:
            yield from self._read_content(type_, data)

    def finish(self) -> Found:
        """Judge the stream as a whole."""
        if self.terminal is None:
            yield "one terminal", "the stream ended without completed, incomplete or failed"

    def _read_snapshot(self, type_: str, response: Data) -> Found:
        id_, created_at = response.get("id"), response.get("created_at")
        if self.response_id is None:
            self.response_id, self.created_at = id_, created_at
            yield from _check_id("resp", id_)
        if id_ != self.response_id:
            yield "response identity", f"response id {id_!r}, was {self.response_id!r}"
        if created_at != self.created_at:
            yield "created_at", f"created_at {created_at!r}, was {self.created_at!r}"
        if type_ in ("response.created", "response.queued", "response.in_progress"):
            seen = (response.get("status"), response.get("output"), response.get("usage"))
            waits = len(self.opening) == 3 and type_ != "response.in_progress"
            if seen != ("queued" if waits else "in_progress", [], None):
                yield "opening snapshot", f"status, output and usage are {seen}"

    def _read_terminal(self, type_: str, data: Data) -> Found:
        if type_ == "error":
            return
        response = data.get("response") or {}
        if response.get("status") != STATUS_OF_TERMINAL[type_]:
            yield "terminal status", f"{type_} with status {response.get('status')!r}"
        output = response.get("output")
        output = output if isinstance(output, list) else []
        open_items = [item.id for item in self.items if item.done is None]
        if type_ != "response.failed":
            if open_items:
                yield "item closed", f"{type_} while {open_items} are open"
            if output != [item.done for item in self.items]:
                yield "final output", f"the final output is not the done items: {_differ(output, self.items)}"
        else:
            yield from self._compare_partial(output)
        yield from self._check_incomplete(type_, output)

    def _compare_partial(self, output: list[Data]) -> Found:
        """A failed response shows what came so far, or nothing at all."""
        if output and len(output) != len(self.items):
            yield "final output", f"{len(output)} items in the failed response, {len(self.items)} were streamed"
        for shown, item in zip(output, self.items, strict=False):
            if shown.get("id") != item.id:
                yield "final output", f"item {shown.get('id')!r} where {item.id!r} was streamed"
            elif item.done is not None and shown != item.done:
                yield "final output", f"item {item.id} differs from its done item"
            elif item.done is None:
                yield from (("final output", text) for _, text in _compare_texts(item, shown))

    def _check_incomplete(self, type_: str, output: list[Data]) -> Found:
        broken_off = [place for place, item in enumerate(output) if item.get("status") == "incomplete"]
        if broken_off and (broken_off != [len(output) - 1] or type_ == "response.completed"):
            yield "incomplete last", f"{type_} with incomplete items at {broken_off} of {len(output)}"

    def _read_item(self, type_: str, data: Data) -> Found:
        index, shown = data.get("output_index"), data.get("item") or {}
        if type_ == "response.output_item.added":
            yield from self._open_item(index, shown)
            return
        item = self._item_at(index)
        if item is None or item.done is not None:
            yield "item added first", f"output_index {index} is done but was not open"
            return
        item.done = shown
        fixed = ("id", "type", "call_id", "name")
        changed = [name for name in fixed if shown.get(name) != item.added.get(name)]
        if changed:
            yield "item identity", f"{changed} changed between added and done"
        ends = (None,) if shown.get("type") in STATUSLESS else ("completed", "incomplete", "failed")
        if shown.get("status") not in ends:
            yield "item status", f"done item has status {shown.get('status')!r}"
        for key, part in item.parts.items():
            if not part.text_done and (part.has_text or not part.type):
                yield "part closed", f"{key} has no done text before the item is done"
            elif not part.closed and key[0] != "item":
                yield "part closed", f"{key} has no part.done before the item is done"
        yield from _compare_texts(item, shown)

    def _open_item(self, index: Any, shown: Data) -> Found:
        if index != len(self.items):
            yield "output index", f"output_index {index!r}, expected {len(self.items)}"
        still_open = [item.id for item in self.items if item.done is None]
        if len(still_open) >= self.max_open_items:
            yield "one item at a time", f"{shown.get('id')} was added while {still_open} were open"
        if shown.get("id") in {item.id for item in self.items}:
            yield "item identity", f"item id {shown.get('id')!r} was used before"
        yield from _check_id(ID_PREFIXES.get(str(shown.get("type")), "[a-z]+"), shown.get("id"))
        texts = {name: shown[name] for name in ("content", "arguments", "input", "summary") if shown.get(name)}
        begins = None if shown.get("type") in STATUSLESS else "in_progress"
        if shown.get("status") != begins or texts:
            yield "opening item", f"added with status {shown.get('status')!r} and {json.dumps(texts)[:80]}"
        item = Item(shown)
        if shown.get("type") in ("function_call", "custom_tool_call"):
            item.parts["item", 0] = Part("")
        self.items.append(item)

    def _read_content(self, type_: str, data: Data) -> Found:
        item = self._item_at(data.get("output_index"))
        if item is None or item.done is not None:
            yield "item added first", f"{type_} for output_index {data.get('output_index')!r}, which is not open"
            return
        family, _, verb = type_.rpartition(".")
        if family == COMMANDS:
            yield from _read_command(item, verb, data)
            return
        if data.get("item_id") != item.id:
            yield "item identity", f"item_id {data.get('item_id')!r}, output_index belongs to {item.id!r}"
        if family in PART_FAMILIES:
            yield from _read_part(item, PART_FAMILIES[family], verb, data)
        elif family in CHANNELS:
            yield from _read_text(item, family, verb, data)

    def _item_at(self, index: Any) -> Item | None:
        return self.items[index] if isinstance(index, int) and 0 <= index < len(self.items) else None


def check_events(events: list[WireEvent], judge: Judge | None = None) -> list[Violation]:
    """Return what the events of one whole stream break."""
    judge = judge or Judge()
    broken = [
        Violation(rule, event.number, text) for event in events for rule, text in judge.read(event.number, event.data)
    ]
    return broken + [Violation(rule, None, text) for rule, text in judge.finish()]


def check_stream(stream: bytes, judge: Judge | None = None) -> list[Violation]:
    """Return what one whole client stream breaks, framing included."""
    events, broken = take_apart(stream)
    return broken + check_events(events, judge)


def check_ids(response: Data) -> list[str]:
    """Return the ids of a response object that the gateway did not mint."""
    owners = [
        ("resp", response),
        *((ID_PREFIXES.get(str(item.get("type")), "[a-z]+"), item) for item in response["output"]),
    ]
    return [text for prefix, owner in owners for _, text in _check_id(prefix, owner.get("id"))]


def _read_part(item: Item, index_name: str, verb: str, data: Data) -> Found:
    key, shown = (index_name, data.get(index_name, -1)), data.get("part") or {}
    part = item.parts.get(key)
    if verb == "added":
        if part is not None or key[1] != sum(1 for name, _ in item.parts if name == index_name):
            yield "part added first", f"{key} added twice or out of order"
        part = item.parts[key] = Part(str(shown.get("type")))
        if part.has_text and (shown.get("text") or shown.get("refusal")):
            yield "opening item", f"part added with {json.dumps(shown)[:80]}"
    elif part is None or part.closed:
        yield "part added first", f"{key} is done but was not open"
    else:
        part.closed, part.whole = True, shown
        if not part.text_done and part.has_text:
            yield "part closed", f"{key} is done before its text"
        if shown.get("type") != part.type or _said_of(shown) != part.said:
            yield "text", f"the done part {key} differs from its deltas"


def _read_text(item: Item, family: str, verb: str, data: Data) -> Found:
    part_type, name, index_name = CHANNELS[family]
    key = (index_name, data.get(index_name, -1)) if index_name else ("item", 0)
    part = item.parts.get(key)
    if part is None or part.closed or (part_type is not None and part.type != part_type):
        yield "part added first", f"{family}.{verb} without an open {part_type or 'call'} at {key}"
        return
    if family == "response.output_text" and verb in ("delta", "done") and not isinstance(data.get("logprobs"), list):
        yield "logprobs", f"logprobs is {data.get('logprobs')!r}"
    if verb == "delta":
        if part.text_done:
            yield "text", f"a delta at {key} after its done text"
        part.pieces.append(str(data.get("delta")))
    elif verb == "done":
        if part.text_done:
            yield "text", f"{family}.done at {key} came twice"
        part.text_done = True
        if data.get(name) != part.said:
            yield "text", f"{name} of {family}.done differs from its deltas at {key}"


def _read_command(item: Item, verb: str, data: Data) -> Found:
    key = ("command_index", data.get("command_index", -1))
    part = item.parts.get(key)
    if verb == "added":
        if part is not None or key[1] != len(item.parts) or data.get("command"):
            yield "part added first", f"{key} added twice, out of order or not empty"
        item.parts[key] = Part("")
    elif part is None or part.closed:
        yield "part added first", f"{key} has a {verb} but was not open"
    elif verb == "delta":
        part.pieces.append(str(data.get("delta")))
    else:
        part.text_done = part.closed = True
        if data.get("command") != part.said:
            yield "text", f"the done command {key} differs from its deltas"


def _compare_texts(item: Item, shown: Data) -> Found:
    """Compare an item's parts and arguments with what its deltas said."""
    if ("item", 0) in item.parts:
        if shown.get("arguments", shown.get("input")) != item.parts["item", 0].said:
            yield "text", f"arguments of {item.id} differ from their deltas"
        return
    if shown.get("type") == "shell_call":
        if shown["action"]["commands"] != [part.said for part in item.parts.values()]:
            yield "text", f"commands of {item.id} differ from their deltas"
        return
    if shown.get("type") == "agent_message":
        return  # It is told whole.
    for index_name, name in (("content_index", "content"), ("summary_index", "summary")):
        streamed = [part.said for (kind, _), part in item.parts.items() if kind == index_name]
        if streamed != [_said_of(part) for part in shown.get(name) or []]:
            yield "text", f"{name} of {item.id} differs from its deltas"


def _said_of(part: Data) -> Any:
    if part.get("type") not in PART_TYPES:
        return part
    return part.get("refusal") if part.get("type") == "refusal" else part.get("text")


def _check_id(prefix: str, id_: Any) -> Found:
    if not isinstance(id_, str) or not re.fullmatch(rf"{prefix}_[0-9a-f]{{32}}", id_):
        yield "own ids", f"id {id_!r} is not {prefix}_ and 32 hex digits"


def _differ(output: list[Data], items: list[Item]) -> str:
    done = [item.done for item in items]
    pairs = [place for place, (shown, item) in enumerate(zip(output, done, strict=False)) if shown != item]
    return f"{len(output)} against {len(done)} items, different at {pairs}"
