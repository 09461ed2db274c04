"""What the gateway's own tools know of a tree of agents."""

from engine.agents.bench import ROOT
from engine.agents.clients import ON, Client
from harness.agents import say, spawn, wait
from harness.tools import MCP, ScriptedTools

from gateway.engine.agents.trees import list_decided, list_known
from gateway.protocol.agents.actions import ACTIONS


async def test_no_hosted_tool_takes_the_name_of_an_action() -> None:
    tools = ScriptedTools()
    client = Client({ROOT: [[say("hi")]]}, tools=tools)
    for given in (ON, None):
        plan = await client.plan(tools=[MCP], multi_agent=given)
        assert plan.open_tools is not None
        plan.open_tools()
    names = [context.names for context in tools.contexts]
    assert names == [frozenset(ACTIONS), frozenset()]


def test_only_what_is_decided_now_is_decided() -> None:
    asked = [{"type": "mcp_approval_request", "id": f"mcpr_{number}"} for number in range(3)]
    listing = {"type": "mcp_list_tools", "id": "mcpl_1"}
    known = [{"type": "message"}, listing, *asked]
    new = [
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "message"},
    ]
    assert list_decided(known, new) == ([listing, asked[1], *new], 2)
    assert list_decided(known, []) == ([listing], 1)


async def test_tools_that_several_agents_have_heard_of_are_known_once() -> None:
    found = {"type": "function", "name": "found", "parameters": {"type": "object"}}
    brought = {"type": "additional_tools", "role": "developer", "tools": [found]}
    client = Client({ROOT: [[spawn("alpha"), wait()], [say("done")]], "/root/alpha": [[say("x")]]})
    first = await client.answer(input=[{"type": "message", "role": "user", "content": "hi"}, brought], multi_agent=ON)
    plan = await client.plan(previous_response_id=first["id"], input="go on", multi_agent=ON)
    known = list_known(plan.tree)
    assert [len(agent.history) > 1 for agent in plan.tree.agents.values()] == [True, True]
    assert [item["type"] for item in known].count("additional_tools") == 1
