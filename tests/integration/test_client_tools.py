"""Tools of the API that clients run, over every transport: what the model sees of them, and what comes back."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness.client import create
from harness.engine import Answer as EngineAnswer
from harness.engine import call, in_turn, says
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.turns import expect_sound

Json = dict[str, Any]
Ask = Callable[..., Json]

# A tool's type: what is declared, what the model writes, the call's own members, and the output.
TOOLS: dict[str, tuple[Json, Json, Json, Json]] = {
    "shell": (
        {"type": "shell", "environment": {"type": "local"}},
        {"commands": ["ls", "pwd"], "timeout_ms": 1000},
        {
            "type": "shell_call",
            "action": {"commands": ["ls", "pwd"], "timeout_ms": 1000, "max_output_length": None},
        },
        {
            "type": "shell_call_output",
            "output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ),
    "local_shell": (
        {"type": "local_shell"},
        {"command": ["ls", "-l"], "working_directory": "/tmp"},
        {
            "type": "local_shell_call",
            "action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "working_directory": "/tmp"},
        },
        {"type": "local_shell_call_output", "output": "a.txt"},
    ),
    "apply_patch": (
        {"type": "apply_patch"},
        {"type": "create_file", "path": "a.txt", "diff": "+a.txt"},
        {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "a.txt", "diff": "+a.txt"}},
        {"type": "apply_patch_call_output", "status": "completed", "output": "made a.txt"},
    ),
    "tool_search": (
        {"type": "tool_search", "execution": "client", "description": "Finds tools."},
        {"query": "mail"},
        {"type": "tool_search_call", "execution": "client", "arguments": {"query": "mail"}},
        {
            "type": "tool_search_output",
            "execution": "client",
            "status": "completed",
            "tools": [{"type": "function", "name": "a.txt", "parameters": {"type": "object"}, "defer_loading": True}],
        },
    ),
    "computer": (
        {"type": "computer"},
        {"actions": [{"type": "click", "x": 1, "y": 2}]},
        {
            "type": "computer_call",
            "pending_safety_checks": [],
            "actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}],
        },
        {
            "type": "computer_call_output",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,a.txt"},
        },
    ),
}


def over_json(gateway: Gateway, body: Json) -> Json:
    answer = create(gateway.port, body)
    assert answer.status == 200, answer.body
    return answer.json


def over_sse(gateway: Gateway, body: Json) -> Json:
    answer = create(gateway.port, {**body, "stream": True})
    expect_sound(answer.events)
    return answer.final


def over_websocket(gateway: Gateway, body: Json) -> Json:
    with WebSocket(gateway.port) as socket:
        socket.send({"type": "response.create", **body})
        events = socket.events_until_terminal()
    expect_sound(events)
    return events[-1]["response"]


@pytest.mark.checklist(101, 102, 103)
@pytest.mark.parametrize("ask", [over_json, over_sse, over_websocket])
@pytest.mark.parametrize("kind", TOOLS)
def test_a_clients_tool_goes_out_as_a_function_and_comes_back_as_itself(
    gateway: Gateway, upstream: Upstream, ask: Ask, kind: str
) -> None:
    declared, written, members, output = TOOLS[kind]
    name = f"carry-{kind}-{ask.__name__}"
    model = upstream.script(name, in_turn(EngineAnswer([call(kind, json.dumps(written), "call_1")]), says("done")))
    first = ask(gateway, {"model": model, "input": "go", "tools": [declared]})
    (item,) = first["output"]
    assert item == {"id": item["id"], "call_id": "call_1", "status": "completed", **members}

    answer = {"call_id": "call_1", **output}
    asked = {"model": model, "input": [answer], "tools": [declared], "previous_response_id": first["id"]}
    second = ask(gateway, asked)
    assert second["output"][0]["content"][0]["text"] == "done"
    begun, gone_on = (seen.body for seen in upstream.calls(model))
    assert [tool["type"] for tool in begun["tools"]] == ["function"]
    assert begun["tools"][0]["name"] == kind
    replayed, answered = gone_on["input"][1:]
    assert (replayed["type"], replayed["name"], replayed["call_id"]) == ("function_call", kind, "call_1")
    assert written.items() <= json.loads(replayed["arguments"]).items() or kind == "computer"
    assert (answered["type"], answered["call_id"]) == ("function_call_output", "call_1")
    assert "a.txt" in json.dumps(answered["output"])
    found = ["a.txt"] if kind == "tool_search" else []
    assert [tool["name"] for tool in gone_on["tools"]] == [kind, *found]


@pytest.mark.checklist(104)
def test_names_that_two_tools_want_are_told_apart_over_turns(gateway: Gateway, upstream: Upstream) -> None:
    function = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "shell"}, {"type": "custom", "name": "shell"}, function]

    async def call_all(request: Any, reply: Any) -> None:
        names = [tool["name"] for tool in request.body["tools"]]
        await EngineAnswer([call(name, "{}", f"call_{number}") for number, name in enumerate(names)])(request, reply)

    model = upstream.script("carry-names", in_turn(call_all, says("done")))
    first = over_sse(gateway, {"model": model, "input": "go", "tools": tools})
    assert [item["type"] for item in first["output"]] == ["shell_call", "custom_tool_call", "function_call"]
    assert [item.get("name") for item in first["output"]] == [None, "shell", "shell"]
    outputs = [
        {"type": "shell_call_output", "call_id": "call_0", "output": []},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "x"},
        {"type": "function_call_output", "call_id": "call_2", "output": "x"},
    ]
    over_sse(gateway, {"model": model, "input": outputs, "tools": tools, "previous_response_id": first["id"]})
    offered = [tool["name"] for tool in upstream.calls(model)[0].body["tools"]]
    assert offered[2] == "shell"
    assert len(set(offered)) == 3
    replayed = [item["name"] for item in upstream.calls(model)[1].body["input"] if item["type"] == "function_call"]
    assert replayed == offered


@pytest.mark.checklist(105)
@pytest.mark.parametrize("kind", TOOLS)
@pytest.mark.parametrize("ask", [over_json, over_sse])
def test_arguments_that_are_none_become_an_item_all_the_same(
    gateway: Gateway, upstream: Upstream, kind: str, ask: Ask
) -> None:
    declared, _, members, _ = TOOLS[kind]
    model = upstream.script(f"carry-junk-{kind}-{ask.__name__}", EngineAnswer([call(kind, '{"a.txt', "call_1")]))
    (item,) = ask(gateway, {"model": model, "input": "go", "tools": [declared]})["output"]
    assert item.keys() >= {"id", "call_id", "status", *members} - {"pending_safety_checks"}
    assert item["type"] == members["type"]


@pytest.mark.checklist(106)
def test_tools_come_with_the_input_and_stay_for_the_conversation(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("carry-late", says("hi"))
    given = {"type": "function", "name": "given", "parameters": {"type": "object"}}
    late = {"type": "namespace", "name": "mail", "description": "Mail.", "tools": [{**given, "name": "send"}]}
    items = [{"type": "additional_tools", "role": "developer", "tools": [late]}, {"role": "user", "content": "q"}]
    first = over_json(gateway, {"model": model, "input": items, "tools": [given]})
    assert first["tools"] == [{**given, "description": None, "strict": None}]
    over_json(gateway, {"model": model, "input": "q", "tools": [given], "previous_response_id": first["id"]})
    over_json(gateway, {"model": model, "input": "q", "previous_response_id": first["id"]})
    offered = [[tool["name"] for tool in seen.body["tools"]] for seen in upstream.calls(model)]
    assert offered == [["given", "mail__send"], ["given", "mail__send"], ["mail__send"]]
    assert all(item["type"] == "message" for seen in upstream.calls(model) for item in seen.body["input"])


@pytest.mark.checklist(107)
def test_what_no_client_runs_is_left_out_and_named(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("carry-hosted", says("hi"))
    tools = [{"type": "code_interpreter"}, {"type": "shell", "environment": {"type": "container_auto"}}]
    answer = create(gateway.port, {"model": model, "input": "q", "tools": tools})
    assert answer.headers["x-gateway-unsupported-tools"] == "code_interpreter, shell"
    assert "tools" not in upstream.calls(model)[0].body
