"""When a response of several agents ends: after all of them, at once, within the grace, or at its deadline."""

import asyncio

import pytest
from agents.site import TRANSPORTS, Refused, Site, items_of, letter, output, texts, told
from harness.agent_rules import check_run
from harness.agents import call, gate, say, spawn, spend, wait

ALPHA, BETA = "/root/alpha", "/root/beta"
ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")


def now():
    """Seconds anybody has waited."""
    return asyncio.get_running_loop().time()


@pytest.mark.agents(59)
async def test_a_root_that_has_answered_waits_for_its_children():
    site = Site({"/root": [[spawn("alpha")], [say("done")]], ALPHA: [[gate("alpha"), say("six")]]})
    async with site.connect() as client:
        client.create()
        await client.item("message", "/root")
        await asyncio.sleep(100)
        assert client.socket.frames[-1]["type"] != "response.completed"
        site.upstream.release("alpha")
        events = await client.ended()
    assert told(events)[-5:] == [
        f"added message {ALPHA}",
        f"done message {ALPHA}",
        "added agent_message /root",
        "done agent_message /root",
        "completed",
    ]
    assert len(site.upstream.of("/root")) == 2
    site.assert_at_rest()


@pytest.mark.agents(60)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_root_that_has_not_answered_is_asked_once_more(transport):
    site = Site({"/root": [[spawn("alpha")], [say("done")], [say("So it is six.")]], ALPHA: [[ASK], [say("six")]]})
    parent = await site.answer(transport)
    assert texts(parent) == ["done"]
    response = await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1", "6")])
    assert texts(response) == ["six", "So it is six."]
    assert [item["author"] for item in items_of(response, "agent_message")] == [ALPHA]
    assert site.upstream.of("/root")[2].texts[-1] == letter("FINAL_ANSWER", "/root", ALPHA, "six")
    site.assert_at_rest()


@pytest.mark.agents(60)
async def test_or_not_where_the_operator_says_so():
    site = Site(
        {"/root": [[spawn("alpha")], [say("done")]], ALPHA: [[ASK], [say("six")]]},
        multi_agent={"finish_unanswered_root": False},
    )
    parent = await site.post()
    response = await site.post(previous_response_id=parent["id"], input=[output("call_p1", "6")])
    assert texts(response) == ["six"]
    assert [item["recipient"] for item in items_of(response, "agent_message")] == ["/root"]
    site.assert_at_rest()


@pytest.mark.agents(61)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_wait_that_nobody_can_end_holds_nothing_up(transport):
    site = Site({"/root": [[spawn("alpha")], [say("done")]], ALPHA: [[wait(120_000)], [say("six")]]})
    response = await site.answer(transport)
    assert sorted(texts(response)) == ["done", "six"]
    assert now() == 0
    site.assert_at_rest()


@pytest.mark.agents(62)
async def test_an_output_within_the_grace_goes_on_with_the_response():
    site = Site({"/root": [[ASK], [say("alpha")]]})
    async with site.connect() as client:
        client.create()
        await client.item("function_call")
        await asyncio.sleep(0.24)
        client.inject(await client.begun(), output("call_p1", "6"))
        events = await client.ended()
    assert texts(events[-1]["response"]) == ["alpha"]
    assert check_run(events, [{"input": [output("call_p1", "6")]}]) == []
    assert site.upstream.of("/root")[1].texts[-1] == "6"
    assert now() == pytest.approx(0.24)
    site.assert_at_rest()


@pytest.mark.agents(62)
async def test_an_output_that_is_not_the_last_begins_the_grace_anew():
    site = Site({"/root": [[ASK, call("get_proposal", {"proposal": "beta"}, id="call_p2")], [say("alpha")]]})
    async with site.connect() as client:
        client.create()
        await client.item("function_call", count=2)
        for call_id in ("call_p1", "call_p2"):
            await asyncio.sleep(0.2)
            client.inject(await client.begun(), output(call_id, "6"))
        events = await client.ended()
    assert texts(events[-1]["response"]) == ["alpha"]
    assert now() == pytest.approx(0.4)
    site.assert_at_rest()


@pytest.mark.agents(62)
async def test_behind_the_grace_it_comes_too_late():
    site = Site({"/root": [[ASK], [say("alpha")]]})
    async with site.connect() as client:
        client.create()
        events = await client.ended()
        assert now() == pytest.approx(0.25)
        client.inject(events[0]["response"]["id"], output("call_p1", "6"))
        late = await client.event("response.inject.failed")
    assert late["error"]["code"] == "response_already_completed"
    assert check_run([*events, late], [{"input": [output("call_p1", "6")]}]) == []
    assert len(site.upstream) == 1
    site.assert_at_rest()


@pytest.mark.agents(62)
async def test_without_calls_that_wait_there_is_no_grace():
    site = Site({"/root": [[say("hi")]]})
    await site.answer("websocket")
    assert now() == 0
    site.assert_at_rest()


@pytest.mark.agents(63)
@pytest.mark.parametrize("transport", ["json", "sse"])
async def test_http_has_no_grace(transport):
    site = Site({"/root": [[ASK]]})
    await site.answer(transport)
    assert now() == 0
    site.assert_at_rest()


@pytest.mark.agents(64)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_deadline_ends_all_of_it(transport):
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta")], [say("so ", gate("never"))]],
            ALPHA: [[gate("never"), say("x")]],
            BETA: [[say("y"), call("get_proposal", {"proposal": "b"})]],
        },
        multi_agent={"run_deadline_s": 100},
    )
    if transport == "json":
        with pytest.raises(Refused) as refused:
            await site.post()
        assert refused.value.error["code"] == "server_error"
    else:
        response = (await site.events(transport))[-1]["response"]
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert now() == pytest.approx(100)
    assert site.upstream.running == []
    assert site.store.appended == []
    site.assert_at_rest()


@pytest.mark.agents(64)
@pytest.mark.parametrize("bounds", [{"max_rounds_per_response": 5}, {"max_rounds_per_turn": 3}])
async def test_so_does_a_root_that_never_comes_to_an_end(bounds):
    site = Site({"/root": [[call("list_agents")]] * 9}, multi_agent=bounds)
    events = await site.stream()
    assert events[-1]["response"]["error"]["code"] == "server_error"
    assert len(site.upstream) == next(iter(bounds.values()))
    site.assert_at_rest()


@pytest.mark.agents(65)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_usage_is_that_of_all_agents(transport):
    site = Site(
        {
            "/root": [[spawn("alpha"), wait(), spend(100, 1)], [say("done"), spend(200, 2)]],
            ALPHA: [[call("list_agents"), spend(1000, 10)], [say("six"), spend(2000, 20)]],
        }
    )
    response = await site.answer(transport)
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (3300, 33, 3333)
    site.assert_at_rest()
