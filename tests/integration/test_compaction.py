"""Histories that become too long, over every transport and from process to process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harness.client import Client, client
from harness.engine import Answer, call, says
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket
from integration.databases import DatabaseGateway
from integration.turns import Held, ask, await_calls, refuse, text_of, texts_sent

from gateway.cli.seal_key import command as seal_key
from gateway.protocol.compaction_prompt import PREAMBLE, REQUEST

LONG = "word " * 400
HISTORY = [
    {"role": "user", "content": "q1"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": LONG}]},
    {"role": "user", "content": "q2"},
]
ABOVE = [{"type": "compaction", "compact_threshold": 200}]
TRIGGER = {"type": "compaction_trigger"}
F = {"type": "function", "name": "f", "parameters": {}}
WAYS = ["json", "sse", "websocket"]


async def write(request: Request, reply: Reply) -> None:
    """Write a note where one is wanted, else say how many items there were."""
    given = request.body["input"]
    if text_of(given[-1]) == REQUEST:
        await says(f"note of {len(given) - 1}")(request, reply)
    elif request.body.get("tools") and given[-1].get("role") == "user":
        await Answer([call("f", "{}", "c1")])(request, reply)
    else:
        await says(f"saw {len(given)}")(request, reply)


@pytest.fixture
def model(upstream: Upstream, request: pytest.FixtureRequest) -> str:
    return upstream.script(f"compaction {request.node.name}", write)


@pytest.fixture
def caller(gateway: Gateway) -> Iterator[Client]:
    with client(gateway.port) as running:
        yield running


def respond(gateway: Gateway, way: str, model: str, given: Any, **fields: Any) -> dict[str, Any]:
    """The response to one create, over one of the transports."""
    if way == "websocket":
        with WebSocket(gateway.port) as socket:
            return ask(socket, model, given, **fields)[-1]["response"]
    with client(gateway.port) as caller:
        answer = caller.create({"model": model, "input": given, "stream": way == "sse", **fields})
        assert answer.status == 200, answer.body
        return answer.final if way == "sse" else answer.json


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def stored(gateway: Gateway, response: dict[str, Any]) -> dict[str, Any]:
    with client(gateway.port) as caller:
        return caller.get(f"/v1/responses/{response['id']}").json


@pytest.mark.checklist(703, 704)
@pytest.mark.parametrize("way", WAYS)
def test_a_chain_goes_on_from_its_note_over_any_transport(
    gateway: Gateway, upstream: Upstream, model: str, way: str
) -> None:
    first = respond(gateway, way, model, HISTORY, context_management=ABOVE, instructions="i")
    assert (first["status"], kinds(first)) == ("completed", ["compaction", "message"])
    assert stored(gateway, first) == first
    summary, inference = upstream.calls(model)
    assert (summary.body["stream"], inference.body["stream"]) == (False, way != "json")
    assert summary.body["instructions"] == inference.body["instructions"] == "i"
    assert texts_sent(upstream, model) == ["q1", "q2", f"{PREAMBLE}note of 3"]
    for other in WAYS:
        respond(gateway, other, model, "q3", previous_response_id=first["id"])
        assert texts_sent(upstream, model) == ["q1", "q2", f"{PREAMBLE}note of 3", "saw 3", "q3"]


@pytest.mark.checklist(703)
@pytest.mark.parametrize("way", WAYS)
def test_a_client_may_carry_the_history_itself(gateway: Gateway, upstream: Upstream, model: str, way: str) -> None:
    first = respond(gateway, way, model, HISTORY, context_management=ABOVE, store=False)
    further = [*first["output"], {"role": "user", "content": "q3"}]
    second = respond(gateway, way, model, further, context_management=ABOVE, store=False)
    assert kinds(second) == ["message"]
    assert texts_sent(upstream, model) == [f"{PREAMBLE}note of 3", "saw 3", "q3"]


def test_a_connection_goes_on_from_what_is_not_stored(gateway: Gateway, upstream: Upstream, model: str) -> None:
    with WebSocket(gateway.port) as socket:
        first = ask(socket, model, HISTORY, context_management=ABOVE, store=False)[-1]["response"]
        ask(socket, model, "q3", first["id"], store=False)
    assert texts_sent(upstream, model) == ["q1", "q2", f"{PREAMBLE}note of 3", "saw 3", "q3"]


@pytest.mark.checklist(702, 711)
@pytest.mark.parametrize("way", WAYS)
def test_a_trigger_leaves_calls_that_wait(gateway: Gateway, upstream: Upstream, model: str, way: str) -> None:
    asked = respond(gateway, way, model, HISTORY, tools=[F])
    noted = respond(gateway, way, model, [TRIGGER], previous_response_id=asked["id"])
    assert (noted["status"], kinds(noted)) == ("completed", ["compaction"])
    output = {"type": "function_call_output", "call_id": asked["output"][0]["call_id"], "output": "done"}
    done = respond(gateway, way, model, [output], previous_response_id=noted["id"], tools=[F])
    assert kinds(done) == ["message"]
    assert [item.get("type", "message") for item in upstream.calls(model)[-1].body["input"]][-3:] == [
        *("message", "function_call", "function_call_output")
    ]


@pytest.mark.checklist(705)
@pytest.mark.parametrize("way", WAYS)
def test_a_summary_that_fails_leaves_the_history(gateway: Gateway, upstream: Upstream, way: str) -> None:
    async def fail(request: Request, reply: Reply) -> None:
        bad = text_of(request.body["input"][-1]) == REQUEST
        await (refuse(500) if bad else says("went on"))(request, reply)

    model = upstream.script(f"compaction fails {way}", fail)
    response = respond(gateway, way, model, HISTORY, context_management=ABOVE)
    assert kinds(response) == ["message"]
    assert texts_sent(upstream, model) == ["q1", LONG, "q2"]


@pytest.mark.checklist(701, 708)
@pytest.mark.parametrize(
    "fields",
    [
        *({"context_management": [{"type": "compaction", "compact_threshold": wrong}]} for wrong in (0, -1, "9", 1.5)),
        {"context_management": [{"type": "other"}]},
        {"context_management": ["compaction"]},
        {"input": [TRIGGER, *HISTORY]},
        {"input": [{"type": "compaction_trigger"}]},
    ],
    ids=repr,
)
def test_what_is_wrong_is_refused_alike_before_anything_is_asked(
    gateway: Gateway, upstream: Upstream, model: str, caller: Client, fields: dict[str, Any]
) -> None:
    answer = caller.create({"model": model, "input": HISTORY, **fields})
    with WebSocket(gateway.port) as socket:
        socket.create(model, fields.get("input", HISTORY), **{k: v for k, v in fields.items() if k != "input"})
        told = socket.next_event()
    assert (answer.status, told["type"], told["status"]) == (400, "error", 400)
    assert told["error"] == answer.error
    assert answer.error["code"] in ("invalid_value", "missing_required_parameter")
    assert upstream.calls(model) == []


@pytest.mark.agents(134)
@pytest.mark.checklist(710)
def test_the_route_returns_what_goes_on(gateway: Gateway, upstream: Upstream, model: str, caller: Client) -> None:
    rows = gateway.rows()
    answer = caller.call("POST", "/v1/responses/compact", json.dumps({"model": model, "input": HISTORY}).encode())
    assert answer.status == 200
    window = answer.json
    assert (window["object"], [item["type"] for item in window["output"]]) == (
        *("response.compaction", ["message", "message", "compaction"]),
    )
    assert [text_of(item) for item in window["output"][:2]] == ["q1", "q2"]
    assert window["usage"]["total_tokens"] == 12
    assert gateway.rows() == rows
    respond(gateway, "websocket", model, [*window["output"], {"role": "user", "content": "q3"}])
    assert texts_sent(upstream, model) == ["q1", "q2", f"{PREAMBLE}note of 3", "q3"]


@pytest.mark.checklist(710)
@pytest.mark.parametrize(
    ("body", "param"),
    [({"input": HISTORY}, "model"), ({"model": "m"}, "input"), ({"model": "m", "input": []}, "input")],
)
def test_the_route_needs_a_model_and_a_conversation(caller: Client, body: dict[str, Any], param: str) -> None:
    answer = caller.call("POST", "/v1/responses/compact", json.dumps(body).encode())
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize("path", ["/v1/responses/compact", "/v1/responses/input_tokens"])
def test_the_routes_take_posts_alone(caller: Client, path: str) -> None:
    answer = caller.get(path)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.checklist(714)
def test_a_kill_during_a_summary_leaves_what_was_stored(upstream: Upstream, model: str, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, upstream.url)
    with gateway:
        first = respond(gateway, "json", model, HISTORY, context_management=ABOVE)
        held = Held(upstream, "compaction held")
        with WebSocket(gateway.port) as socket:
            again = [{"type": "compaction", "compact_threshold": 1}]
            socket.create(held.model, "q3", previous_response_id=first["id"], context_management=again)
            await_calls(upstream, held.model, 1)
            gateway.kill()
        held.release.set()
    with gateway:
        assert gateway.rows() == 1
        # The key is in a file beside the database: what it sealed before opens after it.
        second = respond(gateway, "json", model, "q3", previous_response_id=first["id"])
        assert kinds(second) == ["message"]
        assert texts_sent(upstream, model) == ["q1", "q2", f"{PREAMBLE}note of 3", "saw 3", "q3"]


@pytest.mark.postgres
@pytest.mark.checklist(703, 712)
def test_replicas_open_what_either_sealed_and_seal_nothing_without_a_key(
    upstream: Upstream, model: str, postgres_database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def replica(**settings: str) -> DatabaseGateway:
        return DatabaseGateway(tmp_path_factory.mktemp("replica"), upstream.url, postgres_database, settings)

    with replica() as bare, client(bare.port) as caller:
        refused = caller.create({"model": model, "input": HISTORY, "context_management": ABOVE})
        assert (refused.status, refused.error["param"]) == (400, "context_management")
        assert caller.create({"model": model, "input": "hi"}).status == 200
    keys = tmp_path_factory.mktemp("keys") / "seal-keys"
    made = CliRunner().invoke(seal_key, ["--file", str(keys)])
    assert made.exit_code == 0
    with replica(**{"compaction.mode": "on", "security.seal_keys_file": str(keys)}) as one:
        first = respond(one, "json", model, HISTORY, context_management=ABOVE)
        assert CliRunner().invoke(seal_key, ["--file", str(keys)]).exit_code == 0
        with replica(**{"security.seal_keys_file": str(keys)}) as other:
            respond(other, "websocket", model, "q3", previous_response_id=first["id"])
            assert texts_sent(upstream, model)[2:] == [f"{PREAMBLE}note of 3", "saw 3", "q3"]
