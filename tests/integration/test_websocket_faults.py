"""What goes wrong behind a WebSocket: told once in the right form, nothing kept, the lane free, the connection open."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.client import client, create
from harness.engine import Answer as EngineAnswer
from harness.engine import call, frame, in_turn, message, reasoning, says
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket
from integration.test_faults import BEGUN, REFUSED, TEXT, Fault
from integration.turns import (
    Held,
    ask,
    await_begun,
    deltas,
    expect_error,
    expect_failed,
    expect_sound,
    expect_tags,
    final,
    id_of,
    judge,
    refuse,
    refused,
    told,
)
from integration.watched import WatchedGateway

# The command itself, but calls for the model `faulty` meet a fault of the program.
FAULTY = """
import sys
from gateway.cli.main import main
from gateway.upstream.client import HttpUpstream

open_call = HttpUpstream.open

async def open_or_fail(self, call):
    if b'"faulty"' in call.body:
        raise RuntimeError("nobody foresaw this")
    return await open_call(self, call)

HttpUpstream.open = open_or_fail
sys.argv[0] = "gateway"
main()
"""

STREAMED = [fault for fault in REFUSED if fault.stream]
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def socket(serving: Gateway, upstream: Upstream) -> Iterator[WebSocket]:
    """A connection that serves on after the test."""
    with WebSocket(serving.port) as running:
        yield running
        told(running, upstream.script("ws healthy", says("well")))


# ---------------------------------------------------------------- the inference server fails


@pytest.mark.checklist(33, 35, 38, 50)
@pytest.mark.parametrize("lane", [None, "a"])
@pytest.mark.parametrize("fault", BEGUN, ids=lambda fault: fault.name)
def test_a_turn_that_breaks_ends_as_failed(
    serving: Gateway, socket: WebSocket, upstream: Upstream, fault: Fault, lane: str | None
) -> None:
    model = upstream.script(f"ws {fault.name} {lane}", fault.script)
    fields = {} if lane is None else {"stream_id": lane}
    events = ask(socket, model, **fields)
    expect_failed(events, fault.code, lane)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert deltas(events) == TEXT[:15]
    assert final(events)["output"][0]["content"][0]["text"] == TEXT[:15]
    assert fault.words in final(events)["error"]["message"]
    assert serving.rows(model) == 0
    with client(serving.port) as caller:
        assert caller.get(f"/v1/responses/{id_of(events)}").status == 404
    refused(socket, model, id_of(events), **fields)


@pytest.mark.checklist(32, 37, 56)
@pytest.mark.parametrize("lane", [None, "a"])
@pytest.mark.parametrize("fault", STREAMED, ids=lambda fault: fault.name)
def test_a_turn_that_never_began_is_an_error_with_a_status(
    serving: Gateway, socket: WebSocket, upstream: Upstream, fault: Fault, lane: str | None
) -> None:
    model = upstream.script(f"ws refused {fault.name} {lane}", fault.script)
    answer = create(serving.port, {"model": model, "input": "hi", "stream": True})
    (event,) = ask(socket, model, **({} if lane is None else {"stream_id": lane}))
    expect_tags([event], lane)
    assert (event["type"], event["status"]) == ("error", fault.status)
    assert {"param": None, **event["error"]} == answer.error
    assert fault.code in (None, event["error"]["code"])
    assert fault.words in event["error"]["message"]
    assert "sequence_number" not in event
    assert serving.rows(model) == 0


@pytest.mark.checklist(56)
def test_a_huge_refusal_is_cut(socket: WebSocket, upstream: Upstream) -> None:
    model = upstream.script("ws huge refusal", refuse(429, "slow down " * 500_000))
    (event,) = ask(socket, model)
    assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
    assert len(socket.frames[-1].payload) < 64 * 1024


@pytest.mark.checklist(62)
def test_twenty_refusals_close_nothing(socket: WebSocket, upstream: Upstream) -> None:
    model = upstream.script("ws refused often", in_turn(*[refuse(400)] * 20, says("well")))
    for _ in range(20):
        assert ask(socket, model)[0]["status"] == 400
        refused(socket, model, "resp_" + "0" * 32)
    told(socket, model)


@pytest.mark.checklist(34)
def test_what_is_no_event_of_ours_is_passed_over(socket: WebSocket, upstream: Upstream) -> None:
    async def script(request: Request, reply: Reply) -> None:
        first, *rest = says("fine").frames()
        strange = frame({"type": "response.something.new", "data": 1}) + b"data: {}\n\n: comment\n\n"
        await reply.stream(first, strange, *rest, b"data: [DONE]\n\n")

    events = ask(socket, upstream.script("ws strange", script))
    expect_sound(events)
    assert deltas(events) == "fine"


# ---------------------------------------------------------------- ends that are no failures


@pytest.mark.checklist(36, 38)
@pytest.mark.parametrize("transport", ["JSON", "SSE", "WebSocket"])
def test_a_length_limit_is_told_the_same_everywhere(
    serving: Gateway, socket: WebSocket, upstream: Upstream, transport: str
) -> None:
    model = upstream.script("ws cut by length", EngineAnswer([message("half of")], status="incomplete"))
    if transport == "WebSocket":
        events = ask(socket, model)
        expect_sound(events)
        assert events[-1]["type"] == "response.incomplete"
        response = final(events)
    else:
        answer = create(serving.port, {"model": model, "input": "hi", "stream": transport == "SSE"})
        response = answer.final if transport == "SSE" else answer.json
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["content"][0]["text"] == "half of"


@pytest.mark.checklist(37, 38, 41, 42, 53)
@pytest.mark.parametrize(
    "items",
    [[message("text")], [call("f", "{}", "call_f")], [reasoning("so"), message("text"), call("f", "{}", "call_f")], []],
    ids=["text", "call", "all", "nothing"],
)
def test_what_is_kept_is_what_was_streamed(
    serving: Gateway, socket: WebSocket, upstream: Upstream, items: list[dict[str, Any]]
) -> None:
    model = upstream.script(f"ws kept {len(json.dumps(items))}", EngineAnswer(items))
    events = ask(socket, model, tools=[FUNCTION], stream_id="a")
    expect_sound(events, "a")
    ids = {event["response"]["id"] for event in events if "response" in event}
    assert len(ids) == 1
    with client(serving.port) as caller:
        assert caller.get(f"/v1/responses/{ids.pop()}").json == final(events)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == final(events)["output"]


@pytest.mark.checklist(61)
def test_an_engine_may_repeat_its_ids(serving: Gateway, socket: WebSocket, upstream: Upstream) -> None:
    model = upstream.script("ws same ids", EngineAnswer([call("f", "{}", "call_1")]))
    parent, output_ids = None, set()
    for _ in range(3):
        given: Any = "hi"
        if parent is not None:
            given = [{"type": "function_call_output", "call_id": parent["output"][0]["call_id"], "output": "x"}]
        events = ask(socket, model, given, parent and parent["id"], tools=[FUNCTION])
        expect_sound(events)
        parent = final(events)
        output_ids.add(parent["output"][0]["id"])
    assert len(output_ids) == 3
    assert serving.rows(model) == 3


@pytest.mark.checklist(40)
def test_history_is_kept_through_calls_and_their_outputs(socket: WebSocket, upstream: Upstream) -> None:
    called = EngineAnswer([call("f", "{}", "call_f")])
    model = upstream.script("ws history", in_turn(called, says("a1"), called, says("a2")))
    parent = None
    for question in ("q1", "q2"):
        events = ask(socket, model, question, parent, tools=[FUNCTION], store=False)
        (item,) = final(events)["output"]
        output = {"type": "function_call_output", "call_id": item["call_id"], "output": f"for {question}"}
        parent = told(socket, model, [output], id_of(events), tools=[FUNCTION], store=False)
    told(socket, model, "q3", parent, tools=[FUNCTION], store=False)
    kinds = [item.get("type", "message") for item in upstream.calls(model)[-1].body["input"]]
    assert kinds == [*("message", "function_call", "function_call_output", "message") * 2, "message"]


# ---------------------------------------------------------------- the gateway itself


@pytest.mark.checklist(29)
def test_admission_counts_creates_not_connections(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = start_gateway({"server.max_concurrent_requests": "1"})
    held = Held(upstream, "ws admitted")
    with WebSocket(gateway.port) as one, WebSocket(gateway.port) as other, WebSocket(gateway.port):
        told(one, upstream.script("ws admission", says("well")))
        told(other, "ws admission")
        assert create(gateway.port, {"model": "ws admission", "input": "hi"}).status == 200
        one.create(held.model)
        await_begun(one, {None})
        (event,) = ask(other, "ws admission", stream_id="a")
        expect_error(event, "server_is_overloaded", None, 503, "a", None, "service_unavailable_error")
        held.release.set()
        expect_sound(one.events_until_terminal())
        told(other, "ws admission")


@pytest.mark.checklist(5)
def test_each_create_goes_to_the_server_of_its_model(tmp_path: Path, upstream: Upstream) -> None:
    with Upstream() as second:
        first_model = upstream.script("of the first", says("first"))
        second_model = second.script("of the second", says("second"))
        servers = ((upstream, first_model), (second, second_model))
        text = "".join(f'[upstreams.u{n}]\nurl = "{s.url}"\nmodels = ["{m}"]\n' for n, (s, m) in enumerate(servers))
        (tmp_path / "two.toml").write_text(text)
        gateway = Gateway(tmp_path, upstream.url, env={"GATEWAY_CONFIG": str(tmp_path / "two.toml")})
        at = gateway._arguments.index("--upstream")
        del gateway._arguments[at : at + 2]
        with gateway, WebSocket(gateway.port) as socket:
            for number in range(10):
                model, words = ((first_model, "first"), (second_model, "second"))[number % 2]
                assert deltas(ask(socket, model, stream_id=f"lane{number % 3}")) == words
            (event,) = ask(socket, "of nobody")
            expect_error(event, "model_not_found", "model", 404)


@pytest.mark.checklist(30)
def test_both_transports_are_counted_alike(tmp_path: Path, upstream: Upstream) -> None:
    names = ("gateway_responses_total", "gateway_upstream_requests_total")
    refusing = upstream.script("ws counted refusal", refuse(400))
    with WatchedGateway(tmp_path, upstream) as gateway, WebSocket(gateway.port) as socket:

        def counted(ask_for: Callable[[str], object]) -> list[float]:
            """What is counted for two answers and a refusal."""
            cut = EngineAnswer([message("x")], status="incomplete")
            model = upstream.script("ws counted", in_turn(says("well"), cut))
            before = [gateway.count(name) for name in names]
            for name in (model, model, refusing):
                ask_for(name)
            return [gateway.count(name) - was for name, was in zip(names, before, strict=True)]

        posted = counted(lambda name: create(gateway.port, {"model": name, "input": "hi", "stream": True}))
        assert counted(lambda name: ask(socket, name)) == posted == [3, 3]
        assert gateway.rows("ws counted") == 4


def test_tools_that_are_left_out_are_logged_and_counted(tmp_path: Path, upstream: Upstream) -> None:
    model = upstream.script("ws hosted tools", says("well"))
    with WatchedGateway(tmp_path, upstream) as gateway, WebSocket(gateway.port) as socket:
        told(socket, model, tools=[FUNCTION, {"type": "web_search"}])
        assert [tool["type"] for tool in upstream.calls(model)[-1].body["tools"]] == ["function"]
        assert gateway.count("gateway_unsupported_tools_total") == 1
        gateway.await_log("web_search")


@pytest.mark.checklist(24)
def test_a_fault_of_the_gateway_ends_one_turn(tmp_path: Path, upstream: Upstream) -> None:
    gateway = Gateway(tmp_path, upstream.url)
    gateway._arguments[:1] = [sys.executable, "-c", FAULTY]
    held, model = Held(upstream, "ws other lane"), upstream.script("ws fine", says("well"))
    with gateway, WebSocket(gateway.port) as socket:
        socket.create(held.model, stream_id="other")
        await_begun(socket, {"other"})
        (event,) = ask(socket, upstream.script("faulty", says("never")), stream_id="a")
        expect_error(event, "server_error", None, 500, "a", None, "server_error")
        assert "nobody foresaw" not in event["error"]["message"]
        told(socket, model, stream_id="a")
        gateway.await_log("nobody foresaw this")
        held.release.set()
        expect_sound(socket.events_until_terminal("other"), "other")
        assert judge(ask(socket, model)) == []
