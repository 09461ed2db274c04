"""MCP over every transport: a whole gateway, real MCP servers, SQLite and PostgreSQL."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conformance.verdict import judge_response
from harness.client import client, create
from harness.engine import Answer, call, in_turn, reasoning, says
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway
from integration.turns import anonymous, ask, expect_sound, final
from tools.mcp.bench import RawServer, RealServer

from gateway.config.loader import load_config

Json = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "tools/mcp"
SCRIPT, SMALL = str(FOLDER / "real_server.py"), str(FOLDER / "small_server.py")
TOKEN = "s3cret-token-of-a-caller"
DOCS = {"type": "mcp", "server_label": "docs", "require_approval": "never"}
LOCAL = {**DOCS, "server_label": "local"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
every_way = pytest.mark.parametrize("way", ["json", "sse", "websocket"])


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """A real server over HTTP, a process."""
    running = RealServer(Path(SCRIPT))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def raw() -> Iterator[RawServer]:
    """A server that never answers a call, in a thread of its own."""
    scripted, ready, over = RawServer(), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def never(message: Json, writer: asyncio.StreamWriter) -> None:
        await over.wait()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        scripted.list_tools({"name": "say", "inputSchema": {"type": "object"}})
        scripted.answers["tools/call"] = never
        await scripted.start()
        ready.set()
        await over.wait()
        await scripted.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield scripted
    loops[0].call_soon_threadsafe(over.set)
    thread.join()


def build_config(upstream: Upstream, server: RealServer, database: str, **more: str) -> Any:
    own = {
        "upstream.url": upstream.url,
        "storage.url": database,
        "storage.auto_migrate": "always",
        "server.port": "0",
        "admin.enabled": "false",
        "mcp.allow_private_addresses": "true",
        "mcp.servers.docs.url": server.url,
        "mcp.servers.docs.authorization": "operators-s3cret",
        "mcp.servers.local.command": sys.executable,
        "mcp.servers.local.args": f'["{SMALL}", "well"]',
        **more,
    }
    return load_config(None, {}, [f"{name}={value}" for name, value in own.items()]).config


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def gateways(request: Any, upstream: Upstream, server: RealServer, tmp_path_factory: Any) -> Iterator[list[Any]]:
    """Two replicas on one PostgreSQL; on SQLite one gateway, twice."""
    if request.param == "sqlite":
        databases = [f"sqlite:///{tmp_path_factory.mktemp('mcp')}/gateway.db"]
    else:
        databases = [request.getfixturevalue("postgres_server").create_database()] * 2
    with ExitStack() as running:
        started = [
            running.enter_context(EmbeddedGateway(build_config(upstream, server, database))) for database in databases
        ]
        yield [started[0], started[-1]]


@pytest.fixture(scope="module")
def gateway(upstream: Upstream, server: RealServer, tmp_path_factory: Any) -> Iterator[EmbeddedGateway]:
    database = f"sqlite:///{tmp_path_factory.mktemp('mcp')}/gateway.db"
    with EmbeddedGateway(build_config(upstream, server, database)) as running:
        yield running


def play(way: str, gateway: Any, model: str, given: Any = "hi", **fields: Any) -> tuple[Json, list[Json]]:
    """Return the response and, of a stream, its events."""
    if way == "websocket":
        with WebSocket(gateway.port) as socket:
            events = ask(socket, model, given, **fields)
        expect_sound(events)
        return final(events), events
    body = {"model": model, "input": given, **fields}
    answered = create(gateway.port, {**body, "stream": way == "sse"})
    assert answered.status == 200, answered.body
    if way == "json":
        assert judge_response(answered.json) == []
        return answered.json, []
    expect_sound(answered.events)
    return answered.final, answered.events


def read(gateway: Any, response: Json) -> Json:
    with client(gateway.port) as caller:
        return caller.get(f"/v1/responses/{response['id']}").json


def sent(upstream: Upstream, model: str) -> list[Json]:
    return [request.body for request in upstream.requests if request.body.get("model") == model]


def script(upstream: Upstream, name: str, *items: Json, text: str = "It is 3.") -> str:
    return upstream.script(name, in_turn(Answer(list(items)), *[says(text)] * 5))


def add(label: str = "docs", arguments: str = '{"a": 1, "b": 2}', number: int = 1) -> Json:
    return call(f"mcp__{label}__add", arguments, f"call_{number}")


LISTED = ["output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done"]
CALLED = ["output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done"]


@every_way
@pytest.mark.checklist(201, 203, 210, 214, 40, 41, 44, 53)
def test_a_tool_is_listed_called_stored_and_continued(way, gateways, upstream, server):
    model = script(upstream, f"mcp-{way}-{id(gateways)}", reasoning("Let me add."), add())
    tool = {**DOCS, "server_url": f"{server.url}?key={TOKEN}", "authorization": TOKEN, "headers": {"X-Key": TOKEN}}
    response, events = play(way, gateways[0], model, tools=[tool])
    listed, _, called, said = response["output"]
    assert (listed["type"], listed["server_label"], listed["tools"][0]["name"]) == ("mcp_list_tools", "docs", "add")
    assert called == {
        "id": called["id"],
        "type": "mcp_call",
        "status": "completed",
        "server_label": "docs",
        "name": "add",
        "arguments": '{"a": 1, "b": 2}',
        "output": "3",
        "error": None,
        "approval_request_id": None,
    }
    assert said["content"][0]["text"] == "It is 3."
    if events:
        kinds = [event["type"].removeprefix("response.") for event in events]
        begun = kinds.index("mcp_list_tools.in_progress") - 1
        assert kinds[begun : begun + 4] == LISTED
        begun = kinds.index("mcp_call.in_progress") - 1
        assert [kind for kind in kinds[begun : begun + 9] if kind in CALLED][:2] == CALLED[:2]
        ended = kinds.index("mcp_call.completed")
        assert kinds[ended + 1] == "output_item.done"
    assert read(gateways[1], response) == response
    assert response["tools"][0]["server_url"].endswith("/<redacted>")
    assert TOKEN not in f"{response}{events}"
    first, second = sent(upstream, model)
    assert [one["name"] for one in first["tools"]][:2] == ["mcp__docs__add", "mcp__docs__say"]
    assert TOKEN not in str(first)
    assert second["input"][-1] == {"type": "function_call_output", "call_id": called["id"], "output": "3"}

    again, _ = play(way, gateways[1], model, "And now?", previous_response_id=response["id"], tools=[tool])
    assert [item["type"] for item in again["output"]] == ["message"]
    third = sent(upstream, model)[-1]
    assert [one["name"] for one in third["tools"]] == [one["name"] for one in first["tools"]]
    assert second["input"] == third["input"][: len(second["input"])]


@every_way
@pytest.mark.checklist(201, 202)
def test_a_label_means_a_server_of_the_configuration(way, gateway, upstream):
    label = "local" if way == "websocket" else "docs"
    name = "add" if label == "docs" else "say"
    arguments = '{"a": 1, "b": 2}' if label == "docs" else '{"text": "3"}'
    model = script(upstream, f"label-{label}-{way}", call(f"mcp__{label}__{name}", arguments, "call_1"))
    response, _ = play(way, gateway, model, tools=[{**DOCS, "server_label": label}])
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert response["output"][1]["output"] == "3"
    assert "operators-s3cret" not in str(response)


@pytest.mark.checklist(203)
def test_every_transport_tells_the_same(gateway, upstream):
    async def add_once(request: Any, reply: Any) -> None:
        again = request.body["input"][-1]["type"] == "function_call_output"
        await (says("It is 3.") if again else Answer([add()]))(request, reply)

    model = upstream.script("mcp-same", add_once)
    told = [play(way, gateway, model, tools=[DOCS])[0] for way in ("json", "sse", "websocket")]
    first, second, third = (
        anonymous({key: one[key] for key in ("output", "usage", "status", "tools")}) for one in told
    )
    assert first == second == third


@pytest.mark.checklist(202)
def test_a_request_starts_no_program(gateway):
    tool = {**DOCS, "server_label": "x", "command": "sh"}
    refused = create(gateway.port, {"model": "x", "input": "hi", "tools": [tool]})
    assert (refused.status, refused.error["param"]) == (400, "tools[0].server_url")


@pytest.mark.checklist(204)
def test_only_allowed_tools_are_offered_and_called(gateway, upstream):
    model = script(upstream, "mcp-allowed", call("mcp__docs__say", '{"text": "x"}', "call_1"))
    response, _ = play("json", gateway, model, tools=[{**DOCS, "allowed_tools": {"read_only": True}}])
    assert [tool["name"] for tool in response["output"][0]["tools"]] == ["add"]
    assert [tool["name"] for tool in sent(upstream, model)[0]["tools"]] == ["mcp__docs__add"]
    assert response["output"][1]["type"] == "function_call"


# ---------------------------------------------------------------- approvals


def ask_for_approval(way: str, gateway: Any, upstream: Upstream, name: str, *more: Json) -> tuple[str, Json, Json]:
    model = script(upstream, name, add(), *more)
    response, events = play(way, gateway, model, tools=[{**DOCS, "require_approval": "always"}])
    request = response["output"][-1]
    assert request["type"] == "mcp_approval_request"
    assert response["status"] == "completed"
    if events:
        assert not any("mcp_call" in event["type"] for event in events)
    return model, response, request


def approval(request: Json, approve: bool = True, **more: Any) -> Json:
    key = request["id"]
    return {"type": "mcp_approval_response", "approval_request_id": key, "approve": approve, **more}


@every_way
@pytest.mark.checklist(205)
def test_an_approved_call_is_run_in_the_next_turn(way, gateways, upstream):
    model, first, request = ask_for_approval(way, gateways[0], upstream, f"approve-{way}-{id(gateways)}")
    assert request == {
        "id": request["id"],
        "type": "mcp_approval_request",
        "status": "completed",
        "server_label": "docs",
        "name": "add",
        "arguments": '{"a": 1, "b": 2}',
    }
    fields = {"previous_response_id": first["id"], "tools": [{**DOCS, "require_approval": "always"}]}
    second, _ = play(way, gateways[1], model, [approval(request)], **fields)
    called, said = second["output"]
    assert (called["type"], called["output"], called["approval_request_id"]) == ("mcp_call", "3", request["id"])
    assert said["type"] == "message"
    asked = sent(upstream, model)[-1]["input"]
    assert asked[-2]["call_id"] == asked[-1]["call_id"] == request["id"]
    assert asked[-1]["output"] == "3"
    third, _ = play(way, gateways[0], model, "Thanks.", **{**fields, "previous_response_id": second["id"]})
    assert [item["type"] for item in third["output"]] == ["message"]
    assert sent(upstream, model)[-1]["input"][: len(asked)] == asked


@every_way
@pytest.mark.checklist(205)
def test_a_declined_call_is_not_run_and_the_model_is_told(way, gateway, upstream):
    model, first, request = ask_for_approval(way, gateway, upstream, f"decline-{way}")
    given = [approval(request, approve=False, reason="Too dear.")]
    second, _ = play(way, gateway, model, given, previous_response_id=first["id"])
    assert [item["type"] for item in second["output"]] == ["message"]
    told = sent(upstream, model)[-1]["input"][-1]
    assert told["call_id"] == request["id"]
    assert "Too dear." in told["output"]


@pytest.mark.checklist(205)
def test_an_approval_that_does_not_fit_is_refused_by_name(gateway, upstream):
    model, first, request = ask_for_approval("json", gateway, upstream, "unfit", add(number=2))
    other = first["output"][-2]
    tools = [{**DOCS, "require_approval": "always"}]

    def refusal(*given: Json, tools: list[Json] = tools, parent: Json = first) -> tuple[int, str, str]:
        body = {"model": model, "input": list(given) or "hi", "tools": tools, "previous_response_id": parent["id"]}
        refused = create(gateway.port, body)
        return refused.status, refused.error["code"], refused.error["param"]

    both = [approval(request), approval(other)]
    assert refusal() == refusal(approval(request)) == (400, "missing_approval_response", "input")
    assert refusal(*both, approval(request)) == (400, "approval_already_given", "input")
    assert refusal(*both, approval({"id": "mcpr_of_somebody_else"})) == (400, "approval_request_not_found", "input")
    assert refusal(*both, tools=[]) == (400, "missing_mcp_server", "tools")
    assert refusal(*both, tools=[{**LOCAL}]) == (400, "missing_mcp_server", "tools")
    body = {"model": model, "input": both, "tools": tools, "previous_response_id": first["id"]}
    done = create(gateway.port, body)
    assert [item["type"] for item in done.json["output"]] == ["mcp_call", "mcp_call", "message"]
    assert refusal(approval(request), parent=done.json) == (400, "approval_already_given", "input")
    # From one response several ways lead on; each is a conversation of its own.
    assert [item["type"] for item in create(gateway.port, body).json["output"]] == ["mcp_call", "mcp_call", "message"]
    with WebSocket(gateway.port) as socket:
        socket.create(model, [approval(request)], previous_response_id=first["id"], tools=tools)
        error = socket.next_event()
    assert (error["status"], error["error"]["code"]) == (400, "missing_approval_response")


@pytest.mark.checklist(205)
def test_forks_answer_for_themselves_and_a_conversation_once(gateways, upstream):
    name = f"fork-{id(gateways)}"
    model, first, request = ask_for_approval("json", gateways[0], upstream, name)
    fields = {"tools": [{**DOCS, "require_approval": "always"}], "previous_response_id": first["id"]}
    forks = [play("sse", gateway, model, [approval(request)], **fields)[0] for gateway in gateways]
    assert [fork["output"][0]["output"] for fork in forks] == ["3", "3"]

    with client(gateways[0].port) as caller:
        fields = {"conversation": caller.call("POST", "/v1/conversations", b"{}").json["id"], "tools": fields["tools"]}
    model = script(upstream, f"{name}-held", add())
    request = play("json", gateways[0], model, **fields)[0]["output"][-1]
    response, _ = play("websocket", gateways[1], model, [approval(request)], **fields)
    assert response["output"][0]["output"] == "3"
    again = create(gateways[0].port, {"model": model, "input": [approval(request)], **fields})
    assert (again.status, again.error["code"]) == (400, "approval_already_given")


# ---------------------------------------------------------------- servers that fail


@pytest.mark.checklist(211, 206, 207, 32)
def test_dead_and_slow_servers_are_failed_items_and_the_turn_goes_on(upstream, server, raw, tmp_path):
    """On all transports at once: the limit of the slow call is that of the call beside it, which must not meet it."""
    limit = {"mcp.call_timeout_seconds": "2.5"}
    config = build_config(upstream, server, f"sqlite:///{tmp_path}/gateway.db", **limit)
    with EmbeddedGateway(config) as gateway, ThreadPoolExecutor(3) as callers:
        ways = ("json", "sse", "websocket")
        list(callers.map(lambda way: expect_failed_items(way, gateway, upstream, raw), ways))


def expect_failed_items(way: str, gateway: EmbeddedGateway, upstream: Upstream, raw: RawServer) -> None:
    dead = {**DOCS, "server_label": "dead", "server_url": "http://127.0.0.1:1/mcp"}
    slow = {**DOCS, "server_label": "slow", "server_url": raw.url}
    model = script(upstream, f"dead-{way}", call("mcp__slow__say", "{}", "call_1"), add(number=2))
    response, events = play(way, gateway, model, tools=[dead, slow, DOCS])
    lists, calls = (
        [item for item in response["output"] if item["type"] == kind] for kind in ("mcp_list_tools", "mcp_call")
    )
    assert response["status"] == "completed"
    assert [bool(item.get("error")) for item in lists] == [True, False, False]
    assert lists[0]["tools"] == []
    assert "could not be connected to" in str(lists[0]["error"])
    assert [item["status"] for item in calls] == ["failed", "completed"]
    assert "did not answer within 2.5 s" in str(calls[0]["error"])
    if events:
        kinds = [event["type"] for event in events]
        assert kinds.count("response.mcp_list_tools.failed") == kinds.count("response.mcp_call.failed") == 1
    offered = {tool["name"].split("__")[1] for tool in sent(upstream, model)[0]["tools"]}
    assert offered == {"slow", "docs"}
    assert "did not answer" in str(sent(upstream, model)[1]["input"])


@pytest.mark.checklist(206, 209)
def test_what_a_request_may_not_declare_is_named(gateway):
    def refusal(*tools: Json) -> tuple[int, str]:
        refused = create(gateway.port, {"model": "x", "input": "hi", "tools": list(tools)})
        return refused.status, refused.error["param"]

    assert refusal(*({**DOCS, "server_label": f"s{n}", "server_url": "http://h"} for n in range(65))) == (400, "tools")
    assert refusal(DOCS, DOCS) == (400, "tools[1].server_label")
    assert refusal({**DOCS, "server_url": "ftp://h"}) == (400, "tools[0].server_url")
    assert refusal({**DOCS, "connector_id": "c"}) == (400, "tools[0].connector_id")


@pytest.mark.checklist(209)
def test_by_default_no_request_leads_into_the_gateways_own_network(upstream, server, tmp_path):
    more = {"mcp.allow_private_addresses": "false", "mcp.allow_hosts": '["localhost", "127.0.0.1"]'}
    config = build_config(upstream, server, f"sqlite:///{tmp_path}/gateway.db", **more)
    model = upstream.script("private", says("I have no tools."))
    with EmbeddedGateway(config) as gateway:
        for url in (server.url, "http://example.com/mcp"):
            refused = create(gateway.port, {"model": "x", "input": "hi", "tools": [{**DOCS, "server_url": url}]})
            assert (refused.status, refused.error["param"]) == (400, "tools[0].server_url")
        url = server.url.replace("127.0.0.1", "localhost")
        response, _ = play("json", gateway, model, tools=[{**DOCS, "server_url": url}])
    assert "private or local address" in str(response["output"][0]["error"])


# ---------------------------------------------------------------- traces and sessions


@pytest.mark.checklist(212)
def test_the_trace_of_the_request_goes_to_the_server(gateway, upstream):
    model = script(upstream, "traced", call("mcp__docs__meta", "{}", "call_1"))
    body = {"model": model, "input": "hi", "tools": [DOCS]}
    answered = create(gateway.port, body, {"traceparent": TRACE}).json
    assert answered["output"][1]["output"] == TRACE


@pytest.mark.checklist(208)
def test_sessions_with_configured_servers_are_kept(gateway, upstream):
    before = gateway.sample("mcp_sessions")
    for number in range(3):
        play("json", gateway, script(upstream, f"kept-{number}", add()), tools=[DOCS])
    assert gateway.sample("mcp_sessions") == max(before, 1)
