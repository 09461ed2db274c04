"""Outputs that arrive while something else happens: the end, a summary, a commit, a client that leaves."""

import asyncio
from itertools import count

import pytest
from agents.site import PROPOSAL, CountingStore, Site, items_of, output, texts
from engine.doubles import settle
from harness.agent_rules import check_run
from harness.agents import call, follow, gate, interrupt, listing, say, spawn, spend, think, wait
from harness.tools import MCP, ScriptedTools, tool

from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.tree import Tree
from gateway.protocol.compaction_prompt import PREAMBLE
from gateway.protocol.errors import ResponseNotFound

ALPHA, BETA = "/root/alpha", "/root/beta"
ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")
GIVEN = output("call_p1", "6 weeks")
FILL = "many words " * 300
ABOVE = 120_000


class HeldStore(CountingStore):
    """A store whose commits wait for the test.

    Attributes:
        reached: a commit has come.
        proceed: lets commits go on.
    """

    def __init__(self):
        super().__init__()
        self.reached = asyncio.Event()
        self.proceed = asyncio.Event()

    async def append(self, response):
        self.reached.set()
        await self.proceed.wait()
        await super().append(response)


def stored_history(site, path):
    """The history of an agent as the newest response left it."""
    rows = [row for response in site.store.appended for row in response.agents]
    return Tree.restore(rows, Bounds()).agents[path].history


def outputs_in(items):
    """The outputs for the client's call, and notes of them."""
    return [item for item in items if "6 weeks" in str(item)]


def given_in(asked):
    """What an inference was shown of the output."""
    return [text for text in asked.texts if "6 weeks" in text]


def fate(frames):
    """What became of the only batch."""
    (answer,) = [frame for frame in frames if frame["type"].startswith("response.inject.")]
    return answer["type"].removeprefix("response.inject.")


# ---------------------------------------------------------------- the end


@pytest.mark.agents(82)
@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_an_output_that_races_the_end_of_the_grace(turns):
    site = Site({"/root": [[ASK], [say("alpha")]]})
    async with site.connect() as client:
        client.create()
        await client.item("function_call")
        await asyncio.sleep(0.25)
        await settle(turns)
        client.inject(await client.begun(), GIVEN)
        await client.until(lambda frame: frame["type"].startswith("response.inject."))
        await client.ended()
        frames = list(client.socket.frames)
    assert check_run(frames, [{"input": [GIVEN]}]) == []
    assert len(outputs_in(stored_history(site, "/root"))) == (fate(frames) == "created")
    assert len(site.upstream) == (2 if fate(frames) == "created" else 1)
    site.assert_at_rest()


@pytest.mark.agents(82)
async def test_while_it_is_stored_it_is_too_late():
    site = Site({"/root": [[ASK]]}, store=HeldStore())
    async with site.connect() as client:
        client.create()
        await site.store.reached.wait()
        client.inject(await client.begun(), GIVEN)
        await settle(50)
        assert not any(frame["type"].startswith("response.inject.") for frame in client.socket.frames)
        site.store.proceed.set()
        await client.event("response.inject.failed")
        frames = list(client.socket.frames)
    assert check_run(frames, [{"input": [GIVEN]}]) == []
    assert outputs_in(stored_history(site, "/root")) == []
    site.assert_at_rest()


@pytest.mark.agents(84)
async def test_who_leaves_before_the_acknowledgement_leaves_the_parent_as_it_was():
    site = Site(
        {"/root": [[ASK], [spawn("alpha")], [say("done")], [say("again")]], ALPHA: [[ASK, gate("never")], [ASK]]}
    )
    parent = await site.post()
    async with site.connect() as client:
        client.create(previous_response_id=parent["id"], input=[GIVEN])
        response_id = await client.begun()
        await site.upstream.reached("never")
        client.inject(response_id, output("call_p9"))
        client.socket.leave()
        await client.task
    with pytest.raises(ResponseNotFound):
        await site.engine.retrieve("local", response_id)
    assert len(site.store.appended) == 1
    site.assert_at_rest()
    response = await site.post(previous_response_id=parent["id"], input=[GIVEN])
    assert texts(response) == ["again"]
    site.assert_at_rest()


BUSY = {
    "/root": [[spawn("alpha"), spawn("beta"), call("mcp__s__look", "{}"), wait()], [wait()], [say("done")]],
    ALPHA: [[say(FILL), listing(), spend(ABOVE, 1)], [ASK], [say("six")]],
    BETA: [[spawn("sub", fork_turns="none"), wait()], [say("nine")]],
    "/root/beta/sub": [[think("hm")], [say("s")]],
}


