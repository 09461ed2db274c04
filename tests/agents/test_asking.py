"""Asking for several agents: what switches them on, and what is refused before anything happens."""

import pytest
from agents.site import PROPOSAL, TRANSPORTS, Refused, Site
from harness.agents import PLAIN, say


def tool(name, **more):
    return {**PROPOSAL, "name": name, **more}


def namespace(*names):
    members = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in names]
    return {"type": "namespace", "name": "desk", "description": "d", "tools": members}


LIMIT = "multi_agent.max_concurrent_subagents"
WRONG = {
    "agents without enabled": ({"multi_agent": {}}, "multi_agent.enabled"),
    "enabled is no boolean": ({"multi_agent": {"enabled": "yes"}}, "multi_agent.enabled"),
    "agents are no object": ({"multi_agent": True}, "multi_agent"),
    "an unknown key": ({"multi_agent": {"enabled": True, "depth": 3}}, "multi_agent.depth"),
    "not stored": ({"store": False}, "store"),
    "tool calls counted": ({"max_tool_calls": 1}, "max_tool_calls"),
    "summaries of reasoning": ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
    "the older name of them": ({"reasoning": {"generate_summary": "auto"}}, "reasoning.summary"),
    "a name of an action": ({"tools": [tool("wait_agent")]}, "tools[0].name"),
    "as the second tool": ({"tools": [PROPOSAL, tool("spawn_agent")]}, "tools[1].name"),
    "as a custom tool": ({"tools": [{"type": "custom", "name": "list_agents"}]}, "tools[0].name"),
    "in a namespace": ({"tools": [namespace("other", "send_message")]}, None),
    "a conversation": ({"conversation": "conv_1"}, "conversation"),
    "a replayed item": ({"input": [{"type": "multi_agent_call", "call_id": "c", "arguments": "{}"}]}, "input[0].type"),
    **{
        f"at most {count!r}": ({"multi_agent": {"enabled": True, "max_concurrent_subagents": count}}, LIMIT)
        for count in (0, -1, "x", 1.5, True)
    },
}


@pytest.mark.agents(4, 5, 6, 7, 8, 9, 10, 11, 14)
@pytest.mark.parametrize("transport", ["json", "websocket"])
@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_named_before_anything_happens(transport, case):
    given, param = WRONG[case]
    site = Site()
    with pytest.raises(Refused) as refused:
        await site.answer(transport, **given)
    assert refused.value.status == 400
    assert refused.value.error["type"] == "invalid_request_error"
    assert refused.value.error["code"]
    if param is not None:
        assert refused.value.error["param"] == param
    assert (len(site.upstream), site.store.appended) == (0, [])
    site.assert_at_rest()


@pytest.mark.agents(11)
@pytest.mark.parametrize("transport", ["json", "sse"])
async def test_it_does_not_run_in_the_background(transport):
    site = Site()
    with pytest.raises(Refused) as refused:
        await site.answer(transport, background=True)
    assert (refused.value.status, refused.value.error["param"]) == (400, "background")
    assert len(site.upstream) == 0


@pytest.mark.agents(7, 8, 9)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "given", [{"max_tool_calls": None}, {"reasoning": {"effort": "low"}}, {"store": True}, {"store": None}], ids=str
)
async def test_what_is_not_wrong(transport, given):
    site = Site({"/root": [[say("hi")]]})
    response = await site.answer(transport, **given)
    assert (response["status"], response["store"]) == ("completed", True)


@pytest.mark.agents(1, 14)
@pytest.mark.parametrize("transport", ["json", "websocket"])
async def test_the_header_is_needed(transport):
    site = Site()
    if transport == "json":
        with pytest.raises(Refused) as refused:
            await site.post(beta=False)
        status, error = refused.value.status, refused.value.error
    else:
        async with site.connect(beta=False) as client:
            client.create()
            (frame,) = await client.ended()
        status, error = frame["status"], frame["error"]
    assert (status, error["code"], error["param"]) == (400, "unknown_parameter", "multi_agent")
    assert (len(site.upstream), site.store.appended) == (0, [])


