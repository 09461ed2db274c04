"""What an inference server can do wrong: the caller gets a clear error, nothing is kept, the gateway serves on."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from conformance.verdict import judge_stream
from harness.client import Answer, create
from harness.engine import frame, says
from harness.processes import Gateway, free_port
from harness.upstream import Reply, Request, Script, Upstream

TEXT = "the first words and the rest"
HTML = b"<html><body>Bad gateway</body></html>"


def begin(then: Callable[[Reply], object]) -> Script:
    """A stream that is fine until after its first words."""

    async def script(request: Request, reply: Reply) -> None:
        await reply.head()
        await reply.send(b"".join(says(TEXT, chunk=15).frames()[:5]))
        outcome = then(reply)
        if asyncio.iscoroutine(outcome):
            await outcome

    return script


def whole(body: bytes, status: int = 200, content_type: str = "application/json", **headers: str) -> Script:
    """A complete answer that is not what was asked for."""

    async def script(request: Request, reply: Reply) -> None:
        await reply.whole(body, status, content_type, **headers)

    return script


def refuse(status: int, message: str, **headers: str) -> Script:
    """An error in the words of an inference server, with its numeric code."""
    error = {"message": message, "type": "SomeError", "param": "input", "code": status}
    return whole(json.dumps({"error": error}).encode(), status, **headers)


async def stall(request: Request, reply: Reply) -> None:
    await asyncio.sleep(30)


async def hang_up(request: Request, reply: Reply) -> None:
    reply.cut()


async def cut_the_json_body(request: Request, reply: Reply) -> None:
    body = json.dumps(says(TEXT).response).encode()
    await reply.head(200, "application/json", len(body))
    await reply.send(body[: len(body) // 2])
    reply.cut()


async def send_error_event(reply: Reply) -> None:
    error = {"code": "engine_error", "message": "the engine gave up", "param": None}
    await reply.send(frame({"type": "error", "sequence_number": 5, **error}))
    await reply.end()


async def send_bare_error(reply: Reply) -> None:
    await reply.send(b'data: {"error":{"code":500,"message":"the engine gave up","type":"server_error"}}\n\n')
    await reply.end()


async def send_nonsense(reply: Reply) -> None:
    await reply.send(b"data: {not json\n\n")
    await asyncio.sleep(30)


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and what the caller of a stream and of a JSON call is told."""

    name: str
    script: Script
    stream: bool
    status: int
    code: str | None = None
    words: str = ""


# A stream that had begun, so status 200 was sent: it ends in response.failed.
BEGUN = [
    Fault("stalls mid stream", begin(lambda reply: asyncio.sleep(30)), True, 200, "upstream_timeout"),
    Fault("cuts the connection", begin(lambda reply: reply.cut()), True, 200),
    Fault("ends without a terminal", begin(lambda reply: reply.end()), True, 200),
    Fault("sends an error event", begin(send_error_event), True, 200, words="the engine gave up"),
    Fault("sends a bare error", begin(send_bare_error), True, 200, words="the engine gave up"),
    Fault("sends nonsense", begin(send_nonsense), True, 200),
]
# Nothing had begun, so the HTTP status tells.
REFUSED = [
    Fault("stalls", stall, True, 504, "upstream_timeout"),
    Fault("hangs up", hang_up, True, 502, "upstream_unavailable"),
    Fault("answers HTML to a stream", whole(HTML, content_type="text/html"), True, 502, "upstream_invalid_body"),
    Fault("fails with HTML", whole(HTML, 502, "text/html"), True, 502),
    Fault("fails", refuse(500, "out of memory"), True, 502),
    Fault("is overloaded", refuse(503, "too busy"), True, 503, words="too busy"),
    Fault("refuses", refuse(400, "the prompt is too strange"), True, 400, words="the prompt is too strange"),
    Fault("stalls", stall, False, 504, "upstream_timeout"),
    Fault("hangs up", hang_up, False, 502, "upstream_unavailable"),
    Fault("cuts the body", cut_the_json_body, False, 502),
    Fault("answers HTML", whole(HTML, content_type="text/html"), False, 502, "upstream_invalid_body"),
    Fault("answers garbage", whole(b'{"id": "resp_'), False, 502, "upstream_invalid_body"),
    Fault("answers something else", whole(b'{"hello": "world"}'), False, 502, "upstream_invalid_body"),
    Fault("answers a list", whole(b"[]"), False, 502, "upstream_invalid_body"),
    Fault("fails", refuse(500, "out of memory"), False, 502),
    Fault("limits", refuse(429, "slow down", Retry_After="7"), False, 429, "rate_limit_exceeded", "slow down"),
]


def ask(gateway: Gateway, upstream: Upstream, fault: Fault) -> tuple[str, Answer]:
    model = upstream.script(f"{fault.name} {fault.stream}", fault.script)
    return model, create(gateway.port, {"model": model, "input": "hi", "stream": fault.stream})


def expect_no_harm(gateway: Gateway, upstream: Upstream, model: str) -> None:
    """Nothing was kept of the failed call, and the next one succeeds."""
    assert gateway.rows(model) == 0
    healthy = create(gateway.port, {"model": upstream.script("healthy", says("well")), "input": "hi", "stream": True})
    assert judge_stream(healthy.body) == []
    assert healthy.deltas() == "well"


@pytest.mark.checklist(33, 35, 37, 38)
@pytest.mark.parametrize("fault", BEGUN, ids=lambda fault: fault.name)
def test_a_stream_that_breaks_ends_as_failed(serving: Gateway, upstream: Upstream, fault: Fault) -> None:
    model, answer = ask(serving, upstream, fault)
    assert answer.status == 200, answer.body
    assert judge_stream(answer.body) == []
    assert answer.final["status"] == "failed"
    assert answer.deltas() == TEXT[:15]
    assert answer.final["output"][0]["content"][0]["text"] == TEXT[:15]
    error = answer.final["error"]
    assert fault.code in (None, error["code"])
    assert fault.words in error["message"]
    assert error["message"]
    expect_no_harm(serving, upstream, model)


@pytest.mark.checklist(32, 56)
@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: f"{fault.name}, {'stream' if fault.stream else 'JSON'}")
def test_a_call_that_never_began_gets_a_status(serving: Gateway, upstream: Upstream, fault: Fault) -> None:
    model, answer = ask(serving, upstream, fault)
    assert answer.status == fault.status, answer.body
    error = answer.error
    assert isinstance(error["code"], str)
    assert isinstance(error["type"], str)
    assert fault.code in (None, error["code"])
    assert fault.words in error["message"]
    assert error["message"]
    assert "Traceback" not in answer.body.decode()
    expect_no_harm(serving, upstream, model)


def test_retry_after_reaches_the_caller(serving: Gateway, upstream: Upstream) -> None:
    model = upstream.script("limits politely", refuse(429, "slow down", Retry_After="7"))
    assert create(serving.port, {"model": model, "input": "hi"}).headers["retry-after"] == "7"


def test_no_upstream_at_all(start_gateway: Callable[..., Gateway]) -> None:
    gateway = start_gateway(url=f"http://127.0.0.1:{free_port()}")
    answer = create(gateway.port, {"model": "any", "input": "hi", "stream": True})
    assert answer.status == 502
    assert answer.error["code"] == "upstream_unavailable"
    assert gateway.rows() == 0
