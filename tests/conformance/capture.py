"""Recordings of real engines: what was asked, the bytes that came back, and what they say.

A capture is `NAME.request.json`, `NAME.headers.txt`, `NAME.response.raw` and, for chunked bodies, `NAME.timing.json`
with `[milliseconds, bytes]` per HTTP chunk; big ones are gzipped. A note in the headers file says that the body was
cut, by the engine or by the recording client.
"""

import gzip
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.upstream import Reply, Request

FOLDER = Path(__file__).with_name("captures")
STANDARD_USAGE = (
    ("input_tokens",),
    ("output_tokens",),
    ("total_tokens",),
    ("input_tokens_details", "cached_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """One output item reduced to what the model said.

    Attributes:
        text: message text, reasoning text or call arguments.
        name: function name of a call.
    """

    type: str
    text: str
    name: str | None = None


@dataclass(frozen=True)
class Capture:
    """One recorded exchange.

    Attributes:
        name: folder and file name; also the model name that selects it in a replay.
        chunks: sizes of the HTTP chunks in order; a body of known length is one chunk.
        cut: the body broke off.
    """

    name: str
    asked: Json
    raw: bytes
    chunks: tuple[int, ...]
    cut: bool

    @property
    def streams(self) -> bool:
        return bool(self.asked.get("stream"))

    @property
    def request(self) -> Json:
        """The recorded request for a gateway that has no state of the recording: self-contained, in the foreground.

        Parents, conversations and background runs lived in the recorded server; a recorded tool output gets the call
        it answers put before it.
        """
        kept = {
            name: value
            for name, value in self.asked.items()
            if name not in ("previous_response_id", "conversation", "background")
        }
        return {**kept, "model": self.name, "input": _with_calls(kept["input"])}

    @cached_property
    def events(self) -> list[Json]:
        """The engine's events; the last one of a cut body may be missing."""
        blocks = [block for block in self.raw.split(b"\n\n") if b"data: " in block]
        whole = blocks if self.raw.endswith(b"\n\n") else blocks[:-1]
        return [json.loads(block.partition(b"data: ")[2]) for block in whole]

    @cached_property
    def final(self) -> Json | None:
        """The engine's final response object, or None when it never came."""
        if not self.streams:
            return json.loads(self.raw)
        return next((event["response"] for event in self.events if event.get("type") == "response.completed"), None)

    @property
    def status(self) -> str:
        """How the response ends for the caller."""
        if self.cut or self.final is None:
            return "failed"
        return str(self.final["status"])

    @cached_property
    def said(self) -> list[Said]:
        """What the engine said, item by item: its deltas, or the items of a JSON body."""
        if not self.streams:
            assert self.final is not None
            return [said_by(item) for item in self.final["output"]]
        return said_in(self.events)


def said_by(item: Json) -> Said:
    """Reduce an output item to what it says."""
    if item["type"] == "function_call":
        return Said("function_call", item["arguments"], item["name"])
    parts = item.get("content") or []
    return Said(item["type"], "".join(part.get("text", "") for part in parts))


def said_in(events: list[Json]) -> list[Said]:
    """Reduce a stream to what its deltas say, in the order in which the items were added."""
    items: dict[str, Json] = {}
    texts: dict[str, str] = {}
    for event in events:
        if event.get("type") == "response.output_item.added":
            items[event["item"]["id"]] = event["item"]
            texts[event["item"]["id"]] = ""
        elif str(event.get("type")).endswith(".delta"):
            texts[event["item_id"]] += event["delta"]
    return [Said(item["type"], texts[id_], item.get("name")) for id_, item in items.items()]


def standard_usage(usage: Json | None) -> dict[str, int]:
    """The usage figures every server reports; what is absent counts 0."""

    def dig(path: tuple[str, ...]) -> int:
        value: Any = usage
        for name in path:
            value = (value or {}).get(name)
        return value or 0

    return {".".join(path): dig(path) for path in STANDARD_USAGE}


def load(name: str) -> Capture:
    """Load one capture by its name."""
    headers = (FOLDER / f"{name}.headers.txt").read_text()
    raw = _read(f"{name}.response.raw")
    assert raw is not None, f"{name} has no recorded body"
    timing = [size for at, size in json.loads(_read(f"{name}.timing.json") or b"[]") if at != "head"]
    asked = json.loads((FOLDER / f"{name}.request.json").read_text())["body"]
    return Capture(name, asked, raw, tuple(timing) or (len(raw),), "# note:" in headers)


def names() -> list[str]:
    """The names of all captures."""
    suffix = ".request.json"
    return sorted(str(path.relative_to(FOLDER))[: -len(suffix)] for path in FOLDER.glob(f"*/*{suffix}"))


async def replay(request: Request, reply: Reply) -> None:
    """Answer like the engine of the capture that the model names: the same bytes in the same chunks, without pauses."""
    capture = load(request.body["model"])
    if not capture.streams:
        await reply.whole(capture.raw)
        return
    await reply.head()
    at = 0
    for size in capture.chunks:
        await reply.send(capture.raw[at : at + size])
        at += size
    if capture.cut:
        reply.cut()
    else:
        await reply.end()


def _read(name: str) -> bytes | None:
    plain, packed = FOLDER / name, FOLDER / f"{name}.gz"
    if packed.exists():
        return gzip.decompress(packed.read_bytes())
    return plain.read_bytes() if plain.exists() else None


def _with_calls(given: Any) -> Any:
    if not isinstance(given, list):
        return given
    known = {item.get("call_id") for item in given if item.get("type") == "function_call"}
    answered = [item["call_id"] for item in given if item.get("type") == "function_call_output"]
    call = {"type": "function_call", "name": "get_weather", "arguments": "{}"}
    return [*({**call, "call_id": call_id} for call_id in answered if call_id not in known), *given]
