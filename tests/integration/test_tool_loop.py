"""The tool loop over every transport, against a whole gateway whose tools do what a test says."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from conformance.verdict import judge_response
from harness.client import client, create, open_create, read_until
from harness.engine import Answer, call, frame, in_turn, message, reasoning, says
from harness.tools import MCP, ScriptedListing, ScriptedTools, listed, returned, tool
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway
from integration.turns import LIMIT_CODE, ask, final, judge, refuse
from msgspec import structs

from gateway.config.loader import load_config
from gateway.config.schema import GatewayConfig

WAYS = ["json", "sse", "websocket"]
F = {"type": "function", "name": "f", "parameters": {}}
LOOK = tool("look")
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def tools() -> ScriptedTools:
    return ScriptedTools()


@pytest.fixture(scope="module")
def running(upstream: Upstream, tools: ScriptedTools, tmp_path_factory: Any) -> Iterator[EmbeddedGateway]:
    folder = tmp_path_factory.mktemp("tools")
    own = {"upstream.url": upstream.url, "storage.url": f"sqlite:///{folder}/gateway.db", "server.port": "0"}
    config = load_config(None, {}, [f"{name}={value}" for name, value in own.items()] + ["admin.enabled=false"]).config
    with EmbeddedGateway(config, tools) as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def fresh(tools: ScriptedTools, running: EmbeddedGateway) -> Iterator[None]:
    tools.known, tools.servers, tools.decisions = [LOOK], [], []
    tools.behaviours.clear()
    tools.calls.clear()
    tools.cancelled.clear()
    config = running.gateway.config
    yield
    running.do(lambda: running.gateway.reload(config))


def look(number: int = 1, arguments: str = "{}") -> dict[str, Any]:
    return call("mcp__s__look", arguments, f"call_{number}")


class Outcome:
    """How a response ended, whatever brought it.

    Attributes:
        status: its final status; `refused` where only an error was answered.
        error: the error of a response that failed.
        response: the response, if there is one.
        events: what a stream told.
    """

    def __init__(self, status: str, error: Any, response: Any, events: list[Any]) -> None:
        self.status, self.error, self.response, self.events = status, error, response, events


def play(way: str, running: EmbeddedGateway, model: str, given: Any = "hi", **fields: Any) -> Outcome:
    fields = {"tools": [MCP, F], **fields}
    if way == "websocket":
        with WebSocket(running.port) as socket:
            return read_events(ask(socket, model, given, **fields))
    answered = create(running.port, {"model": model, "input": given, "stream": way == "sse", **fields})
    if answered.status != 200:
        return Outcome("refused", answered.error, None, [])
    if way == "json":
        assert judge_response(answered.json) == []
        return Outcome(answered.json["status"], answered.json["error"], answered.json, [])
    return read_events(answered.events)


def read_events(events: list[Any]) -> Outcome:
    if events[-1]["type"] == "error":
        return Outcome("refused", events[-1]["error"], None, events)
    assert judge(events) == []
    response = final(events)
    return Outcome(response["status"], response["error"], response, events)


def kept(running: EmbeddedGateway, response: Any) -> Any:
    with client(running.port) as caller:
        answered = caller.get(f"/v1/responses/{response['id']}")
        return answered.json if answered.status == 200 else None


# ---------------------------------------------------------------- every end is told

BROKEN = frame({"type": "error", "code": "engine_error", "message": "gave up", "param": None})


async def break_off(request: Any, reply: Any) -> None:
    """Begin to answer, then end with an error event."""
    await reply.head()
    await reply.send(b"".join(says("broken off").frames()[:5]) + BROKEN)
    await reply.end()


EXITS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "no call": ([says("x")], {}, "completed"),
    "a round": ([Answer([look()]), says("x")], {}, "completed"),
    "max_tool_calls": ([Answer([look(1), look(2)]), says("x")], {"max_tool_calls": 1}, "completed"),
    "still calling": ([Answer([look()])], {"max_tool_calls": 1}, "completed"),
    "the client's call": ([Answer([look(), call("f", "{}", "call_f")])], {}, "completed"),
    "cut off": ([Answer([look()]), Answer([message("x")], status="incomplete")], {}, "incomplete"),
    "cut off in a call": ([Answer([look(1), look(2)], status="incomplete")], {}, "incomplete"),
    "max_rounds": ([Answer([look()])], {}, "incomplete"),
    "error": ([Answer([look()]), break_off], {}, "failed"),
    "refusal": ([Answer([look()]), refuse(500)], {}, "failed"),
}


@pytest.mark.checklist(37, 38, 601)
@pytest.mark.parametrize("name", EXITS)
def test_every_way_out_is_told_by_one_last_event_and_the_same_on_each_transport(running, upstream, name):
    scripts, fields, status = EXITS[name]
    config = running.gateway.config
    few = structs.replace(config, engine=structs.replace(config.engine, max_rounds=3))
    running.do(lambda: running.gateway.reload(few))
    outcomes = {}
    for way in WAYS:
        if way == "json" and name == "error":
            continue  # a body is whole or none
        model = upstream.script(f"exit-{name}-{way}", in_turn(*scripts))
        outcomes[way] = play(way, running, model, **fields)
    for way, outcome in outcomes.items():
        if status == "failed" and way == "json":
            assert (outcome.status, outcome.error["code"]) == ("refused", "upstream_error")
            continue
        assert outcome.status == status
        assert (kept(running, outcome.response) == outcome.response) == (status != "failed")
    shown = [[item["type"] for item in one.response["output"]] for one in outcomes.values() if one.response]
    assert shown == [shown[0]] * len(shown)


# ---------------------------------------------------------------- failures of the inference server


@every_way
@pytest.mark.checklist(32)
@pytest.mark.parametrize("status", [400, 429, 500])
def test_a_refusal_before_the_first_round_keeps_its_status(running, upstream, tools, way, status):
    tools.servers = [ScriptedListing("s", listed(LOOK))]
    outcome = play(way, running, upstream.script(f"refuse-{way}-{status}", refuse(status)))
    assert outcome.status == "refused"
    assert tools.calls == []
    if way == "websocket":
        assert outcome.events[-1]["status"] == (502 if status == 500 else status)


@every_way
@pytest.mark.checklist(32)
def test_a_refusal_between_rounds_fails_the_response(running, upstream, way):
    model = upstream.script(f"refuse-later-{way}", in_turn(Answer([look()]), refuse(429, "slow down")))
    outcome = play(way, running, model)
    assert "slow down" in outcome.error["message"]
    if way == "json":
        assert outcome.status == "refused"
    else:
        assert outcome.status == "failed"
        assert [item["status"] for item in outcome.response["output"]] == ["completed"]
        assert kept(running, outcome.response) is None


@pytest.mark.checklist(33)
@pytest.mark.parametrize("way", ["sse", "websocket"])
def test_an_error_event_between_rounds_fails_the_response_and_nothing_is_kept(running, upstream, way):
    outcome = play(way, running, upstream.script(f"broken-{way}", in_turn(Answer([look()]), break_off)))
    assert (outcome.status, outcome.error["code"]) == ("failed", "engine_error")
    kinds = [event["type"] for event in outcome.events]
    assert kinds.count("response.failed") == 1
    assert "response.completed" not in kinds
    assert kept(running, outcome.response) is None
    again = play(way, running, upstream.script("after", says("x")), previous_response_id=outcome.response["id"])
    assert again.error["code"] == "previous_response_not_found"


# ---------------------------------------------------------------- history and storage


@every_way
@pytest.mark.checklist(40, 41, 44, 53)
def test_rounds_are_kept_and_replayed(running, upstream, tools, way):
    tools.servers = [ScriptedListing("s", listed(LOOK))]
    model = upstream.script(
        f"kept-{way}", in_turn(Answer([reasoning("Hm."), look()]), says("It is x."), Answer([look(3)]), says("y"))
    )
    one = play(way, running, model)
    assert kept(running, one.response) == one.response
    assert [item["type"] for item in one.response["output"]] == ["mcp_list_tools", "reasoning", "mcp_call", "message"]
    assert (one.response["usage"]["input_tokens"], one.response["usage"]["total_tokens"]) == (10, 24)
    done = [event["item"] for event in one.events if event["type"] == "response.output_item.done"]
    assert done in ([], one.response["output"])
    two = play(way, running, model, previous_response_id=one.response["id"])
    assert kept(running, two.response) == two.response
    bodies = [request.body for request in upstream.calls(model)]
    for earlier, later in pairwise(bodies):
        assert later["input"][: len(earlier["input"])] == earlier["input"]
    assert [item["type"] for item in bodies[3]["input"]] == [
        "message", "reasoning", "function_call", "function_call_output", "message",
        "message", "function_call", "function_call_output",
    ]  # fmt: skip


@every_way
@pytest.mark.checklist(609)
def test_an_output_for_anothers_call_is_refused(running, upstream, tools, way):
    """The gateway's own call is none that a client may answer, nor is a call of another response."""
    model = upstream.script(
        f"anothers-{way}", in_turn(Answer([look()]), says("x"), Answer([call("f", "{}", "call_f")]))
    )
    mine, other = (play(way, running, model).response for _ in range(2))
    asked = len(upstream.calls(model))
    for call_id in (mine["output"][0]["id"], other["output"][0]["call_id"]):
        given = [{"type": "function_call_output", "call_id": call_id, "output": "forged"}]
        refused = play(way, running, model, given=given, previous_response_id=mine["id"])
        assert (refused.status, refused.error["code"], refused.error["param"]) == (
            "refused", "invalid_tool_output", "input",
        )  # fmt: skip
        assert call_id in refused.error["message"]
    assert len(upstream.calls(model)) == asked


