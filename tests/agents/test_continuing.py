"""Trees that are stored and continued: forks, what a continuation inherits, ids, failures and bounds."""

import json

import pytest
from agents.site import TRANSPORTS, CountingStore, Refused, Site, items_of, letter, output, texts
from harness.agents import call, follow, gate, say, spawn, wait

from gateway.protocol.errors import ResponseNotFound, StorageUnavailable

ALPHA, BETA = "/root/alpha", "/root/beta"
ASK = call("get_proposal", {"proposal": "alpha"}, id="call_p1")


def user(text):
    return {"type": "message", "role": "user", "content": text}


def blocked(**more):
    """A script in which alpha asks the client, and the root has not answered."""
    return {"/root": [[spawn("alpha"), wait()], *more.get("root", [])], ALPHA: [[ASK], *more.get("alpha", [])]}


@pytest.mark.agents(88)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_two_continuations_answer_one_call_each_its_own_way(transport):
    site = Site(blocked(root=[[say("A")], [say("B")]], alpha=[[say("six")], [say("nine")]]))
    parent = await site.post()
    first = await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1", "6 weeks")])
    second = await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1", "9 weeks")])
    assert sorted(texts(first)) == ["A", "six"]
    assert sorted(texts(second)) == ["B", "nine"]
    for number, given in ((1, "6 weeks"), (2, "9 weeks")):
        seen = site.upstream.of(ALPHA)[number].texts
        assert [text for text in seen if "weeks" in text] == [given]
    site.assert_at_rest()


@pytest.mark.agents(88)
async def test_at_once_too():
    site = Site(
        blocked(
            root=[[gate("r2"), say("A")], [say("B")]],
            alpha=[[gate("a2"), say("six")], [gate("a3"), say("nine")]],
        )
    )
    parent = await site.post()
    async with (
        site.answering(previous_response_id=parent["id"], input=[output("call_p1", "6")]) as first,
        site.answering(previous_response_id=parent["id"], input=[output("call_p1", "9")]) as second,
    ):
        await site.upstream.reached("a2", "a3")
        site.upstream.release("a2", "a3", "r2")
        responses = [await first, await second]
    assert sorted(texts(response, ALPHA)[0] for response in responses) == ["nine", "six"]
    site.assert_at_rest()


@pytest.mark.agents(90)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_continuation_inherits_that_there_are_agents(transport):
    site = Site(blocked(root=[[say("A")]], alpha=[[say("six")]]))
    parent = await site.post(multi_agent={"enabled": True, "max_concurrent_subagents": 1})
    for fields, param in (
        ({"multi_agent": {"enabled": False}}, "multi_agent"),
        ({"multi_agent": {"enabled": True, "max_concurrent_subagents": 0}}, "multi_agent.max_concurrent_subagents"),
    ):
        with pytest.raises(Refused) as refused:
            await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1")], **fields)
        assert (refused.value.status, refused.value.error["param"]) == (400, param)
    response = await site.answer(
        transport, previous_response_id=parent["id"], input=[output("call_p1")], multi_agent=None
    )
    assert sorted(texts(response)) == ["A", "six"]
    assert items_of(response, "message", ALPHA)
    assert len(site.store.appended) == 2
    site.assert_at_rest()


@pytest.mark.agents(90)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_it_may_not_go_below_the_active(transport):
    more = call("get_proposal", {"proposal": "beta"}, id="call_p2")
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta")], [say("A")], [say("B")]],
            ALPHA: [[ASK], [say("6")]],
            BETA: [[more], [say("9")]],
        }
    )
    parent = await site.post()
    given = {"previous_response_id": parent["id"], "input": [output("call_p1"), output("call_p2")]}
    with pytest.raises(Refused) as refused:
        await site.answer(transport, **given, multi_agent={"enabled": True, "max_concurrent_subagents": 1})
    assert refused.value.error["param"] == "multi_agent.max_concurrent_subagents"
    response = await site.answer(transport, **given, multi_agent={"enabled": True, "max_concurrent_subagents": 2})
    assert sorted(texts(response)) == ["6", "9", "B"]
    site.assert_at_rest()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_choice_of_tools_waits_for_the_root(transport):
    site = Site(blocked(root=[[spawn("beta")], [say("A")]], alpha=[[say("six")]]))
    site.upstream.script[BETA] = [[say("nine")]]
    parent = await site.post()
    given = {"previous_response_id": parent["id"], "input": [output("call_p1")], "tool_choice": "required"}
    await site.answer(transport, **given)
    choices = [(asked.path, asked.body["tool_choice"]) for asked in site.upstream.asked[2:]]
    assert sorted(choices) == [("/root", "auto"), ("/root", "required"), (ALPHA, "auto"), (BETA, "auto")]
    assert next(choice for path, choice in choices if path == "/root") == "required"


@pytest.mark.agents(91)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_outputs_go_to_their_agents_and_a_message_to_the_root(transport):
    site = Site({"/root": [[spawn("alpha", fork_turns="none")], [say("A")], [say("B")]], ALPHA: [[ASK], [say("six")]]})
    parent = await site.post()
    given = [output("call_p1", "6 weeks"), user("Hurry."), user("Please.")]
    response = await site.answer(transport, previous_response_id=parent["id"], input=given)
    assert sorted(texts(response)) == ["B", "six"]
    assert site.upstream.of("/root")[2].texts[-2:] == ["Hurry.", "Please."]
    assert site.upstream.of(ALPHA)[1].texts[-1] == "6 weeks"
    assert not any("Hurry." in text for text in site.upstream.of(ALPHA)[1].texts)
    site.assert_at_rest()


