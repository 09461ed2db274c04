"""Interrupting agents in whatever state they are, what is left of them, and the list of all."""

import pytest
from agents.site import TRANSPORTS, Site, errors, items_of, letter, outcomes, output, texts, told
from harness.agents import call, fail, follow, gate, interrupt, listing, say, spawn, think, wait

ALPHA, BETA = "/root/alpha", "/root/beta"
ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")
# Interrupts alpha, and looks at all agents later on.
STOP = ([gate("root"), interrupt("alpha")], [gate("look"), listing()])
RUNNING = {"previous_status": "running"}


async def look(site):
    """Let the root interrupt alpha, and look at it once it has been cut."""
    site.upstream.release("root")
    await site.upstream.reached("look")
    await site.upstream.until_closed(ALPHA)
    site.upstream.release("look")


def statuses(response):
    """The states of all agents by the last list of a response."""
    listed = [found["agents"] for found in outcomes(response) if "agents" in found][-1]
    return {agent["agent_name"]: agent["agent_status"] for agent in listed}


@pytest.mark.agents(51)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_inference_is_cut_between_its_items(transport):
    site = Site(
        {"/root": [[spawn("alpha")], *STOP, [say("done")]], ALPHA: [[think("hm"), gate("alpha"), say("never")]]}
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("alpha", "root")
        await look(site)
        response = await answer
    assert outcomes(response)[1] == RUNNING
    assert statuses(response)[ALPHA] == "interrupted"
    assert texts(response, ALPHA) == []
    assert items_of(response, "agent_message", "/root") == []
    site.assert_at_rest()


@pytest.mark.agents(51)
async def test_an_item_that_has_begun_is_finished_and_no_answer():
    site = Site(
        {
            "/root": [[spawn("alpha")], *STOP, [say("done")]],
            ALPHA: [[say("half ", gate("alpha"), "whole"), say("never")]],
        }
    )
    async with site.connect() as client:
        client.create()
        await site.upstream.reached("alpha", "root")
        site.upstream.release("root")
        await site.upstream.reached("look")
        site.upstream.release("alpha")
        await look(site)
        events = await client.ended()
    response = events[-1]["response"]
    assert outcomes(response)[1] == RUNNING
    assert texts(response, ALPHA) == ["half whole"]
    assert [item["phase"] for item in items_of(response, "message", ALPHA)] == ["commentary"]
    assert items_of(response, "agent_message", "/root") == []
    assert len(site.upstream.of(ALPHA)) == 1
    site.assert_at_rest()


@pytest.mark.agents(51)
async def test_one_that_has_not_been_accepted_is_cut_too():
    site = Site({"/root": [[spawn("alpha")], *STOP, [say("done")]], ALPHA: [[gate("alpha"), say("never")]]})
    async with site.answering() as answer:
        await site.upstream.reached("alpha", "root")
        await look(site)
        response = await answer
    assert statuses(response)[ALPHA] == "interrupted"
    site.assert_at_rest()


@pytest.mark.agents(52)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_interrupted_wait_is_answered_by_an_error(transport):
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta")], *STOP, [say("done")]],
            ALPHA: [[wait()]],
            BETA: [[gate("beta"), say("eight")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("beta", "root")
        await site.upstream.until_closed(ALPHA)
        await look(site)
        site.upstream.release("beta")
        response = await answer
    assert errors(response) == ["Agent was interrupted."]
    assert statuses(response)[ALPHA] == "interrupted"
    assert len(site.upstream.of(ALPHA)) == 1
    site.assert_at_rest()


@pytest.mark.agents(53, 56)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_calls_of_an_interrupted_agent_may_still_be_answered(transport):
    site = Site(
        {
            "/root": [
                [spawn("alpha", fork_turns="none")],
                *STOP,
                [say("done")],
                [follow("alpha", "Again."), wait()],
                [say("end")],
            ],
            ALPHA: [[ASK], [say("six")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.until_asked(ALPHA, 1)
        await site.upstream.until_closed(ALPHA)
        await look(site)
        parent = await answer
    assert statuses(parent)[ALPHA] == "interrupted"
    given = [output("call_p1", "six weeks"), {"type": "message", "role": "user", "content": "Go on."}]
    response = await site.answer(transport, previous_response_id=parent["id"], input=given)
    assert texts(response) == ["six", "end"]
    assert site.upstream.of(ALPHA)[1].texts[1:] == [
        '{"proposal": "alpha"}',
        "six weeks",
        letter("NEW_TASK", ALPHA, "/root", "Again."),
    ]
    site.assert_at_rest()


@pytest.mark.agents(53)
async def test_and_need_not_be():
    site = Site(
        {
            "/root": [
                [spawn("alpha", fork_turns="none")],
                *STOP,
                [say("done")],
                [follow("alpha", "Again."), wait()],
                [say("end")],
                [follow("alpha", "And again."), wait()],
                [say("over")],
            ],
            ALPHA: [[ASK], [say("six")], [say("seven")]],
        }
    )
    async with site.answering() as answer:
        await site.upstream.until_asked(ALPHA, 1)
        await site.upstream.until_closed(ALPHA)
        await look(site)
        parent = await answer
    child = await site.post(previous_response_id=parent["id"], input="Go on.")
    assert texts(child) == ["six", "end"]
    # The model is shown an output all the same.
    assert '"interrupted"' in site.upstream.of(ALPHA)[1].texts[2]
    # One that comes when the agent has gone on is a note about the call.
    given = [output("call_p1", "six weeks"), {"type": "message", "role": "user", "content": "Go on."}]
    await site.post(previous_response_id=child["id"], input=given)
    seen = site.upstream.of(ALPHA)[2]
    assert '"interrupted"' in seen.texts[2]
    (note,) = [item for item in seen.body["input"] if "six weeks" in str(item)]
    assert note["role"] == "user"
    site.assert_at_rest()


@pytest.mark.agents(54)
@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_an_idle_agent_is_left_as_it_is(transport):
    site = Site(
        {"/root": [[spawn("alpha"), wait()], [interrupt("alpha"), listing()], [say("done")]], ALPHA: [[say("six")]]}
    )
    events = await site.events(transport)
    response = events[-1]["response"]
    assert outcomes(response)[2] == {"previous_status": {"completed": "six"}}
    assert statuses(response) == {"/root": "running", ALPHA: {"completed": "six"}}
    lines = told(events)
    stopped = lines.index("done multi_agent_call interrupt_agent /root")
    assert lines[stopped + 1] == "added multi_agent_call_output interrupt_agent /root"
    site.assert_at_rest()


@pytest.mark.agents(55)
async def test_neither_oneself_nor_the_root():
    site = Site(
        {
            "/root": [[spawn("alpha"), interrupt("/root"), interrupt("nobody"), wait()], [say("done")]],
            ALPHA: [[interrupt("/root"), interrupt(ALPHA)], [say("six")]],
        }
    )
    response = await site.post()
    assert len(errors(response)) == 4
    assert texts(response) == ["six", "done"]
    site.assert_at_rest()


@pytest.mark.agents(56)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_new_work_for_an_interrupted_agent_keeps_what_it_knew(transport):
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.", fork_turns="none")],
                [gate("root"), interrupt("alpha"), follow("alpha", "Again."), wait()],
                [say("done")],
            ],
            ALPHA: [[listing()], [gate("alpha"), say("never")], [say("six")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("alpha", "root")
        site.upstream.release("root")
        response = await answer
    last = site.upstream.of(ALPHA)[2].texts
    assert (last[0], last[-1]) == (
        letter("NEW_TASK", ALPHA, "/root", "Look."),
        letter("NEW_TASK", ALPHA, "/root", "Again."),
    )
    assert len(last) == 4
    assert texts(response, ALPHA) == ["six"]
    site.assert_at_rest()


@pytest.mark.agents(57)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_list_has_all_agents_and_their_states(transport):
    site = Site(
        {
            "/root": [
                [*map(spawn, ("alpha", "beta", "gamma"))],
                [gate("root"), interrupt("gamma")],
                [spawn("delta"), listing(), listing(path_prefix=ALPHA), listing(path_prefix="/nowhere")],
                [say("done")],
            ],
            ALPHA: [[say("six")]],
            BETA: [[fail(500)]],
            "/root/gamma": [[gate("gamma"), say("never")]],
            "/root/delta": [[gate("delta"), say("d")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("gamma", "root")
        await site.upstream.until_closed(ALPHA)
        site.upstream.release("root")
        await site.upstream.until_asked("/root", 4)
        site.upstream.release("delta")
        response = await answer
    everybody, below, nobody = [found["agents"] for found in outcomes(response) if "agents" in found]
    assert [agent["agent_name"] for agent in everybody] == [
        "/root",
        ALPHA,
        BETA,
        "/root/gamma",
        "/root/delta",
    ]
    states = [agent["agent_status"] for agent in everybody]
    assert (states[0], states[1], states[3], states[4]) == ("running", {"completed": "six"}, "interrupted", "running")
    assert list(states[2]) == ["errored"]
    assert [agent["agent_name"] for agent in below] == [ALPHA]
    assert nobody == []
    assert not any("last_task_message" in agent for agent in everybody)
    site.assert_at_rest()


@pytest.mark.agents(57)
async def test_plain_lists_tell_the_last_task_too():
    site = Site(
        {"/root": [[spawn("alpha", "Look."), listing(), wait()], [say("done")]], ALPHA: [[say("six")]]},
        multi_agent={"message_visibility": "plain"},
    )
    response = await site.post()
    (listed,) = [found["agents"] for found in outcomes(response) if "agents" in found]
    assert listed[1]["last_task_message"] == "Look."


@pytest.mark.agents(58)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "turn", [[fail(500)], [say("half ", "way"), fail(500)], [think("x")] * 1], ids=("refused", "broken", "silent")
)
async def test_a_child_that_fails_fails_alone(transport, turn):
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta"), wait()], [wait()], [listing()], [say("done")]],
            ALPHA: [turn] * 3,
            BETA: [[gate("beta"), say("eight")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("beta")
        await site.upstream.until_asked("/root", 2)
        site.upstream.release("beta")
        response = await answer
    assert response["status"] == "completed"
    assert list(statuses(response)[ALPHA]) == ["errored"]
    assert statuses(response)[BETA] == {"completed": "eight"}
    told_ = site.upstream.of("/root")[1].texts[-1]
    assert told_.startswith(letter("FINAL_ANSWER", "/root", ALPHA, "[agent failed] "))
    assert texts(response, "/root") == ["done"]
    site.assert_at_rest()