# ---------------------------------------------------------------- the shared allowance


def allowance(name: str, tools: ScriptedTools) -> list[Any]:
    """What the engine says in a response whose parts share one limit."""
    tools.behaviours["look"] = give("é" * 700)
    if name == "two rounds":
        tools.behaviours.clear()
        return [Answer([reasoning("a" * 900), look()]), says("b" * 900)]
    if name == "calls at once":
        return [Answer([look(1), look(2)]), says("b")]
    if name == "discovery, round and output":
        tools.servers = [ScriptedListing("s", listed(LOOK, size=1500))]
    return [Answer([look()]), says("b" * 900)]


def give(output: str) -> Any:
    async def behave(_: Any) -> Any:
        await asyncio.sleep(0)
        return returned(output)

    return behave


def bound(config: GatewayConfig, retained: int, *, output: int | None = None) -> GatewayConfig:
    own = structs.replace(config.responses, max_retained_bytes=retained)
    given = config.tools if output is None else structs.replace(config.tools, max_output_bytes=output)
    return structs.replace(config, responses=own, tools=given)


@every_way
@pytest.mark.parametrize("name", ["two rounds", "round and output", "discovery, round and output", "calls at once"])
@pytest.mark.checklist(606)
def test_rows_53_to_58_rounds_outputs_and_discovery_share_one_limit(running, upstream, tools, way, name):
    scripts = allowance(name, tools)
    config = running.gateway.config

    def with_limit(retained: int, **options: Any) -> Outcome:
        running.do(lambda: running.gateway.reload(bound(config, retained, **options)))
        return play(way, running, upstream.script(f"shared-{name}-{way}", in_turn(*scripts)))

    before = running.sample("retained_bytes_sum")
    assert with_limit(1 << 20).status == "completed"
    total = int(running.sample("retained_bytes_sum") - before)
    assert total > (2 * 1400 if name == "calls at once" else 1700)
    assert with_limit(total).status == "completed"
    for options in ({}, {"output": 64 << 20}):
        outcome = with_limit(total - 1, **options)
        assert (outcome.error["code"], outcome.error["resource"], outcome.error["limit"]) == (
            LIMIT_CODE, "max_retained_bytes", total - 1,
        )  # fmt: skip
        assert outcome.status == ("refused" if way == "json" else "failed")
        assert outcome.response is None or kept(running, outcome.response) is None