@pytest.mark.agents(84, 129)
@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_who_leaves_at_any_time_leaves_nothing_behind(transport):
    """After every turn of the loop once, from the request to behind the end."""
    for turns in count(0, 4):
        site = Site(BUSY, summaries={ALPHA: [[say("note 1")]]}, tools=ScriptedTools(known=[tool("look")]))
        heard = await (leave_http if transport == "sse" else leave_websocket)(site, turns)
        site.assert_at_rest()
        assert len(site.store.appended) <= 1
        if site.store.appended:
            stored = await site.engine.retrieve("local", site.store.appended[0].id)
            assert b'"completed"' in stored
        if heard:
            assert site.store.appended
            break
    assert turns > 100


async def leave_http(site, turns):
    """Leave after so many turns; returns whether the end was heard."""
    request = site.request(stream=True, tools=[PROPOSAL, MCP])
    serving = asyncio.create_task(request.serve(site.endpoint))
    await settle(turns)
    request.gone.set()
    await serving
    return b"response.completed" in request.body


async def leave_websocket(site, turns):
    """Leave after so many turns; returns whether the end was heard."""
    async with site.connect() as client:
        client.create(tools=[PROPOSAL, MCP])
        for _ in range(turns):
            await asyncio.sleep(0)
            if client.socket.frames and client.socket.frames[-1]["type"] == "response.output_item.done":
                item = client.socket.frames[-1]["item"]
                if item["type"] == "function_call":
                    client.inject(client.socket.frames[0]["response"]["id"], GIVEN)
        client.socket.leave()
        await client.task
        return any(frame["type"] == "response.completed" for frame in client.socket.frames)


# ---------------------------------------------------------------- a summary


@pytest.mark.agents(123)
async def test_an_output_before_the_summary_begins_is_in_it_once():
    site = Site(
        {
            "/root": [[spawn("alpha", fork_turns="none"), wait()], [say("done")]],
            ALPHA: [[say(FILL), ASK, spend(ABOVE, 1)], [say("six")]],
        },
        summaries={ALPHA: [[say("note 1")]]},
    )
    async with site.connect() as client:
        client.create()
        await client.item("function_call", ALPHA)
        client.inject(await client.begun(), GIVEN)
        events = await client.ended()
    assert check_run(events, [{"input": [GIVEN]}]) == []
    (summary,) = site.upstream.of(ALPHA, summary=True)
    place = next(place for place, item in enumerate(summary.body["input"]) if item.get("type") == "function_call")
    assert summary.body["input"][place + 1]["call_id"] == summary.body["input"][place]["call_id"] == "call_p1"
    assert len(given_in(summary)) == 1
    assert site.upstream.of(ALPHA)[1].texts == [PREAMBLE + "note 1"]
    site.assert_at_rest()


def late_script(*alpha):
    """Alpha is interrupted while it waits for the client, gets more work, and is compacted."""
    more = [gate("root"), interrupt("alpha"), follow("alpha", "Again."), wait()]
    return {
        "/root": [[spawn("alpha", "Look.", fork_turns="none")], more, [say("done")]],
        ALPHA: [[say(FILL), ASK, spend(ABOVE, 1)], *alpha],
    }


@pytest.mark.agents(124)
async def test_an_output_during_the_summary_comes_behind_it_once():
    site = Site(late_script([say("six")]), summaries={ALPHA: [[gate("summary"), say("note 1")]]})
    async with site.connect() as client:
        client.create()
        await client.item("function_call", ALPHA)
        site.upstream.release("root")
        await site.upstream.reached("summary")
        client.inject(await client.begun(), GIVEN)
        await client.event("response.inject.created")
        site.upstream.release("summary")
        events = await client.ended()
    assert check_run(events, [{"input": [GIVEN]}]) == []
    assert given_in(site.upstream.of(ALPHA, summary=True)[0]) == []
    shown = site.upstream.of(ALPHA)[1]
    assert shown.texts[:3] == [PREAMBLE + "note 1", '{"proposal": "alpha"}', "6 weeks"]
    assert len(given_in(shown)) == 1
    assert next(item["call_id"] for item in shown.body["input"] if item.get("type") == "function_call") == "call_p1"
    assert len(outputs_in(stored_history(site, ALPHA))) == 1
    site.assert_at_rest()


