"""Responses made in rounds: inference, the gateway's own calls, inference again."""

import pytest
from engine.doubles import Bench, streamed, types, whole
from engine.test_run import ended
from harness.engine import Answer, call, reasoning, says
from harness.tools import MCP, ScriptedTools, tool

LOOK = tool("look")
CALL = call("mcp__s__look", '{"a": "x"}', "call_1")
OTHER = call("mcp__s__look", '{"a": "y"}', "call_2")
F = {"type": "function", "name": "f", "parameters": {}}


def calls(*items):
    return Answer(list(items), chunk=5)


async def play(way, bench, *answers, **fields):
    """The response, made in one form or the other; the stream keeps all rules of streams."""
    if way == "json":
        return await bench.answer(*map(whole, answers), **fields)
    return ended(await bench.stream(*map(streamed, answers), **fields))


both_ways = pytest.mark.parametrize("way", ["json", "stream"])


def kinds(response):
    return [item["type"] for item in response["output"]]


# ---------------------------------------------------------------- one call


@both_ways
async def test_a_call_is_run_and_the_model_asked_again(way):
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    response = await play(way, bench, calls(reasoning("Hm."), CALL), says("It is x."), tools=[MCP])
    assert (response["status"], kinds(response)) == ("completed", ["reasoning", "mcp_call", "message"])
    item = response["output"][1]
    assert item == {
        "id": item["id"], "type": "mcp_call", "status": "completed", "approval_request_id": None, "error": None,
        "arguments": '{"a": "x"}', "name": "look", "output": '{"a": "x"}', "server_label": "s",
    }  # fmt: skip
    first, second = bench.upstream.bodies
    assert [t["name"] for t in first["tools"]] == ["mcp__s__look"]
    assert second["tools"] == first["tools"]
    assert second["input"][: len(first["input"])] == first["input"]
    assert second["input"][-2:] == [
        {"type": "function_call", "call_id": item["id"], "name": "mcp__s__look", "arguments": '{"a": "x"}'},
        {"type": "function_call_output", "call_id": item["id"], "output": '{"a": "x"}'},
    ]


async def test_the_events_of_a_call():
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    told = await bench.stream(streamed(calls(CALL)), streamed(says("x", chunk=9)), tools=[MCP])
    assert types(told)[2:9] == [
        "output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.delta",
        "mcp_call_arguments.done", "mcp_call.completed", "output_item.done",
    ]  # fmt: skip


@both_ways
async def test_usage_is_the_sum_of_the_rounds(way):
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    response = await play(way, bench, calls(CALL), says("x"), tools=[MCP])
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (10, 14)