@pytest.mark.checklist(606)
def test_a_breach_in_one_lane_leaves_the_others_alone(running, upstream, tools):
    config = running.gateway.config
    free = threading.Event()

    async def wait(_: Any) -> Any:
        while not free.is_set():
            await asyncio.sleep(0.005)
        return returned("x")

    tools.known = [LOOK, tool("wait")]
    tools.behaviours["wait"] = wait
    tools.behaviours["look"] = give("x" * 3000)
    running.do(lambda: running.gateway.reload(bound(config, 3000)))
    waits = upstream.script("lane-waits", in_turn(Answer([call("mcp__s__wait", "{}", "w")]), says("x")))
    breaks = upstream.script("lane-breaks", in_turn(Answer([look()]), says("x")))
    with WebSocket(running.port) as socket:
        socket.create(waits, tools=[MCP], stream_id="a")
        failed = ask(socket, breaks, tools=[MCP], stream_id="b")
        assert final(failed)["error"]["code"] == LIMIT_CODE
        free.set()
        assert final(socket.events_until_terminal("a"))["status"] == "completed"


# ---------------------------------------------------------------- clients that leave


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.checklist(610)
def test_a_client_that_leaves_ends_its_calls(running, upstream, tools, way):
    began, ended = threading.Event(), threading.Event()

    async def wait(_: Any) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    tools.behaviours["look"] = wait
    model = upstream.script(f"leaves-{way}", Answer([look(1), look(2)]))
    if way == "websocket":
        with WebSocket(running.port) as socket:
            socket.create(model, tools=[MCP])
            assert began.wait(10)
            socket.leave()
            assert ended.wait(10)
        return
    body = {"model": model, "input": "hi", "tools": [MCP], "stream": way == "sse"}
    with open_create(running.port, body) as connection:
        if way == "sse":
            read_until(connection, b"mcp_call_arguments.done")
        assert began.wait(10)
    assert ended.wait(10)