@pytest.mark.agents(125)
async def test_an_output_behind_the_summary_is_shown_once():
    site = Site(late_script([gate("alpha"), listing()], [say("six")]), summaries={ALPHA: [[say("note 1")]]})
    async with site.connect() as client:
        client.create()
        await client.item("function_call", ALPHA)
        site.upstream.release("root")
        await site.upstream.reached("alpha")
        assert client.items("compaction", ALPHA)
        client.inject(await client.begun(), GIVEN)
        await client.event("response.inject.created")
        site.upstream.release("alpha")
        events = await client.ended()
    assert check_run(events, [{"input": [GIVEN]}]) == []
    assert [len(given_in(asked)) for asked in site.upstream.of(ALPHA)] == [0, 0, 1]
    assert len(outputs_in(stored_history(site, ALPHA))) == 1
    site.assert_at_rest()


@pytest.mark.agents(126)
async def test_others_run_wait_and_take_outputs_during_a_summary():
    gamma = "/root/gamma"
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta"), spawn("gamma"), wait()], [wait()], [wait()], [say("done")]],
            ALPHA: [[ASK], [say("six")]],
            BETA: [[say(FILL), listing(), spend(ABOVE, 1)], [say("nine")]],
            gamma: [[listing()], [say("ten")]],
        },
        summaries={BETA: [[gate("summary"), say("note 1")]]},
    )
    async with site.connect() as client:
        client.create()
        await site.upstream.reached("summary")
        assert (await client.item("message", gamma))["phase"] == "final_answer"
        await client.item("function_call", ALPHA)
        client.inject(await client.begun(), GIVEN)
        await client.item("message", ALPHA)
        assert client.items("compaction") == []
        site.upstream.release("summary")
        events = await client.ended()
    assert check_run(events, [{"input": [GIVEN]}]) == []
    assert items_of(events[-1]["response"], "compaction", BETA)
    assert texts(events[-1]["response"], "/root") == ["done"]
    site.assert_at_rest()


@pytest.mark.agents(128)
@pytest.mark.parametrize("first", ["output", "summary"])
@pytest.mark.parametrize("turns", range(0, 40, 4))
async def test_the_end_an_output_and_a_summary_race(first, turns):
    """A trigger compacts the root: its end is the end of the response."""
    site = Site(
        {"/root": [[say(FILL), listing()], [spawn("alpha")], [say("x")]], ALPHA: [[ASK], [say("six")]]},
        summaries={"/root": [[gate("summary"), say("note 1")]]},
    )
    parent = await site.post()
    async with site.connect() as client:
        client.create(previous_response_id=parent["id"], input=[{"type": "compaction_trigger"}])
        await site.upstream.reached("summary")
        if first == "summary":
            site.upstream.release("summary")
            await settle(turns)
        client.inject(await client.begun(), GIVEN)
        if first == "output":
            await settle(turns)
            site.upstream.release("summary")
        await client.until(lambda frame: frame["type"].startswith("response.inject."))
        await client.ended()
        frames = list(client.socket.frames)
    assert check_run(frames, [{"input": [GIVEN]}]) == []
    assert len(outputs_in(stored_history(site, ALPHA))) == (fate(frames) == "created")
    site.assert_at_rest()


@pytest.mark.agents(129)
@pytest.mark.parametrize("injected", [False, True])
async def test_who_leaves_during_a_summary_leaves_nothing_behind(injected):
    site = Site(late_script([say("six")]), summaries={ALPHA: [[gate("summary"), say("note 1")]]})
    async with site.connect() as client:
        client.create()
        await client.item("function_call", ALPHA)
        site.upstream.release("root")
        await site.upstream.reached("summary")
        response_id = await client.begun()
        if injected:
            client.inject(response_id, GIVEN)
        client.socket.leave()
        await client.task
    with pytest.raises(ResponseNotFound):
        await site.engine.retrieve("local", response_id)
    assert site.store.appended == []
    site.assert_at_rest()


@pytest.mark.agents(129)
@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_the_deadline_during_a_summary_ends_all_of_it(transport):
    site = Site(
        {"/root": [[say(FILL), listing(), spend(ABOVE, 1)]]},
        summaries={"/root": [[gate("never"), say("note")]]},
        multi_agent={"run_deadline_s": 5},
    )
    events = await site.events(transport)
    assert events[-1]["response"]["error"]["code"] == "server_error"
    assert site.store.appended == []
    site.assert_at_rest()
