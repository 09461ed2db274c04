"""The models `fixture-SIZE-CHUNK`: an answer of known size in deltas of known size, the same bytes every time.

They show that limits follow what an answer holds and not how finely it is streamed. The ids never change, every
snapshot repeats the whole text, and the stream is `data:` lines with a `[DONE]`, as of an older server.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

MAX_FIXTURE_BYTES = 64 * 1024 * 1024
MAX_FIXTURE_DELTAS = 1_000_000
_NAME = re.compile(r"fixture-([1-9]\d{0,8})-([1-9]\d{0,8})")
_CREATED_AT = 1789151000


class Fixture(Struct, frozen=True):
    """An answer of `size` bytes in deltas of `chunk` bytes."""

    size: int
    chunk: int

    def document(self) -> bytes:
        """Return the answer as one JSON body."""
        return msgspec.json.encode(self._response())

    def stream(self) -> bytes:
        """Return the answer as one event stream."""
        events = chain(self._opening(), self._deltas(), self._closing())
        numbered = (
            b"data: %b\n\n" % msgspec.json.encode({"type": type, "sequence_number": number, **fields})
            for number, (type, fields) in enumerate(events)
        )
        return b"".join(numbered) + b"data: [DONE]\n\n"

    def chat_document(self) -> bytes:
        """Return the answer as one JSON body of a chat."""
        message = {"role": "assistant", "content": "x" * self.size}
        return msgspec.json.encode(_chat("chat.completion", message=message, finish_reason="stop"))

    def chat_stream(self) -> bytes:
        """Return the answer as one event stream of a chat."""
        texts = ("x" * min(self.chunk, self.size - at) for at in range(0, self.size, self.chunk))
        chunks = [
            *(_chat("chat.completion.chunk", delta={"content": text}) for text in texts),
            _chat("chat.completion.chunk", delta={}, finish_reason="stop"),
        ]
        return b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks) + b"data: [DONE]\n\n"

    def _opening(self) -> list[tuple[str, dict[str, Any]]]:
        response = {**self._response(), "status": "in_progress", "output": []}
        item = {**self._item(), "status": "in_progress", "content": []}
        return [
            ("response.created", {"response": response}),
            ("response.in_progress", {"response": response}),
            ("response.output_item.added", {"output_index": 0, "item": item}),
            ("response.content_part.added", {**_place(), "part": {**self._part(), "text": ""}}),
        ]

    def _deltas(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for at in range(0, self.size, self.chunk):
            yield "response.output_text.delta", {**_place(), "delta": "x" * min(self.chunk, self.size - at)}

    def _closing(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            ("response.output_text.done", {**_place(), "text": "x" * self.size}),
            ("response.content_part.done", {**_place(), "part": self._part()}),
            ("response.output_item.done", {"output_index": 0, "item": self._item()}),
            ("response.completed", {"response": self._response()}),
        ]

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": "x" * self.size, "annotations": []}

    def _item(self) -> dict[str, Any]:
        return {
            "id": "msg_fixture",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [self._part()],
        }

    def _response(self) -> dict[str, Any]:
        return {
            "id": "resp_fixture",
            "object": "response",
            "created_at": _CREATED_AT,
            "model": "fixture",
            "status": "completed",
            "output": [self._item()],
            "error": None,
            "incomplete_details": None,
        }


def _chat(kind: str, **choice: Any) -> dict[str, Any]:
    head = {"id": "chatcmpl-fixture", "object": kind, "created": _CREATED_AT, "model": "fixture"}
    return {**head, "choices": [{"index": 0, **choice}]}


def _place() -> dict[str, Any]:
    return {"output_index": 0, "item_id": "msg_fixture", "content_index": 0}


def find_fixture(model: str) -> Fixture | None:
    """Return the fixture a model name asks for, or None when it is no such name or larger than allowed."""
    named = _NAME.fullmatch(model)
    if named is None:
        return None
    fixture = Fixture(int(named[1]), int(named[2]))
    allowed = fixture.size <= MAX_FIXTURE_BYTES and fixture.size // fixture.chunk <= MAX_FIXTURE_DELTAS
    return fixture if allowed else None
