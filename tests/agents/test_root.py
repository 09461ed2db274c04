"""A root without helpers: its events, calls for the client, answers that are none, and a failed inference."""

import pytest
from agents.site import TRANSPORTS, Refused, Site, items_of, output, texts
from harness.agents import call, cut, fail, say, spawn, think, wait

from gateway.protocol.errors import ResponseNotFound

ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")
ROOT = {"agent_name": "/root"}


@pytest.mark.agents(15)
@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_a_root_that_answers(transport):
    site = Site({"/root": [[say("hi")]]})
    events = await site.events(transport)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(9))
    added, done = events[2], events[-2]
    assert (added["agent"], added["item"]["agent"]) == (ROOT, ROOT)
    assert "phase" not in added["item"]
    assert done["item"]["phase"] == "final_answer"
    response = events[-1]["response"]
    assert response["output"] == [done["item"]]
    assert [tool["name"] for tool in response["tools"]] == ["get_proposal"]
    assert "multi_agent" not in response
    site.assert_at_rest()


@pytest.mark.agents(15)
async def test_as_json_it_is_the_same():
    site = Site({"/root": [[say("hi")]]})
    response = await site.post()
    (item,) = response["output"]
    assert (item["agent"], item["phase"], texts(response)) == (ROOT, "final_answer", ["hi"])
    assert (response["status"], response["store"]) == ("completed", True)
    site.assert_at_rest()


async def test_what_the_model_is_asked():
    site = Site({"/root": [[say("hi")]]})
    await site.post(instructions="Be brief.", max_output_tokens=50, temperature=0.5)
    (asked,) = site.upstream.asked
    body = asked.body
    assert body["instructions"].startswith("Be brief.\n\nYou are agent `/root`")
    names = [tool["name"] for tool in body["tools"]]
    assert names[0] == "get_proposal"
    assert sorted(names[1:]) == [
        "followup_task",
        "interrupt_agent",
        "list_agents",
        "send_message",
        "spawn_agent",
        "wait_agent",
    ]
    assert (body["stream"], body["store"], body["max_output_tokens"], body["temperature"]) == (True, False, 50, 0.5)
    assert not {"multi_agent", "previous_response_id", "context_management"} & body.keys()


@pytest.mark.agents(15)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_of_several_messages_the_last_that_says_anything_is_the_answer(transport):
    site = Site({"/root": [[say("one"), say("two"), say("")]]})
    response = await site.answer(transport)
    assert [item["phase"] for item in response["output"]] == ["commentary", "final_answer", "commentary"]
    site.assert_at_rest()


async def test_a_format_of_the_text_is_for_the_root_alone():
    site = Site({"/root": [[spawn("alpha"), wait()], [say("{}")]], "/root/alpha": [[say("six")]]})
    await site.post(text={"format": {"type": "json_object"}, "verbosity": "low"}, parallel_tool_calls=False)
    formats = {asked.path: (asked.body.get("text") or {}).get("format") for asked in site.upstream.asked}
    assert formats == {"/root": {"type": "json_object"}, "/root/alpha": None}
    assert {asked.body["parallel_tool_calls"] for asked in site.upstream.asked} == {False}


@pytest.mark.agents(16)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_call_for_the_client_ends_the_response(transport):
    site = Site({"/root": [[say("a"), ASK]]})
    response = await site.answer(transport)
    message, asked = response["output"]
    assert (message["phase"], message["agent"]) == ("commentary", ROOT)
    assert (asked["type"], asked["call_id"], asked["agent"]) == ("function_call", "call_p1", ROOT)
    assert response["status"] == "completed"
    assert len(site.upstream) == 1
    site.assert_at_rest()


@pytest.mark.agents(17)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_its_output_leads_to_the_answer(transport):
    site = Site({"/root": [[say("a"), ASK], [say("alpha")]]})
    parent = await site.answer(transport)
    response = await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1", "six weeks")])
    assert response["previous_response_id"] == parent["id"]
    assert texts(response) == ["alpha"]
    assert response["output"][0]["phase"] == "final_answer"
    asked = site.upstream.of("/root")[1]
    assert asked.texts == ["Compare.", "a", '{"proposal": "alpha"}', "six weeks"]
    site.assert_at_rest()


@pytest.mark.agents(18)
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([], "missing_tool_output"),
        ([{"type": "message", "role": "user", "content": "well?"}], "missing_tool_output"),
        ([output("call_p1"), output("call_p9")], "invalid_tool_output"),
        ([output("call_p9")], "invalid_tool_output"),
        ([output("call_p1"), output("call_p1", "2")], "invalid_tool_output"),
        ([{"type": "custom_tool_call_output", "call_id": "call_p1", "output": "x"}], "invalid_tool_output"),
    ],
)
async def test_a_wrong_continuation_is_refused_and_the_right_one_still_works(given, code):
    site = Site({"/root": [[ASK], [say("alpha")]]})
    parent = await site.post()
    for transport in TRANSPORTS:
        with pytest.raises(Refused) as refused:
            await site.answer(transport, previous_response_id=parent["id"], input=given)
        assert (refused.value.status, refused.value.error["code"]) == (400, code)
    assert (len(site.upstream), len(site.store.appended)) == (1, 1)
    response = await site.post(previous_response_id=parent["id"], input=[output("call_p1")])
    assert texts(response) == ["alpha"]
    site.assert_at_rest()


@pytest.mark.agents(19)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_thinking_alone_is_asked_on(transport):
    site = Site({"/root": [[think("x")], [say("y")]]})
    response = await site.answer(transport)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert [item["phase"] for item in items_of(response, "message")] == ["final_answer"]
    assert len(site.upstream) == 2
    site.assert_at_rest()


@pytest.mark.agents(19)
async def test_empty_messages_are_no_answer_either():
    site = Site({"/root": [[say("")], [], [say("y")]]})
    response = await site.post()
    assert texts(response)[-1] == "y"
    site.assert_at_rest()


@pytest.mark.agents(19)
async def test_three_rounds_of_thinking_fail_the_response():
    site = Site({"/root": [[think("x")]] * 3})
    events = await site.stream()
    assert events[-1]["type"] == "response.failed"
    assert (len(site.upstream), site.store.appended) == (3, [])
    site.assert_at_rest()


@pytest.mark.agents(20)
@pytest.mark.parametrize("later", [False, True])
async def test_a_failed_inference_of_the_root_fails_the_response(later):
    site = Site({"/root": [[think("x")], [fail(500)]] if later else [[say("x"), fail(500)]]})
    events = await site.stream()
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"]
    with pytest.raises(ResponseNotFound):
        await site.engine.retrieve("local", events[0]["response"]["id"])
    assert site.store.appended == []
    site.assert_at_rest()


@pytest.mark.agents(20)
async def test_one_refused_at_once_is_an_error_without_a_response():
    site = Site({"/root": [[fail(500)]]})
    for transport in ("json", "sse"):
        site.upstream.script["/root"] = [[fail(500)]] * 2
        with pytest.raises(Refused) as refused:
            await site.answer(transport)
        assert refused.value.status == 502
    assert site.store.appended == []
    site.assert_at_rest()


async def test_a_length_limit_of_the_root_makes_the_response_incomplete():

    site = Site({"/root": [[say("half an"), cut()]]})
    response = await site.post()
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["status"] == "incomplete"
    site.assert_at_rest()
