"""Answers that use an exact number of bytes of one limit, and what a breach looks like to the caller.

The limits are set so far apart that an answer made for one of them is well inside the other three.
"""

import json
from typing import Any

from conformance.verdict import judge_stream
from harness.client import Answer, client, create
from harness.engine import frame, says
from harness.processes import Gateway
from harness.upstream import Reply, Request, Script, Upstream

RETAINED = "max_retained_bytes"
JSON = "max_upstream_json_bytes"
LINE = "max_upstream_sse_line_bytes"
EVENT = "max_stream_event_bytes"
ALIASES = {
    RETAINED: "AGENTIC_MAX_RETAINED_RESPONSE_BYTES",
    JSON: "AGENTIC_MAX_UPSTREAM_JSON_BYTES",
    LINE: "AGENTIC_MAX_UPSTREAM_SSE_LINE_BYTES",
    EVENT: "AGENTIC_MAX_STREAM_EVENT_BYTES",
}
KEYS = tuple(ALIASES)
SMALL = {RETAINED: 2048, JSON: 4096, LINE: 4096, EVENT: 4096}


def settings(limits: dict[str, int]) -> dict[str, str]:
    """The limits as flags of the command."""
    return {f"responses.{key}": str(value) for key, value in limits.items()}


def charge(value: Any) -> int:
    """Bytes an item is charged: 32 for each JSON value, and the UTF-8 of strings on top."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 32 + (len(value.encode()) if isinstance(value, str) else 0) + sum(map(charge, inside))


def data_sizes(stream: bytes) -> list[int]:
    """The size of each event's data, `[DONE]` left out."""
    lines = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: {")]
    return [len(line) for line in lines]


class Sizer:
    """Asks gateways for answers of exact sizes; what a gateway adds is read off a first run under ample limits.

    Args:
        upstream: the inference server behind every gateway asked.
        ample: a gateway whose limits these answers never meet.
    """

    def __init__(self, upstream: Upstream, ample: Gateway) -> None:
        self._upstream = upstream
        self._ample = ample

    def ask(self, gateway: Gateway, key: str, size: int, *, stream: bool) -> Answer:
        """Ask for an answer that uses `size` bytes of one limit."""
        self._upstream.script(key, self._script(key, size))
        return create(gateway.port, {**request(key), "stream": stream})

    def first_event(self, key: str) -> int:
        """Return the size of the first event a stream begins with."""
        return data_sizes(self._first_run(key).body)[0]

    def _script(self, key: str, size: int) -> Script:
        if key == JSON:
            return body_of(size)
        if key == LINE:
            return line_of(size)
        first = self._first_run(key)
        used = sum(map(charge, first.final["output"])) if key == RETAINED else data_sizes(first.body)[-1]
        return says("x" * (1 + size - used), chunk=size)

    def _first_run(self, key: str) -> Answer:
        """An answer of one letter."""
        self._upstream.script(key, says("x"))
        return create(self._ample.port, {**request(key), "stream": True})


def request(key: str) -> dict[str, Any]:
    """The request that goes with a limit; instructions are echoed in events and cost nothing else."""
    return {"model": key, "input": "hi", **({"instructions": "i" * 2400} if key == EVENT else {})}


def body_of(size: int) -> Script:
    """One JSON body of exactly `size` bytes, whatever was asked for."""
    bare = json.dumps({**says("fine").response, "padding": ""})
    body = bare.replace('"padding": ""', f'"padding": "{"p" * (size - len(bare))}"').encode()
    assert len(body) == size

    async def answer(_: Request, reply: Reply) -> None:
        await reply.whole(body)

    return answer


def line_of(size: int) -> Script:
    """An event stream whose last line of data has exactly `size` bytes, whatever was asked for."""
    *before, last = says("fine").events()
    bare = max(map(len, frame({**last, "padding": ""}).split(b"\n")))
    closing = frame({**last, "padding": "p" * (size - bare)})
    assert max(map(len, closing.split(b"\n"))) == size

    async def answer(_: Request, reply: Reply) -> None:
        await reply.stream(b"".join(map(frame, before)), closing)

    return answer


def expect_success(answer: Answer, *, stream: bool) -> None:
    """The answer is whole."""
    assert answer.status == 200, answer.body
    if stream:
        assert judge_stream(answer.body) == []
    assert (answer.final if stream else answer.json)["status"] == "completed", answer.body


def expect_breach(answer: Answer, key: str, limit: int, *, stream: bool) -> None:
    """The answer names the limit, in the form that fits how far it had come."""
    # An inference server that answers a stream with one JSON body is refused before anything was sent.
    if not stream or key == JSON:
        assert answer.status == 502, answer.body
        assert answer.headers["x-should-retry"] == "false"
        error = {name: answer.error[name] for name in ("code", "param", "resource", "limit")}
        named = {"code": "response_resource_limit_exceeded", "param": None, "resource": key, "limit": limit}
        assert error == named
        return
    assert answer.status == 200, answer.body
    assert judge_stream(answer.body) == []
    assert answer.events[-1]["type"] == "response.failed", answer.body
    assert answer.final["error"]["code"] == "response_resource_limit_exceeded"
    assert f"{key} ({limit} bytes)" in answer.final["error"]["message"]


def expect_no_trace(gateway: Gateway, answer: Answer) -> None:
    """What the caller was told of cannot be read."""
    told = [event["response"]["id"] for event in answer.events if "response" in event]
    with client(gateway.port) as reader:
        assert [reader.get(f"/v1/responses/{id_}").status for id_ in set(told)] in ([], [404])
