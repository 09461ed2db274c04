"""Tools of the gateway's in the hands of agents."""

import asyncio

import pytest
from engine.agents.bench import ALPHA, ROOT, TreeBench
from engine.doubles import settle
from harness.agents import call, gate, interrupt, say, spawn, wait
from harness.tools import MCP, ScriptedListing, ScriptedTools, always, listed, returned, tool, when

LOOK = tool("look")
PAY = tool("pay", kind="mcp_approval_request")
LOOKS = call("mcp__s__look", '{"a": "x"}')
PAYS = call("mcp__s__pay", '{"sum": 5}')


def kinds(response):
    return [(item["type"], item["agent"]["agent_name"]) for item in response["output"]]


async def test_a_child_uses_a_tool_and_is_asked_again():
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[LOOKS], [say("found")]]},
        tools=ScriptedTools(known=[LOOK]),
    )
    told = await bench.stream(tools=[MCP])
    response = told[-1]["response"]
    assert ("mcp_call", ALPHA) in kinds(response)
    assert bench.played.of(ALPHA)[1].texts[-2:] == ['{"a": "x"}', '{"a": "x"}']
    for event in told:
        if "item_id" in event or "item" in event:
            assert event["agent"]["agent_name"] in (ROOT, ALPHA)
    assert bench.played.of(ALPHA)[0].body["tools"][0]["name"] == "mcp__s__look"


async def test_servers_are_asked_for_their_tools_before_anybody_is():
    listing = ScriptedListing("s", listed(LOOK))
    bench = TreeBench({ROOT: [[say("done")]]}, tools=ScriptedTools(servers=[listing]))
    told = await bench.stream(tools=[MCP])
    assert kinds(told[-1]["response"]) == [("mcp_list_tools", ROOT), ("message", ROOT)]
    assert all("agent" in event for event in told if event["type"].startswith("response.mcp"))


async def test_calls_of_one_round_run_at_once_beside_those_of_others():
    opened = asyncio.Event()
    tools = ScriptedTools({"look": when(opened, "seen")}, known=[LOOK])
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), LOOKS, LOOKS], [say("done")]], ALPHA: [[LOOKS], [say("found")]]}, tools=tools
    )
    listener, _ = await bench.start(tools=[MCP])
    await settle(100)
    assert len(tools.calls) == 3
    opened.set()
    response = (await listener.take_all())[-1]["response"]
    assert [kind for kind, _ in kinds(response)].count("mcp_call") == 3


async def test_an_interrupt_lets_a_tool_end_and_keeps_what_it_returned():
    opened = asyncio.Event()
    tools = ScriptedTools({"look": when(opened, "seen")}, known=[LOOK])
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha")], [gate("now"), interrupt("alpha")], [say("done")]],
            ALPHA: [[LOOKS]],
        },
        tools=tools,
    )
    listener, _ = await bench.start(tools=[MCP])
    await settle(100)
    bench.played.release("now")
    await settle(100)
    opened.set()
    response = (await listener.take_all())[-1]["response"]
    (item,) = [item for item in response["output"] if item["type"] == "mcp_call"]
    assert item["output"] == "seen"
    assert response["status"] == "completed"


async def test_what_a_client_approves_is_run_for_the_agent_that_asked():
    tools = ScriptedTools({"pay": always(returned("paid"))}, known=[PAY])
    script = {ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[PAYS], [say("found")]]}
    bench = TreeBench(script, tools=tools)
    first = await bench.answer(tools=[MCP])
    (request,) = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
    assert request["agent"] == {"agent_name": ALPHA}
    approval = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    second = await bench.answer(tools=[MCP], previous_response_id=first["id"], input=[approval])
    assert kinds(second)[0] == ("mcp_call", ALPHA)
    assert second["output"][0]["output"] == "paid"
    assert bench.played.of(ALPHA)[1].texts[-2:] == ['{"sum": 5}', "paid"]
    assert second["status"] == "completed"


async def test_an_approval_may_be_injected():
    tools = ScriptedTools({"pay": always(returned("paid"))}, known=[PAY])
    bench = TreeBench({ROOT: [[PAYS], [say("done")]]}, tools=tools, live=True)
    listener, _ = await bench.start(tools=[MCP])
    await settle(100)
    told = listener.take()
    (request,) = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    approval = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    assert await bench.engine.runs.inject(told[0]["response"]["id"], [approval]) is True
    response = (await listener.take_all())[-1]["response"]
    assert [kind for kind, _ in kinds(response)] == ["mcp_approval_request", "mcp_call", "message"]
    assert bench.played.of(ROOT)[1].texts[-1] == "paid"


