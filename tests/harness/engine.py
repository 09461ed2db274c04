"""Answers as an inference server words them: whole event streams and JSON bodies built from plain texts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.upstream import Reply, Request, Script

Event = dict[str, Any]
USAGE = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 12,
}


def frame(event: Event) -> bytes:
    """Encode one event as an engine does."""
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


def message(text: str, status: str = "completed") -> Event:
    """An assistant message item."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
    return {"id": "msg_engine", "type": "message", "role": "assistant", "status": status, "content": [part]}


def reasoning(text: str) -> Event:
    """A reasoning item with plain reasoning text."""
    content = [{"type": "reasoning_text", "text": text}]
    return {"id": "rs_engine", "type": "reasoning", "summary": [], "content": content, "status": None}


def call(name: str, arguments: str, call_id: str) -> Event:
    """A function call item."""
    item = {"id": f"fc_{call_id}", "type": "function_call", "status": "completed"}
    return {**item, "name": name, "arguments": arguments, "call_id": call_id}


@dataclass
class Answer:
    """One engine answer, to be sent as a stream or as JSON.

    Attributes:
        items: the output items, complete.
        chunk: characters per delta.
        deltas: the exact deltas of each item, instead of `chunk`.
        status: `completed` or `incomplete`; the terminal event is `response.completed` either way, as vLLM's is.
        repeats: how often every done snapshot is sent.
    """

    items: Sequence[Event]
    chunk: int = 16
    deltas: Sequence[Sequence[str]] | None = None
    status: str = "completed"
    repeats: int = 1
    usage: Event | None = field(default_factory=lambda: dict(USAGE))

    @property
    def response(self) -> Event:
        """The final response object."""
        return self._snapshot(self.status, list(self.items), self.usage)

    def events(self) -> Iterable[Event]:
        """The whole stream, numbered."""
        for number, event in enumerate(self._unnumbered()):
            yield {**event, "sequence_number": number}

    def frames(self) -> list[bytes]:
        """The whole stream, encoded event by event."""
        return [frame(event) for event in self.events()]

    async def __call__(self, request: Request, reply: Reply) -> None:
        """Serve as a script: a stream when the call asks for one, else JSON."""
        if request.body.get("stream"):
            await reply.stream(b"".join(self.frames()))
        else:
            await reply.json(self.response)

    def _snapshot(self, status: str, output: list[Event], usage: Event | None) -> Event:
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        known = {"id": "resp_engine", "object": "response", "created_at": 1790000000, "model": "engine"}
        return {**known, "status": status, "output": output, "usage": usage, "incomplete_details": reason}

    def _unnumbered(self) -> Iterable[Event]:
        initial = self._snapshot("in_progress", [], None)
        yield {"type": "response.created", "response": initial}
        yield {"type": "response.in_progress", "response": initial}
        for index, item in enumerate(self.items):
            yield from self._item(index, item)
        yield {"type": "response.completed", "response": self.response}

    def _item(self, index: int, item: Event) -> Iterable[Event]:
        bare = {**item, "status": "in_progress", **({"arguments": ""} if "arguments" in item else {"content": []})}
        yield {"type": "response.output_item.added", "output_index": index, "item": bare}
        if "arguments" in item:
            yield from self._arguments(index, item)
        for place, part in enumerate(item.get("content", [])):
            yield from self._part({"output_index": index, "item_id": item["id"], "content_index": place}, part)
        for _ in range(self.repeats):
            yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _part(self, place: Event, part: Event) -> Iterable[Event]:
        kind = f"response.{part['type']}"
        logprobs = {"logprobs": []} if part["type"] == "output_text" else {}
        yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        for piece in self._pieces(place["output_index"], part["text"]):
            yield {"type": f"{kind}.delta", **place, "delta": piece, **logprobs}
        for _ in range(self.repeats):
            yield {"type": f"{kind}.done", **place, "text": part["text"], **logprobs}
        for _ in range(self.repeats):
            yield {"type": "response.content_part.done", **place, "part": part}

    def _arguments(self, index: int, item: Event) -> Iterable[Event]:
        place = {"output_index": index, "item_id": item["id"]}
        for piece in self._pieces(index, item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}

    def _pieces(self, index: int, text: str) -> Sequence[str]:
        if self.deltas is not None:
            return self.deltas[index]
        return [text[at : at + self.chunk] for at in range(0, len(text), self.chunk)]


def says(text: str, chunk: int = 16) -> Answer:
    """The usual answer: one message."""
    return Answer([message(text)], chunk)


def in_turn(*scripts: Script) -> Script:
    """Play one script per call, in order; the last one is played again ever after."""
    waiting = list(scripts)

    async def play(request: Request, reply: Reply) -> None:
        script = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        await script(request, reply)

    return play