@pytest.mark.agents(1)
@pytest.mark.parametrize("transport", ["json", "websocket"])
async def test_or_not_where_the_operator_says_so(transport):
    site = Site({"/root": [[say("hi")]]}, multi_agent={"require_beta_header": False})
    if transport == "json":
        assert (await site.post(beta=False))["output"][0]["agent"] == {"agent_name": "/root"}
        return
    async with site.connect(beta=False) as client:
        client.create()
        assert (await client.ended())[-1]["type"] == "response.completed"


@pytest.mark.agents(3)
@pytest.mark.parametrize(
    "headers",
    [
        [b"responses_multi_agent=v1", b"responses_multi_agent=v1"],
        [b"assistants=v2, responses_multi_agent=v1 ,other=v1"],
        [b"assistants=v2", b"responses_multi_agent=v1"],
    ],
)
async def test_the_header_may_stand_in_any_line(headers):
    site = Site({"/root": [[say("hi")]]})
    request = site.request(beta=False)
    request.scope["headers"] += [(b"openai-beta", value) for value in headers]
    await request.serve(site.endpoint)
    assert request.status == 200
    assert request.json["output"][0]["agent"] == {"agent_name": "/root"}


@pytest.mark.agents(1, 3)
@pytest.mark.parametrize("value", [b"Responses_Multi_Agent=v1", b"responses_multi_agent=v2", b"responses_multi_agent"])
async def test_another_value_is_none(value):
    site = Site()
    request = site.request(beta=False)
    request.scope["headers"] += [(b"openai-beta", value)]
    await request.serve(site.endpoint)
    assert request.status == 400


@pytest.mark.agents(2)
@pytest.mark.parametrize("beta", [True, False])
@pytest.mark.parametrize("given", [{"multi_agent": {"enabled": False}}, {"multi_agent": None}], ids=str)
async def test_switched_off_it_is_an_ordinary_response(beta, given):
    site = Site({PLAIN: [[say("hi")], [say("hi")]]})
    response = await site.post(beta=beta, **given)
    events = await site.stream(beta=beta, **given)
    assert "agent" not in str(response["output"])
    assert not any("agent" in event for event in events)
    assert len(site.upstream.asked[0].body["tools"]) == 1
    site.assert_at_rest()


@pytest.mark.agents(12)
@pytest.mark.parametrize("lane", [None, "one"])
async def test_a_lane_goes_on_after_a_refusal(lane):
    site = Site({"/root": [[say("hi")]]})
    async with site.connect() as client:
        client.create(lane=lane, max_tool_calls=1)
        client.create(lane=lane)
        (refused,) = await client.ended(lane, 1)
        events = await client.ended(lane, 2)
    assert (refused["type"], refused["status"], refused.get("stream_id")) == ("error", 400, lane)
    assert events[-1]["type"] == "response.completed"
    assert {event.get("stream_id") for event in events} == {lane}
    site.assert_at_rest()


async def test_the_operators_ceiling_holds():
    site = Site({"/root": [[say("hi")]]}, multi_agent={"max_concurrent_subagents_ceiling": 4})
    with pytest.raises(Refused) as refused:
        await site.post(multi_agent={"enabled": True, "max_concurrent_subagents": 5})
    assert refused.value.error["param"] == "multi_agent.max_concurrent_subagents"
    assert (await site.post(multi_agent={"enabled": True, "max_concurrent_subagents": 4}))["status"] == "completed"


async def test_where_it_is_switched_off_it_is_refused_by_name():
    site = Site(multi_agent={"enabled": False})
    with pytest.raises(Refused) as refused:
        await site.post()
    assert (refused.value.status, refused.value.error["param"]) == (400, "multi_agent")
