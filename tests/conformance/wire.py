"""A client stream taken apart: what arrived, event by event, and whether it was framed as promised."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"


@dataclass(frozen=True)
class Violation:
    """One broken promise.

    Attributes:
        rule: name of the rule.
        event: number of the event in the stream from 0, or None for the stream as a whole.
        text: what was seen.
    """

    rule: str
    event: int | None
    text: str

    def __str__(self) -> str:
        where = "stream" if self.event is None else f"event {self.event}"
        return f"{where}: [{self.rule}] {self.text}"


@dataclass(frozen=True)
class WireEvent:
    """One event as it arrived; `data` is empty when it was not a JSON object with a string `type`."""

    number: int
    data: dict[str, Any]

    @property
    def type(self) -> str:
        return self.data.get("type", "")


def take_apart(stream: bytes) -> tuple[list[WireEvent], list[Violation]]:
    """Split a whole stream into its events, `[DONE]` left out, and the framing rules it breaks."""
    events: list[WireEvent] = []
    broken: list[Violation] = []
    *blocks, rest = stream.split(b"\n\n")
    if rest:
        broken.append(Violation("framing", None, f"bytes after the last blank line: {rest[:80]!r}"))
    blocks = [block for block in blocks if not _is_comment(block)]
    if not blocks or blocks[-1] != b"data: " + DONE.encode():
        broken.append(Violation("done marker", None, "the last block is not `data: [DONE]`"))
    for number, block in enumerate(block for block in blocks if block != b"data: " + DONE.encode()):
        data, faults = _read_block(block)
        events.append(WireEvent(number, data))
        broken += [Violation("framing", number, fault) for fault in faults]
    if blocks.count(b"data: " + DONE.encode()) > 1:
        broken.append(Violation("done marker", None, "`data: [DONE]` was sent more than once"))
    return events, broken


def _is_comment(block: bytes) -> bool:
    return all(line.startswith(b":") for line in block.split(b"\n"))


def _read_block(block: bytes) -> tuple[dict[str, Any], list[str]]:
    lines = [line for line in block.split(b"\n") if not line.startswith(b":")]
    names = [line[7:].decode(errors="replace") for line in lines if line.startswith(b"event: ")]
    payloads = [line[6:] for line in lines if line.startswith(b"data: ")]
    if len(names) != 1 or len(payloads) != 1 or len(lines) != 2:
        return {}, [f"expected one `event:` and one `data:` line, got {block[:120]!r}"]
    try:
        data = json.loads(payloads[0])
    except ValueError as error:
        return {}, [f"data is not JSON ({error}): {payloads[0][:80]!r}"]
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return {}, [f"data is not an object with a string `type`: {payloads[0][:80]!r}"]
    return data, list(_compare_names(names[0], data["type"]))


def _compare_names(name: str, type_: str) -> Iterator[str]:
    if name != type_:
        yield f"`event: {name}` but type {type_!r}"
