"""Turns on a WebSocket: ask for them, judge what came, and hold the inference server back while they run."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from conformance.verdict import judge_stream
from harness.engine import Answer as EngineAnswer
from harness.engine import frame, says
from harness.frames import Event
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
LONGEST_LANE = (ALPHABET * 4)[:256]
CREATED, COMPLETED, FAILED = "response.created", "response.completed", "response.failed"
LIMIT_CODE = "response_resource_limit_exceeded"


# ---------------------------------------------------------------- the inference server


class Held:
    """An answer that stops after its first words until it is let go.

    Attributes:
        model: the name of the model that answers so.
        release: lets every call go on.
    """

    def __init__(self, upstream: Upstream, model: str, text: str = "first words and the rest", first: int = 12) -> None:
        self.model = upstream.script(model, self)
        self.release = threading.Event()
        self.first_words = text[:first]
        frames = EngineAnswer(says(text).items, chunk=first).frames()
        self._opening, self._rest = b"".join(frames[:5]), b"".join(frames[5:])

    async def __call__(self, request: Request, reply: Reply) -> None:
        await reply.head()
        await reply.send(self._opening)
        while not self.release.is_set():
            await asyncio.sleep(0.005)
        await reply.send(self._rest)
        await reply.end()


async def echo(request: Request, reply: Reply) -> None:
    """Repeat the last thing the caller said."""
    given = request.body["input"]
    last = given if isinstance(given, str) else text_of(given[-1])
    await says(f"you said {last}")(request, reply)


async def begin_and_fail(request: Request, reply: Reply) -> None:
    """Begin to answer, then end with an error event."""
    await reply.head()
    await reply.send(b"".join(says("broken off").frames()[:5]))
    await reply.send(frame({"type": "error", "code": "engine_error", "message": "the engine gave up", "param": None}))
    await reply.end()


def refuse(status: int, message: str = "no") -> Callable[[Request, Reply], Any]:
    """Answer with an error in the words of an inference server."""

    async def script(request: Request, reply: Reply) -> None:
        await reply.json({"error": {"message": message, "type": "SomeError", "param": None, "code": status}}, status)

    return script


def text_of(item: dict[str, Any]) -> str:
    """The text of one message, of whichever role."""
    content = item.get("content", "")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def texts_sent(upstream: Upstream, model: str, call: int = -1) -> list[str]:
    """What the model was shown by one call, message by message."""
    given = upstream.calls(model)[call].body["input"]
    return [given] if isinstance(given, str) else [text_of(item) for item in given]


def await_calls(upstream: Upstream, model: str, number: int, timeout: float = 20.0) -> list[Request]:
    """Return so many calls for a model, waiting for the last one."""
    deadline = time.monotonic() + timeout
    while len(calls := upstream.calls(model)) < number:
        assert time.monotonic() < deadline, f"only {len(calls)} of {number} calls for {model} arrived"
        time.sleep(0.005)
    return calls


# ---------------------------------------------------------------- one turn


def ask(socket: WebSocket, model: str, given: Any = "hi", parent: str | None = None, **fields: Any) -> list[Event]:
    """Send one create and return the events of its lane up to the end."""
    if parent is not None:
        fields["previous_response_id"] = parent
    socket.create(model, given, **fields)
    return socket.events_until_terminal(fields.get("stream_id"))


def told(socket: WebSocket, model: str, given: Any = "hi", parent: str | None = None, **fields: Any) -> str:
    """Ask, expect a sound answer and return its id."""
    events = ask(socket, model, given, parent, **fields)
    expect_sound(events, fields.get("stream_id"))
    return id_of(events)


def await_begun(socket: WebSocket, lanes: set[str | None]) -> None:
    """Read until each of these lanes has begun to say something; what was read stays to be asked for."""
    seen: list[Event] = []
    while lanes - {event.get("stream_id") for event in seen if event["type"] == "response.output_text.delta"}:
        seen.append(socket.next_event())
    socket.unread[:0] = seen


def final(events: Sequence[Event]) -> dict[str, Any]:
    """The response of the terminal event."""
    response: dict[str, Any] = events[-1]["response"]
    return response


def id_of(events: Sequence[Event]) -> str:
    return str(events[0]["response"]["id"])


def deltas(events: Sequence[Event]) -> str:
    """The text that was streamed."""
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def judge(events: Sequence[Event]) -> list[str]:
    """Return every fault of one whole turn, held to what holds for a stream over HTTP."""
    blocks = []
    for event in events:
        plain = {name: value for name, value in event.items() if name != "stream_id"}
        blocks.append(f"event: {event['type']}\ndata: {json.dumps(plain, ensure_ascii=False)}\n\n")
    return judge_stream("".join([*blocks, "data: [DONE]\n\n"]).encode())


def expect_tags(events: Sequence[Event], stream_id: str | None) -> None:
    """Each event of a named lane carries its name, no event of the default lane carries anything."""
    if stream_id is None:
        assert [event["type"] for event in events if "stream_id" in event] == []
    else:
        assert [event["type"] for event in events if event.get("stream_id") != stream_id] == []


def expect_sound(events: Sequence[Event], stream_id: str | None = None) -> None:
    """A turn that came to its end: well formed, numbered from 0, tagged."""
    assert events[-1]["type"] in {COMPLETED, "response.incomplete"}, events[-1]
    assert judge(events) == []
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    expect_tags(events, stream_id)


def expect_failed(events: Sequence[Event], code: str | None = None, stream_id: str | None = None) -> None:
    """A turn that began and failed, well formed all the same."""
    assert events[-1]["type"] == FAILED, events[-1]
    assert judge(events) == []
    expect_tags(events, stream_id)
    error = final(events)["error"]
    assert code in (None, error["code"]), error
    assert error["message"]


def expect_error(
    event: Event,
    code: str,
    param: str | None = None,
    status: int = 400,
    stream_id: str | None = None,
    event_id: str | None = None,
    kind: str = "invalid_request_error",
) -> None:
    """An error frame of a create that never began, with all its members and no others."""
    assert event["type"] == "error", event
    error = event["error"]
    assert (event["status"], error["type"], error["code"], error.get("param")) == (status, kind, code, param), event
    assert 10 < len(error["message"]) < 600
    echoed = {"stream_id": stream_id, "event_id": event_id}
    assert {name: event.get(name) for name in echoed} == echoed
    expected = {"type", "status", "error", *(name for name, value in echoed.items() if value is not None)}
    assert set(event) == expected


def refused(socket: WebSocket, model: str, parent: str, **fields: Any) -> None:
    """Continue from a response that is not there for this connection."""
    (event,) = ask(socket, model, "go on", parent, **fields)
    lane = fields.get("stream_id")
    expect_error(event, "previous_response_not_found", "previous_response_id", stream_id=lane)
    assert parent in event["error"]["message"]


def anonymous(value: Any) -> Any:
    """A JSON value with ids and times replaced."""
    if isinstance(value, dict):
        return {name: 0 if name.endswith("_at") and part else anonymous(part) for name, part in value.items()}
    if isinstance(value, list):
        return [anonymous(part) for part in value]
    return (
        re.sub(r"\b(resp|msg|rs|fc|call|ws|mcpl|mcpr|mcp)_[0-9a-f]{32}", r"\1_id", value)
        if isinstance(value, str)
        else value
    )