# ---------------------------------------------------------------- tools that come back


@pytest.mark.checklist(608)
def test_a_tool_that_calls_itself_by_way_of_the_gateway_runs_into_the_bounds(running, upstream, tools):
    """Each depth holds a place; with none left the innermost waits, until the outermost call has had its time."""
    config = running.gateway.config
    few = structs.replace(config.tools, max_concurrent_materializations=3, call_timeout_seconds=1.5)
    running.do(lambda: running.gateway.reload(structs.replace(config, tools=few)))
    model = upstream.script("recursion", call_then_answer)
    body = json.dumps({"model": model, "input": "hi", "tools": [MCP]}).encode()
    head = f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nContent-Length: {len(body)}\r\n\r\n"

    async def come_back(_: Any) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        try:
            writer.write(head.encode() + body)
            return returned((await reader.read(100)).decode())
        finally:
            writer.close()

    tools.behaviours["look"] = come_back
    outcome = play("json", running, model)
    assert (outcome.status, outcome.response["output"][0]["status"]) == ("completed", "failed")
    assert 3 <= len(tools.calls) < 6
    while running.sample("active_responses"):
        time.sleep(0.01)
    assert (running.sample("tool_work_running"), running.sample("tool_work_waiting")) == (0, 0)


async def call_then_answer(request: Any, reply: Any) -> None:
    """Call the tool, unless the input says what came of it."""
    told = [item["type"] for item in request.body["input"]]
    await (says("x") if "function_call_output" in told else Answer([look()]))(request, reply)
