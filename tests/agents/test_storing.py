"""Trees in the databases: over the other transport, and after a restart."""

import pytest
from agents.site import Site, letter, output, texts
from engine.doubles import CountingIds
from harness.agents import AgentUpstream, call, follow, listing, say, spawn, spend, wait

from gateway.protocol.compaction_prompt import PREAMBLE
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore

ALPHA, BETA = "/root/alpha", "/root/beta"
ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")
SCRIPT = {
    "/root": [
        [spawn("alpha"), spawn("beta"), wait()],
        [say("first")],
        [say("second")],
        [follow("beta", "Go on."), wait()],
        [say("third")],
    ],
    ALPHA: [[ASK], [say("six")]],
    BETA: [[say("nine")], [say("ten")]],
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def settings(request, tmp_path):
    url = f"sqlite:///{tmp_path}/responses.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_database")
    return StoreSettings(url=database_url(url), auto_migrate="always")


@pytest.mark.agents(89)
@pytest.mark.parametrize("transports", [("json", "websocket", "sse"), ("websocket", "json", "websocket")])
async def test_a_tree_goes_on_over_the_other_transport_and_after_a_restart(settings, transports):
    # One server for all the gateways: the script goes on where it was.
    upstream, ids = Site(SCRIPT).upstream, CountingIds()
    parent, seen = None, []
    for transport, given in zip(transports, ("Compare.", [output("call_p1", "6")], "And beta?"), strict=True):
        store = SqlStore(settings)
        await store.start()
        try:
            site = Site(server=upstream, store=store, ids=ids)
            more = {} if parent is None else {"previous_response_id": parent["id"]}
            parent = await site.answer(transport, input=given, **more)
            seen.append(texts(parent))
            site.assert_at_rest()
        finally:
            await store.close()
    assert seen[0] == ["nine", "first"]
    assert sorted(seen[1]) == ["second", "six"]
    assert seen[2] == ["ten", "third"]
    assert upstream.of(BETA)[1].texts[-2:] == ["nine", letter("NEW_TASK", BETA, "/root", "Go on.")]
    assert [len(upstream.of(path)) for path in ("/root", ALPHA, BETA)] == [5, 2, 2]


@pytest.mark.agents(88, 117, 130)
async def test_notes_and_forks_are_what_they_were_after_a_restart(settings):
    fill = "many words " * 300
    grown = [say(fill), listing(), spend(120_000, 1)]
    played = AgentUpstream(
        {"/root": [grown, [say("one")], grown, [say("two")], [say("three")], [say("other")]]},
        summaries={"/root": [[say("note 1")], [say("note 2")]]},
    )
    ids, made = CountingIds(), []
    for parent, transport in ((None, "json"), (0, "websocket"), (1, "sse"), (0, "json")):
        store = SqlStore(settings)
        await store.start()
        try:
            site = Site(server=played, store=store, ids=ids)
            more = {} if parent is None else {"previous_response_id": made[parent]["id"]}
            made.append(await site.answer(transport, input=f"question {len(made)}", **more))
            site.assert_at_rest()
        finally:
            await store.close()
    first, second = PREAMBLE + "note 1", PREAMBLE + "note 2"
    assert played.of("/root")[1].texts == ["question 0", first]
    assert played.of("/root")[3].texts == ["question 0", "question 1", second]
    assert played.of("/root")[4].texts == ["question 0", "question 1", second, "two", "question 2"]
    assert played.of("/root")[5].texts == ["question 0", first, "one", "question 3"]
    assert [response["usage"]["input_tokens"] for response in made[2:]] == [5, 5]