@pytest.mark.agents(91)
async def test_what_happened_to_agents_is_in_the_roots_history_only_as_mail():
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], [say("A")], [follow("alpha", "More."), wait()], [say("B")]],
            ALPHA: [[say("six")], [say("nine")]],
        }
    )
    parent = await site.post()
    await site.post(previous_response_id=parent["id"], input="Go on.")
    seen = site.upstream.of("/root")[3].texts
    assert seen.count(letter("FINAL_ANSWER", "/root", ALPHA, "six")) == 1
    assert seen.count(letter("FINAL_ANSWER", "/root", ALPHA, "nine")) == 1
    assert [text for text in site.upstream.of(ALPHA)[1].texts if text == "six"] == ["six"]


class FailingStore(CountingStore):
    """A store that refuses what it is told to refuse."""

    failing = False

    async def append(self, response):
        if self.failing:
            raise StorageUnavailable("The disk is full.")
        await super().append(response)


@pytest.mark.agents(92)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_commit_that_fails_leaves_the_parent_as_it_was(transport):
    store = FailingStore()
    site = Site(blocked(root=[[say("A")], [say("B")]], alpha=[[say("six")], [say("nine")]]), store=store)
    parent = await site.post()
    given = {"previous_response_id": parent["id"], "input": [output("call_p1")]}
    store.failing = True
    if transport == "json":
        with pytest.raises(Refused) as refused:
            await site.post(**given)
        assert refused.value.status == 503
    else:
        response = (await site.events(transport, **given))[-1]["response"]
        assert response["status"] == "failed"
        with pytest.raises(ResponseNotFound):
            await site.engine.retrieve("local", response["id"])
    store.failing = False
    response = await site.answer(transport, **given)
    assert sorted(texts(response)) == ["B", "nine"]
    site.assert_at_rest()


@pytest.mark.agents(93)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_call_ids_that_two_agents_share_are_told_apart(transport):
    def same(name):
        return call("get_proposal", {"proposal": name}, id="call_same")

    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta"), call("list_agents", id="call_same")], [say("A")], [say("B")]],
            ALPHA: [[same("alpha")], [say("six")]],
            BETA: [[same("beta")], [say("nine")]],
        }
    )
    parent = await site.answer(transport)
    calls = {item["agent"]["agent_name"]: item["call_id"] for item in items_of(parent, "function_call")}
    ids = [item["call_id"] for item in parent["output"] if item["type"] in ("function_call", "multi_agent_call")]
    assert len(set(ids)) == len(ids) == 5
    given = [output(calls[BETA], "of beta"), output(calls[ALPHA], "of alpha")]
    response = await site.answer(transport, previous_response_id=parent["id"], input=given)
    assert sorted(texts(response)) == ["B", "nine", "six"]
    for path, text in ((ALPHA, "of alpha"), (BETA, "of beta")):
        asked = site.upstream.of(path)[1]
        assert asked.texts[-1] == text
        call_, answer = asked.body["input"][-2:]
        assert call_["call_id"] == answer["call_id"] == calls[path]
    site.assert_at_rest()


@pytest.mark.agents(94)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_engines_may_repeat_the_ids_of_items(transport):
    site = Site({"/root": [[spawn("alpha"), wait()], [say("A")], [say("B")]], ALPHA: [[say("six")]]})
    first = await site.answer(transport)
    second = await site.answer(transport, previous_response_id=first["id"], input="Again.")
    ids = [item["id"] for response in (first, second) for item in response["output"]]
    assert len(set(ids)) == len(ids)
    assert len(site.store.appended) == 2
    site.assert_at_rest()


@pytest.mark.agents(95)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_tree_that_is_too_large_fails_the_response(transport):
    site = Site(
        {"/root": [[spawn("alpha"), wait()], [say("A")]], ALPHA: [[say("x" * 70_000)], [say("y" * 70_000)]]},
        multi_agent={"max_tree_bytes": 65_536},
    )
    if transport == "json":
        with pytest.raises(Refused) as refused:
            await site.post()
        error = refused.value.error
    else:
        error = (await site.events(transport))[-1]["response"]["error"]
    assert error["code"] == "response_resource_limit_exceeded"
    assert "max_tree_bytes" in str(error)
    assert site.store.appended == []
    site.assert_at_rest()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_response_of_one_agent_may_go_on_as_the_root_of_several(transport):
    site = Site({"": [[say("Hello."), ASK]], "/root": [[spawn("alpha"), wait()], [say("A")]], ALPHA: [[say("six")]]})
    parent = await site.post(multi_agent=None)
    response = await site.answer(transport, previous_response_id=parent["id"], input=[output("call_p1", "6")])
    assert texts(response) == ["six", "A"]
    assert site.upstream.of("/root")[0].texts == ["Compare.", "Hello.", '{"proposal": "alpha"}', "6"]
    site.assert_at_rest()


async def test_what_is_stored_is_what_was_told():
    site = Site({"/root": [[spawn("alpha"), wait()], [say("A")]], ALPHA: [[ASK]]})

    parent = await site.post()
    stored = json.loads(await site.engine.retrieve("local", parent["id"]))
    assert stored["output"] == parent["output"]
