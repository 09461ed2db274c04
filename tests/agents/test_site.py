"""The scripted server and its clients do what the tests of several agents take for granted."""

import asyncio

import pytest
from agents.site import TRANSPORTS, Refused, Site, output, texts
from harness.agents import PLAIN, Overrun, call, cut, fail, gate, say, spend, think

ALONE = {"multi_agent": None}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_script_is_played_inference_by_inference(transport):
    site = Site({PLAIN: [[think("hm"), say("first"), spend(3, 4)], [say("sec", "ond")]]})
    first = await plain(site, transport)
    second = await plain(site, transport)
    assert (texts(first), texts(second)) == (["first"], ["second"])
    assert [item["type"] for item in first["output"]] == ["reasoning", "message"]
    assert first["usage"]["total_tokens"] == 7
    assert [asked.number for asked in site.upstream.of(PLAIN)] == [1, 2]
    site.assert_at_rest()


async def test_an_agent_is_known_by_its_marker():
    site = Site({"/root/alpha": [[call("get_proposal", {"proposal": "alpha"}, id="call_p1")]]})
    response = await plain(site, "json", instructions="Be kind.\n\nYou are agent `/root/alpha`, working.")
    assert response["output"][0]["call_id"] == "call_p1"
    assert [asked.path for asked in site.upstream.asked] == ["/root/alpha"]


async def test_gates_hold_an_answer_before_during_and_between_items():
    site = Site({PLAIN: [[gate("start"), say("one ", gate("middle"), "two"), gate("between"), say("three")]]})
    async with site.begun(stream=True, **ALONE) as request:
        for name, said in (("start", b"created"), ("middle", b"one "), ("between", b"one two")):
            await site.upstream.reached(name)
            assert site.upstream.running == [PLAIN]
            site.upstream.release(name)
            await request.until_sent(said)
    assert b"three" in request.body
    site.assert_at_rest()


async def test_an_inference_fails_breaks_off_or_ends_early():
    site = Site({PLAIN: [[fail(429)], [say("x"), cut("connection")], [say("half"), cut()]]})
    with pytest.raises(Refused) as refused:
        await plain(site, "json")
    assert refused.value.status == 429
    broken = await site.stream(**ALONE)
    assert broken[-1]["type"] == "response.failed"
    assert (await plain(site, "json"))["incomplete_details"] == {"reason": "max_output_tokens"}
    site.assert_at_rest()


async def test_what_the_script_does_not_have_breaks_the_run():
    site = Site({PLAIN: [[say("x")]]})
    await plain(site, "json")
    with pytest.raises(Overrun):
        await plain(site, "json")
    assert [asked.number for asked in site.upstream.overrun] == [2]
    with pytest.raises(AssertionError):
        site.assert_at_rest()


async def test_who_leaves_closes_the_answer():
    site = Site({PLAIN: [[say("one ", gate("never"))]]})
    async with site.connect() as client:
        client.create(**ALONE)
        await client.event("response.output_text.delta")
        await site.upstream.reached("never")
        client.socket.leave()
        await client.task
    assert site.upstream.running == []
    site.assert_at_rest()


async def test_time_stands_still_meanwhile():
    site = Site({PLAIN: [[say("x")]]})
    await plain(site, "sse", input=[{"type": "message", "role": "user", "content": "hi"}])
    assert asyncio.get_running_loop().time() == 0
    assert output("call_1", "x")["output"] == "x"


async def plain(site, transport, **fields):
    """One response without agents; its events are not those of agents."""
    if transport == "json":
        return await site.post(**ALONE, **fields)
    if transport == "sse":
        return (await site.stream(**ALONE, **fields))[-1]["response"]
    async with site.connect() as client:
        client.create(**ALONE, **fields)
        return (await client.ended())[-1]["response"]
