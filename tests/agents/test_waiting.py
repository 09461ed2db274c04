"""Waiting: what ends it, how long it takes, and that nobody waits for what cannot come."""

import asyncio
import json

import pytest
from agents.site import TRANSPORTS, Site, errors, items_of, letter, outcomes, output, texts, told
from harness.agents import call, gate, say, send, spawn, wait

ALPHA, BETA = "/root/alpha", "/root/beta"
ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")
CAME = {"message": "Wait completed.", "timed_out": False}
TIMED_OUT = {"message": "Wait timed out.", "timed_out": True}
ALONE = {"message": "No other agent is active.", "timed_out": False}
FOR_CLIENT = {"message": "Agents are waiting for client tool outputs.", "timed_out": False}


def now():
    """Seconds anybody has waited."""
    return asyncio.get_running_loop().time()


def waits(response):
    """What the waits of a response returned, in the order in which they ended."""
    return [found for found in outcomes(response) if "timed_out" in found]


@pytest.mark.agents(42)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_mail_in_the_box_ends_a_wait_at_once(transport):
    site = Site(
        {"/root": [[spawn("alpha")], [gate("root"), wait()], [say("done")]], ALPHA: [[gate("alpha"), say("six")]]}
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("root", "alpha")
        site.upstream.release("alpha")
        await site.upstream.until_closed(ALPHA)
        site.upstream.release("root")
        response = await answer
    assert waits(response) == [CAME]
    assert now() == 0
    site.assert_at_rest()


@pytest.mark.agents(43)
@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_mail_ends_a_wait_and_comes_at_the_boundary(transport):
    site = Site({"/root": [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[gate("alpha"), say("six")]]})
    task = asyncio.create_task(site.events(transport))
    await site.upstream.reached("alpha")
    await asyncio.sleep(5)
    site.upstream.release("alpha")
    events = await task
    lines = told(events)
    ended = lines.index("done multi_agent_call_output wait_agent /root")
    assert lines[ended + 1 : ended + 3] == ["added agent_message /root", "done agent_message /root"]
    assert waits(events[-1]["response"]) == [CAME]
    assert site.upstream.of("/root")[1].texts[-2:] == [
        '{"message": "Wait completed.", "timed_out": false}',
        letter("FINAL_ANSWER", "/root", ALPHA, "six"),
    ]
    assert now() == 5
    site.assert_at_rest()


@pytest.mark.agents(44)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_wait_ends_at_its_time(transport):
    site = Site({"/root": [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[gate("alpha"), say("six")]]})
    async with site.answering(transport) as answer:
        await site.upstream.until_asked("/root", 2)
        assert now() == 30
        site.upstream.release("alpha")
        response = await answer
    assert waits(response) == [TIMED_OUT]
    assert json.loads(site.upstream.of("/root")[1].texts[-1]) == TIMED_OUT
    site.assert_at_rest()


@pytest.mark.agents(45)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("before", [[], [[spawn("alpha"), wait()]]])
async def test_who_is_alone_does_not_wait(transport, before):
    site = Site({"/root": [*before, [wait()], [say("done")]], ALPHA: [[say("six")]]})
    response = await site.answer(transport)
    assert waits(response)[-1] == ALONE
    assert now() == 0
    site.assert_at_rest()


@pytest.mark.agents(45)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_who_has_a_call_of_its_own_does_not_wait_either(transport):
    site = Site({"/root": [[ASK, wait()], [say("done")]]})
    parent = await site.answer(transport)
    assert waits(parent) == [ALONE]
    assert now() == (pytest.approx(0.25) if transport == "websocket" else 0)
    response = await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1")])
    assert texts(response) == ["done"]
    site.assert_at_rest()


@pytest.mark.agents(46)
@pytest.mark.parametrize("transport", ["json", "sse"])
async def test_over_http_nobody_waits_for_who_waits_for_the_client(transport):
    site = Site({"/root": [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[ASK], [say("six")]]})
    parent = await site.answer(transport)
    assert parent["status"] == "completed"
    assert waits(parent) == [FOR_CLIENT]
    assert (len(site.upstream.of("/root")), now()) == (1, 0)
    response = await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1", "6")])
    assert sorted(texts(response)) == ["done", "six"]
    site.assert_at_rest()


@pytest.mark.agents(46)
async def test_over_http_that_holds_through_agents_that_wait_for_such():
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], [say("done")]],
            ALPHA: [[spawn("sub"), wait()], [say("six")]],
            "/root/alpha/sub": [[ASK], [say("s")]],
        }
    )
    parent = await site.post()
    assert waits(parent) == [FOR_CLIENT, FOR_CLIENT]
    assert (len(site.upstream), now()) == (3, 0)
    response = await site.post(previous_response_id=parent["id"], input=[output("call_p1", "6")])
    assert "s" in texts(response)
    site.assert_at_rest()


@pytest.mark.agents(47)
async def test_on_a_websocket_the_wait_stays_open():
    site = Site({"/root": [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[ASK], [say("six")]]})
    async with site.connect() as client:
        client.create()
        await client.item("function_call", ALPHA)
        await asyncio.sleep(20)
        client.inject((await client.begun()), output("call_p1", "6"))
        events = await client.ended()
    response = events[-1]["response"]
    assert waits(response) == [CAME]
    assert texts(response) == ["six", "done"]
    assert len(site.store.appended) == 1
    site.assert_at_rest()


@pytest.mark.agents(48)
@pytest.mark.parametrize(("asked", "seconds"), [(1, 10), (0, 10), (-5, 10), (20_000, 20), (10**9, 60)])
async def test_times_are_brought_into_their_bounds(asked, seconds):
    site = Site(
        {"/root": [[spawn("alpha"), wait(asked)], [say("done")]], ALPHA: [[gate("alpha"), say("six")]]},
        multi_agent={"wait_max_ms": 60_000},
    )
    async with site.answering() as answer:
        await site.upstream.until_asked("/root", 2)
        assert now() == seconds
        site.upstream.release("alpha")
        assert waits(await answer) == [TIMED_OUT]
    site.assert_at_rest()


@pytest.mark.agents(49)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_second_wait_in_one_round_is_an_error(transport):
    site = Site({"/root": [[spawn("alpha"), wait(), wait()], [say("done")]], ALPHA: [[say("six")]]})
    response = await site.answer(transport)
    assert len(errors(response)) == 1
    assert waits(response) == [CAME]
    site.assert_at_rest()


@pytest.mark.agents(50)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_agents_that_wait_for_each_other_go_on(transport):
    site = Site({"/root": [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[wait()], [say("six")]]})
    response = await site.answer(transport)
    assert waits(response)[0] == ALONE
    assert len(waits(response)) == 2
    assert now() == 0
    site.assert_at_rest()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_note_ends_a_wait_of_a_sibling(transport):
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta"), wait(), send("alpha", "x")], [wait()], [say("done")]],
            ALPHA: [[wait()], [say("six")]],
            BETA: [[gate("beta"), send(ALPHA, "Over to you.")], [say("eight")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("beta")
        site.upstream.release("beta")
        response = await answer
    assert errors(response) == []
    assert items_of(response, "agent_message", ALPHA)
    site.assert_at_rest()