async def test_a_call_that_is_declined_is_not_run():
    tools = ScriptedTools(known=[PAY])
    bench = TreeBench({ROOT: [[PAYS], [say("done")]]}, tools=tools)
    first = await bench.answer(tools=[MCP])
    approval = {"type": "mcp_approval_response", "approval_request_id": first["output"][0]["id"], "approve": False}
    second = await bench.answer(tools=[MCP], previous_response_id=first["id"], input=[approval])
    assert kinds(second) == [("message", ROOT)]
    assert tools.calls == []
    assert "declined" in bench.played.of(ROOT)[1].texts[-1]


@pytest.mark.parametrize("leaves", [True, False])
async def test_the_toolkit_is_closed_whatever_happens(leaves):
    tools = ScriptedTools(known=[LOOK])
    bench = TreeBench({ROOT: [[gate("hold"), say("done")]]}, tools=tools)
    listener, task = await bench.start(tools=[MCP])
    await bench.played.reached("hold")
    if leaves:
        task.cancel()
        await asyncio.wait([task])
    else:
        bench.played.release("hold")
        await listener.take_all()
    assert tools.closed == 1


async def test_calls_run_one_by_one_where_the_client_wants_that():
    opened = asyncio.Event()
    tools = ScriptedTools({"look": when(opened, "seen")}, known=[LOOK])
    bench = TreeBench({ROOT: [[LOOKS, LOOKS], [say("done")]]}, tools=tools)
    listener, _ = await bench.start(tools=[MCP], parallel_tool_calls=False)
    await settle(100)
    assert len(tools.calls) == 1
    opened.set()
    await listener.take_all()
    assert len(tools.calls) == 2


async def test_what_a_tool_returns_may_be_too_much_for_the_response():
    tools = ScriptedTools({"look": always(returned("x" * 30_000))}, known=[LOOK])
    bench = TreeBench({ROOT: [[LOOKS]]}, tools=tools, responses={"max_retained_bytes": 20_000})
    told = await bench.stream(tools=[MCP])
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["error"]["resource"] == "max_retained_bytes"


async def test_a_tool_that_is_gone_when_its_call_is_approved_is_told_as_gone():
    tools = ScriptedTools({"pay": always(returned("paid"))}, known=[PAY])
    bench = TreeBench({ROOT: [[PAYS], [say("done")]]}, tools=tools)
    first = await bench.answer(tools=[MCP])
    tools.known = [LOOK]
    approval = {"type": "mcp_approval_response", "approval_request_id": first["output"][0]["id"], "approve": True}
    second = await bench.answer(tools=[MCP], previous_response_id=first["id"], input=[approval])
    assert kinds(second) == [("message", ROOT)]
    assert tools.calls == []
    assert bench.played.of(ROOT)[1].texts[-1] == "The tool is not offered any more."


async def test_what_was_approved_and_run_is_not_run_again():
    tools = ScriptedTools({"pay": always(returned("paid"))}, known=[PAY])
    bench = TreeBench({ROOT: [[PAYS], [say("done")], [say("more")]]}, tools=tools)
    first = await bench.answer(tools=[MCP])
    approval = {"type": "mcp_approval_response", "approval_request_id": first["output"][0]["id"], "approve": True}
    second = await bench.answer(tools=[MCP], previous_response_id=first["id"], input=[approval])
    await bench.answer(tools=[MCP], previous_response_id=second["id"], input="go on")
    assert len(tools.calls) == 1


async def test_what_a_server_listed_is_known_to_the_next_response():
    tools = ScriptedTools(servers=[ScriptedListing("s", listed(LOOK))])
    bench = TreeBench({ROOT: [[say("done")], [say("more")]]}, tools=tools)
    first = await bench.answer(tools=[MCP])
    await bench.answer(tools=[MCP], previous_response_id=first["id"], input="go on")
    before, after = ([item["type"] for item in context.items] for context in tools.contexts)
    assert "mcp_list_tools" not in before
    assert "mcp_list_tools" in after
