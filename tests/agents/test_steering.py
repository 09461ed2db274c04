"""Steering where there are several agents, and with nothing configured."""

import pytest
from agents.site import Site, texts
from harness.agents import PLAIN, call, gate, say, spawn

ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")


def steer(client, response_id, text="And dogs?"):
    client.socket.say({"type": "response.steer", "previous_response_id": response_id, "input": text})


@pytest.mark.agents(103)
@pytest.mark.parametrize("compacts", [{}, {"context_management": None}], ids=("", "null"))
async def test_a_tree_is_not_steered(compacts):
    site = Site({"/root": [[spawn("alpha")], [say("done")]], "/root/alpha": [[say("si", gate("alpha"), "x")]]})
    async with site.connect() as client:
        client.create(**compacts)
        response_id = await client.begun()
        await site.upstream.reached("alpha")
        steer(client, response_id)
        refused = await client.event("response.steer.failed")
        site.upstream.release("alpha")
        events = await client.ended()
    assert refused["error"].keys() == {"type", "code", "message"}
    assert refused["error"]["code"] == "steering_not_supported"
    assert refused["steer"] == {"previous_response_id": response_id, "input": "And dogs?"}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len(site.store.appended) == 1
    site.assert_at_rest()


@pytest.mark.agents(105)
async def test_eight_may_wait():
    site = Site({PLAIN: [[say("one ", gate("plain"), "two")], [say("All of it.")]]})
    async with site.connect(beta=False) as client:
        client.create(multi_agent=None)
        response_id = await client.begun()
        await site.upstream.reached("plain")
        for number in range(9):
            steer(client, response_id, f"steer {number}")
        refused = await client.event("response.steer.failed")
        assert (refused["error"]["code"], refused["steer"]["input"]) == ("too_many_pending_steers", "steer 8")
        site.upstream.release("plain")
        successor = (await client.event("response.completed", count=2))["response"]
    assert (successor["previous_response_id"], texts(successor)) == (response_id, ["All of it."])
    assert site.upstream.of(PLAIN)[1].texts == ["Compare.", "one two", *(f"steer {number}" for number in range(8))]
    site.assert_at_rest()
