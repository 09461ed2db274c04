"""Requests for trees of agents over both transports: what is taken, and that a refusal leaves nothing behind."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from harness.client import client
from harness.engine import says
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.trees import BETA, ON, ROOT, TOOL, play

Json = dict[str, Any]

RESPONSES = "/v1/responses"
NONE = {"enabled": True, "max_concurrent_subagents": 0}
REFUSED: list[tuple[Json, str, str]] = [
    ({"multi_agent": {}}, "multi_agent.enabled", "missing_required_parameter"),
    (
        {"multi_agent": ON | {"max_concurrent_subagents": 0}},
        "multi_agent.max_concurrent_subagents",
        "integer_below_min_value",
    ),
    ({"multi_agent": ON | {"more": 1}}, "multi_agent.more", "unknown_parameter"),
    ({"store": False}, "store", "unsupported_parameter"),
    ({"max_tool_calls": 1}, "max_tool_calls", "unsupported_parameter"),
    ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "unsupported_parameter"),
    ({"tools": [{"type": "function", "name": "wait_agent"}]}, "tools[0].name", "invalid_value"),
    ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
    ({"background": True}, "background", "unsupported_parameter"),
    ({"context_management": [{"type": "x"}]}, "context_management[0].type", "invalid_value"),
    ({"previous_response_id": "resp_nobody"}, "previous_response_id", "previous_response_not_found"),
    ({"input": [{"type": "agent_message"}]}, "input[0].type", "unsupported_value"),
]


@pytest.fixture(scope="module")
def model(upstream: Upstream) -> str:
    """A model whose root answers at once, and which answers alone as well."""
    return upstream.script("agent requests", play({ROOT: [says("as a tree")], "": [says("alone")]}))


@pytest.fixture
def untouched(gateway: Gateway, upstream: Upstream, model: str) -> Iterator[None]:
    """Nothing may be asked or stored."""
    asked, stored = len(upstream.calls(model)), gateway.rows()
    yield
    assert (len(upstream.calls(model)), gateway.rows()) == (asked, stored)


def post(gateway: Gateway, body: Json, query: str = "", headers: dict[str, str] = BETA) -> tuple[int, Json]:
    with client(gateway.port) as caller:
        answer = caller.call("POST", RESPONSES + query, json.dumps(body).encode(), headers)
    return answer.status, answer.json


@pytest.mark.agents(12, 13, 14)
@pytest.mark.parametrize("query", ["", "?beta=true"])
@pytest.mark.usefixtures("untouched")
def test_refusals_leave_nothing_behind(gateway: Gateway, model: str, query: str) -> None:
    for given, param, code in REFUSED:
        status, told = post(gateway, {"model": model, "input": "hi", "multi_agent": ON, **given}, query)
        error = told["error"]
        assert (status, error["param"], error["code"]) == (400, param, code)
        assert error["type"] == "invalid_request_error"
    assert (
        post(gateway, {"model": model, "input": "hi", "multi_agent": ON}, query, {})[1]["error"]["param"]
        == "multi_agent"
    )


@pytest.mark.agents(12, 14)
@pytest.mark.usefixtures("untouched")
def test_and_so_on_a_websocket(gateway: Gateway, model: str) -> None:
    with WebSocket(gateway.port, headers=BETA) as socket:
        for given, param, code in REFUSED:
            socket.send(
                {"type": "response.create", "stream_id": "a", "model": model, "input": "hi", "multi_agent": ON, **given}
            )
            frame = socket.next_event()
            assert (frame["type"], frame["status"], frame["stream_id"]) == ("error", 400, "a")
            assert (frame["error"]["param"], frame["error"]["code"]) == (param, code)
    with WebSocket(gateway.port, path=f"{RESPONSES}?beta=true") as socket:
        socket.create(model, multi_agent=ON)
        assert socket.next_event()["error"]["param"] == "multi_agent"


@pytest.mark.agents(12)
def test_the_lane_goes_on_after_a_refusal(gateway: Gateway, model: str) -> None:
    with WebSocket(
        gateway.port, headers={"OpenAI-Beta": "responses_websockets=v2, responses_multi_agent=v1"}
    ) as socket:
        socket.create(model, multi_agent=ON, store=False, stream_id="a")
        assert socket.next_event()["status"] == 400
        socket.create(model, multi_agent=ON, stream_id="a")
        told = socket.events_until_terminal("a")
    assert told[-1]["type"] == "response.completed"
    assert told[-1]["response"]["output"][0]["agent"] == {"agent_name": "/root"}


@pytest.mark.agents(2, 13)
@pytest.mark.parametrize(("given", "text"), [(ON, "as a tree"), ({"enabled": False}, "alone"), (None, "alone")])
def test_the_address_may_name_the_beta(gateway: Gateway, model: str, given: Any, text: str) -> None:
    with client(gateway.port) as caller:
        body = {"model": model, "input": "hi", "tools": [TOOL], "multi_agent": given}
        made = caller.call("POST", f"{RESPONSES}?beta=true", json.dumps(body).encode(), BETA).json
        assert made["output"][0]["content"][0]["text"] == text
        assert ("agent" in made["output"][0]) == (text == "as a tree")
        assert "multi_agent" not in made
        one = f"{RESPONSES}/{made['id']}"
        assert caller.get(f"{one}?beta=true").json == caller.get(one).json == made
        (item,) = caller.get(f"{one}/input_items?beta=true").json["data"]
        assert item["role"] == "user"
        assert (
            caller.call("POST", f"{one}/cancel?beta=true").error["code"]
            == caller.call("POST", f"{one}/cancel").error["code"]
        )
        assert caller.call("DELETE", f"{one}?beta=true").json["deleted"] is True
        assert caller.get(one).status == 404


@pytest.mark.usefixtures("untouched")
def test_what_cannot_be_asked_about_a_tree(gateway: Gateway, model: str) -> None:
    for path in ("compact?beta=true", "compact", "input_tokens"):
        body = json.dumps({"model": model, "input": "hi", "multi_agent": ON}).encode()
        with client(gateway.port) as caller:
            answer = caller.call("POST", f"{RESPONSES}/{path}", body, BETA)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (
            400,
            "unsupported_operation",
            "multi_agent",
        )


def test_a_plain_compaction_may_carry_the_header(gateway: Gateway, model: str) -> None:
    with client(gateway.port) as caller:
        body = json.dumps({"model": model, "input": "hi"}).encode()
        assert caller.call("POST", f"{RESPONSES}/compact?beta=true", body, BETA).status == 200
