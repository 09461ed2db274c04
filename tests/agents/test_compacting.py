"""Windows of agents that are compacted: when, whose, what stays, and what the next inference is shown."""

import pytest
from agents.site import TRANSPORTS, Refused, Site, items_of, letter, outcomes, output, texts, told
from harness.agents import call, fail, follow, gate, interrupt, listing, say, send, spawn, spend, wait

from gateway.protocol.compaction_prompt import PREAMBLE, REQUEST

ALPHA, BETA = "/root/alpha", "/root/beta"
FILL = "many words " * 300
ABOVE, BELOW = 120_000, 90_000


def grow(*steps, tokens=ABOVE):
    """An inference whose input was so long, with words worth a note and calls that have the agent go on."""
    return [say(FILL), *(steps or (listing(),)), spend(tokens, 1)]


def note(text):
    """A note as a model is shown it."""
    return PREAMBLE + text


def limit(tokens):
    return {"context_management": [{"type": "compaction", "compact_threshold": tokens}]}


def compacted(response):
    """Whose windows were compacted, in order."""
    return [item["agent"]["agent_name"] for item in items_of(response, "compaction")]


def messages(asked):
    """What an inference was shown besides calls and outputs."""
    return [text for item, text in zip(asked.body["input"], asked.texts, strict=True) if item.get("role")]


# ---------------------------------------------------------------- when


@pytest.mark.agents(111)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"context_management": None},
        {"context_management": []},
        {"context_management": [{"type": "compaction"}]},
    ],
)
async def test_without_any_setting_a_long_history_is_compacted(transport, given):
    site = Site({"/root": [grow(), [say("done")]]}, summaries={"/root": [[say("note 1")]]})
    response = await site.answer(transport, **given)
    assert compacted(response) == ["/root"]
    assert texts(response)[-1] == "done"
    assert site.upstream.of("/root")[1].texts == ["Compare.", note("note 1")]
    (summary,) = site.upstream.of("/root", summary=True)
    assert summary.texts[-1] == REQUEST
    assert FILL in summary.texts
    assert "tools" not in summary.body
    site.assert_at_rest()


@pytest.mark.agents(111)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_childs_is_compacted_as_its_own(transport):
    site = Site(
        {"/root": [[spawn("alpha", "Look."), wait()], [say("done")]], ALPHA: [grow(), [say("six")]]},
        summaries={ALPHA: [[say("note 1")]]},
    )
    response = await site.answer(transport)
    assert compacted(response) == [ALPHA]
    assert site.upstream.of(ALPHA)[1].texts == ["Compare.", note("note 1")]
    site.assert_at_rest()


@pytest.mark.agents(111)
async def test_how_it_is_told():
    site = Site({"/root": [grow(), [say("done")]]}, summaries={"/root": [[say("note 1")]]})
    lines = told(await site.events())
    begun = lines.index("added compaction /root")
    assert "done compaction /root" in lines[begun : begun + 3]
    assert (
        lines.index("done multi_agent_call_output list_agents /root")
        < begun
        < lines.index("added message /root", begun)
    )


@pytest.mark.agents(111)
async def test_the_operator_sets_the_default():
    site = Site(
        {"/root": [grow(tokens=60_000), [say("done")]]},
        summaries={"/root": [[say("note 1")]]},
        compaction={"multi_agent_default_threshold": 50_000},
    )
    assert compacted(await site.post()) == ["/root"]
    site.assert_at_rest()


@pytest.mark.agents(112)
@pytest.mark.parametrize(("tokens", "times"), [(49_000, 0), (49_700, 1), (50_001, 1)])
async def test_the_request_sets_the_threshold(tokens, times):
    """What the inference itself said comes on top of what it read."""
    site = Site({"/root": [grow(tokens=tokens), [say("done")]]}, summaries={"/root": [[say("note 1")]]})
    assert len(compacted(await site.post(**limit(50_000)))) == times
    site.assert_at_rest()


@pytest.mark.agents(112)
@pytest.mark.parametrize("transport", ["json", "websocket"])
@pytest.mark.parametrize(
    "entry",
    [
        {"type": "compaction", "compact_threshold": 0},
        {"type": "compaction", "compact_threshold": -1},
        {"type": "compaction", "compact_threshold": "9"},
        {"type": "compaction", "compact_threshold": 1.5},
        {"type": "truncation", "compact_threshold": 9},
    ],
)
async def test_a_wrong_threshold_is_refused(transport, entry):
    site = Site()
    with pytest.raises(Refused) as refused:
        await site.answer(transport, context_management=[entry])
    assert refused.value.status == 400
    assert refused.value.error["param"].startswith("context_management[0]")
    assert (len(site.upstream), site.store.appended) == (0, [])
    site.assert_at_rest()


@pytest.mark.agents(112)
async def test_of_two_thresholds_the_last_counts():
    entries = [{"type": "compaction", "compact_threshold": tokens} for tokens in (50_000, 100_000)]
    site = Site({"/root": [grow(tokens=60_000), [say("done")]]})
    assert compacted(await site.post(context_management=entries)) == []
    site.assert_at_rest()


@pytest.mark.agents(112, 113)
async def test_each_agent_is_measured_alone():
    site = Site(
        {
            "/root": [[spawn("alpha"), wait(), spend(BELOW, 1)], [say("done")]],
            ALPHA: [grow(tokens=BELOW), grow(), [say("six")]],
        },
        summaries={ALPHA: [[say("note 1")]]},
    )
    assert compacted(await site.post()) == [ALPHA]
    site.assert_at_rest()


# ---------------------------------------------------------------- whose


@pytest.mark.agents(113)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_two_at_once_and_others_are_shown_what_they_were_shown(transport):
    names = ("alpha", "beta", "gamma")
    site = Site(
        {
            "/root": [[*map(spawn, names), wait()], *[[wait()]] * 2, [say("done")]],
            ALPHA: [grow(), [say("a")]],
            BETA: [grow(), [say("b")]],
            "/root/gamma": [[listing(), spend(BELOW, 1)], [gate("gamma"), say("c")]],
        },
        summaries={ALPHA: [[gate("sa"), say("note a")]], BETA: [[gate("sb"), say("note b")]]},
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("sa", "sb", "gamma")
        site.upstream.release("sa", "sb", "gamma")
        response = await answer
    assert sorted(compacted(response)) == [ALPHA, BETA]
    first, second = (asked.body["input"] for asked in site.upstream.of("/root/gamma"))
    assert second[: len(first)] == first
    for path, text in ((ALPHA, "note a"), (BETA, "note b")):
        assert site.upstream.of(path)[1].texts == ["Compare.", note(text)]
    site.assert_at_rest()


@pytest.mark.agents(113)
async def test_summaries_take_seats_like_all_calls():
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta"), wait()], [wait()], [say("done")]],
            ALPHA: [grow(), [say("a")]],
            BETA: [grow(), [say("b")]],
        },
        summaries={ALPHA: [[gate("s"), say("note a")]], BETA: [[gate("s"), say("note b")]]},
        upstream={"max_concurrent": 1},
    )
    async with site.answering() as answer:
        await site.upstream.reached("s")
        assert len(site.upstream.running) == 1
        site.upstream.release("s")
        response = await answer
    assert sorted(compacted(response)) == [ALPHA, BETA]
    site.assert_at_rest()


# ---------------------------------------------------------------- what stays


def interrupted_with_a_call(*alpha, tokens=ABOVE):
    """A script in which alpha is interrupted while it waits for the client, and then gets more work."""
    ask = [say(FILL), call("get_proposal", {"proposal": "alpha"}, id="call_p1"), spend(tokens, 1)]
    more = [gate("root"), interrupt("alpha"), follow("alpha", "Again."), wait()]
    return {"/root": [[spawn("alpha", "Look.", fork_turns="none")], more, [say("done")]], ALPHA: [ask, *alpha]}


@pytest.mark.agents(114)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_call_without_an_output_stays_behind_the_note(transport):
    """It is there when an agent that waited for the client was interrupted and gets more work."""
    site = Site(
        interrupted_with_a_call([say("six"), spend(10, 1)], [say("nine")]), summaries={ALPHA: [[say("note 1")]]}
    )
    async with site.answering(transport) as answer:
        await site.upstream.until_asked(ALPHA, 1)
        await site.upstream.until_closed(ALPHA)
        site.upstream.release("root")
        parent = await answer
    assert compacted(parent) == [ALPHA]
    (summary,) = site.upstream.of(ALPHA, summary=True)
    assert summary.texts[:-1] == [letter("NEW_TASK", ALPHA, "/root", "Look."), FILL]
    again = letter("NEW_TASK", ALPHA, "/root", "Again.")
    shown = [note("note 1"), '{"proposal": "alpha"}', '{"status": "interrupted"}', again]
    second = site.upstream.of(ALPHA)[1]
    assert second.texts == shown
    assert [item.get("call_id") for item in second.body["input"]] == [None, "call_p1", "call_p1", None]
    # Its output is still taken: the model reads of it next time.
    given = [output("call_p1", "six weeks"), {"type": "message", "role": "user", "content": "Go on."}]
    site.upstream.script["/root"] += [[follow("alpha", "Once more."), wait()], [say("end")]]
    response = await site.answer(transport, previous_response_id=parent["id"], input=given)
    assert texts(response) == ["nine", "end"]
    assert sum("six weeks" in text for text in site.upstream.of(ALPHA)[2].texts) == 1
    site.assert_at_rest()


@pytest.mark.agents(114)
async def test_one_that_its_model_was_shown_without_an_output_is_in_the_note():
    site = Site(
        interrupted_with_a_call(grow(), [say("six"), spend(10, 1)], [say("nine")], tokens=10),
        summaries={ALPHA: [[say("note 1")]]},
    )
    async with site.answering() as answer:
        await site.upstream.until_asked(ALPHA, 1)
        await site.upstream.until_closed(ALPHA)
        site.upstream.release("root")
        parent = await answer
    assert '{"proposal": "alpha"}' in site.upstream.of(ALPHA, summary=True)[0].texts
    assert site.upstream.of(ALPHA)[2].texts == [note("note 1")]
    given = [output("call_p1", "six weeks"), {"type": "message", "role": "user", "content": "Go on."}]
    site.upstream.script["/root"] += [[follow("alpha", "Once more."), wait()], [say("end")]]
    await site.post(previous_response_id=parent["id"], input=given)
    (late,) = [text for text in site.upstream.of(ALPHA)[3].texts if "six weeks" in text]
    assert "call_p1" in late
    site.assert_at_rest()


@pytest.mark.agents(114, 131)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_trigger_compacts_the_root_and_keeps_all_calls(transport):
    own = call("get_proposal", {"proposal": "own"}, id="call_r1")
    ask = call("get_proposal", {"proposal": "alpha"}, id="call_p1")
    site = Site(
        {"/root": [[say(FILL), listing()], [spawn("alpha"), own], [say("done")]], ALPHA: [[ask], [say("six")]]},
        summaries={"/root": [[say("note 1"), spend(7, 3)]]},
    )
    parent = await site.answer(transport)
    before = len(site.upstream)
    middle = await site.answer(transport, previous_response_id=parent["id"], input=[{"type": "compaction_trigger"}])
    assert [item["type"] for item in middle["output"]] == ["compaction"]
    assert compacted(middle) == ["/root"]
    assert len(site.upstream) == before + 1
    assert middle["usage"]["total_tokens"] == 10
    given = [output("call_r1", "own output"), output("call_p1", "6")]
    response = await site.answer(transport, previous_response_id=middle["id"], input=given)
    assert sorted(texts(response)) == ["done", "six"]
    shown = site.upstream.of("/root")[2]
    assert shown.texts[:2] == ["Compare.", note("note 1")]
    assert "own output" in shown.texts
    assert FILL not in shown.texts
    assert site.upstream.of(ALPHA)[1].texts[-1] == "6"
    site.assert_at_rest()


@pytest.mark.agents(132)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_trigger_is_the_last_item(transport):
    site = Site({"/root": [[say("one")]]})
    parent = await site.post()
    given = [{"type": "compaction_trigger"}, {"type": "message", "role": "user", "content": "More."}]
    with pytest.raises(Refused) as refused:
        await site.answer(transport, previous_response_id=parent["id"], input=given)
    assert refused.value.status == 400
    assert (len(site.upstream), len(site.store.appended)) == (1, 1)
    site.assert_at_rest()


@pytest.mark.agents(115, 127)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_what_arrives_during_a_summary_comes_behind_it(transport):
    tester = "/root/alpha/tester"
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.")],
                [gate("root"), send("alpha", "A note."), follow("alpha", "More work.")],
                [wait()],
                [wait()],
                [say("done")],
            ],
            ALPHA: [grow(spawn("tester", fork_turns="none")), [say("six")], [say("nine")]],
            tester: [[gate("tester"), say("green")]],
        },
        summaries={ALPHA: [[gate("summary"), say("note 1")]]},
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("summary", "root", "tester")
        site.upstream.release("root")
        await site.upstream.until_asked("/root", 3)
        site.upstream.release("tester")
        await site.upstream.until_closed(tester)
        site.upstream.release("summary")
        response = await answer
    _, second, third = site.upstream.of(ALPHA)
    assert second.texts[:2] == ["Compare.", note("note 1")]
    arrived = [
        letter("MESSAGE", ALPHA, "/root", "A note."),
        letter("NEW_TASK", ALPHA, "/root", "More work."),
        letter("FINAL_ANSWER", ALPHA, tester, "green"),
    ]
    assert [text for text in messages(third) if text in arrived] == arrived
    assert not any("More work." in text for text in second.texts)
    assert texts(response, ALPHA)[1:] == ["six", "nine"]
    site.assert_at_rest()


@pytest.mark.agents(116)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_fork_after_it_begins_with_the_note(transport):
    site = Site(
        {"/root": [grow(), [spawn("alpha", "Look."), wait()], [say("done")]], ALPHA: [[say("six")]]},
        summaries={"/root": [[say("note 1")]]},
    )
    await site.answer(transport)
    (asked,) = site.upstream.of(ALPHA)
    assert asked.texts == ["Compare.", note("note 1"), letter("NEW_TASK", ALPHA, "/root", "Look.")]
    site.assert_at_rest()


@pytest.mark.agents(116, 129)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_interrupt_during_it_leaves_a_whole_window(transport):
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.", fork_turns="none")],
                [gate("root"), interrupt("alpha"), listing()],
                [gate("more"), follow("alpha", "Again."), wait()],
                [say("done")],
            ],
            ALPHA: [grow(), [say("six")]],
        },
        summaries={ALPHA: [[gate("summary"), say("note 1")], [say("note 2")]]},
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("summary", "root")
        site.upstream.release("root")
        await site.upstream.reached("more")
        site.upstream.release("summary")
        await site.upstream.until_closed(ALPHA)
        site.upstream.release("more")
        response = await answer
    listed = next(found["agents"] for found in outcomes(response) if "agents" in found and len(found["agents"]) == 2)
    assert listed[1]["agent_status"] in ("interrupted", "running")
    shown = messages(site.upstream.of(ALPHA)[1])
    task = letter("NEW_TASK", ALPHA, "/root", "Look.")
    again = letter("NEW_TASK", ALPHA, "/root", "Again.")
    # The old window whole, or a note in its place; never a part of either.
    assert shown in ([task, FILL, again], [note("note 1"), again], [note("note 2"), again], [note("note 2")])
    assert texts(response)[-2:] == ["six", "done"]
    site.assert_at_rest()


@pytest.mark.agents(116)
@pytest.mark.parametrize("summary", [[say("note 1")], [fail(500)]], ids=("written", "failed"))
async def test_new_work_for_one_that_is_interrupted_during_it_is_begun_once(summary):
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.", fork_turns="none")],
                [gate("root"), interrupt("alpha"), follow("alpha", "Again.")],
                [gate("more"), wait()],
                [say("done")],
            ],
            ALPHA: [grow(), [say("six"), spend(10, 1)]],
        },
        summaries={ALPHA: [[gate("summary"), *summary], [say("note 2")]]},
    )
    async with site.answering() as answer:
        await site.upstream.reached("summary", "root")
        site.upstream.release("root")
        await site.upstream.reached("more")
        site.upstream.release("summary", "more")
        response = await answer
    assert len(site.upstream.of(ALPHA)) == 2
    assert texts(response, ALPHA)[1:] == ["six"]
    site.assert_at_rest()


@pytest.mark.agents(116, 119)
async def test_a_summary_that_fails_once_too_often_does_not_fail_who_was_interrupted():
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.", fork_turns="none")],
                [gate("root"), interrupt("alpha")],
                [gate("more"), listing()],
                [say("done")],
            ],
            ALPHA: [grow()],
        },
        summaries={ALPHA: [[gate("summary"), say("")]]},
        compaction={"max_failures": 1},
    )
    async with site.answering() as answer:
        await site.upstream.reached("summary", "root")
        site.upstream.release("root")
        await site.upstream.reached("more")
        site.upstream.release("summary")
        await site.upstream.until_closed(ALPHA)
        site.upstream.release("more")
        response = await answer
    assert outcomes(response)[-1]["agents"][1]["agent_status"] == "interrupted"
    assert items_of(response, "agent_message", "/root") == []
    site.assert_at_rest()


@pytest.mark.agents(117, 130)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_notes_are_made_of_notes_and_a_fork_has_its_own(transport):
    site = Site(
        {"/root": [grow(), [say("one")], grow(), [say("two")], [say("three")], [say("other")]]},
        summaries={"/root": [[say("note 1"), spend(1, 1)], [say("note 2"), spend(2, 2)]]},
    )
    first = await site.answer(transport)
    second = await site.answer("sse", previous_response_id=first["id"], input="More.")
    assert (compacted(first), compacted(second)) == (["/root"], ["/root"])
    earlier, later = site.upstream.of("/root", summary=True)
    assert note("note 1") in later.texts
    assert note("note 1") not in earlier.texts
    assert site.upstream.of("/root")[3].texts == ["Compare.", "More.", note("note 2")]
    third = await site.answer(transport, previous_response_id=second["id"], input="And?")
    assert site.upstream.of("/root")[4].texts == ["Compare.", "More.", note("note 2"), "two", "And?"]
    # Usage is that of the new response alone.
    assert third["usage"]["total_tokens"] == 12
    await site.answer(transport, previous_response_id=first["id"], input="Or?")
    assert site.upstream.of("/root")[5].texts == ["Compare.", note("note 1"), "one", "Or?"]
    site.assert_at_rest()


@pytest.mark.agents(117)
async def test_twice_in_one_response():
    site = Site({"/root": [grow(), grow(), [say("done")]]}, summaries={"/root": [[say("note 1")], [say("note 2")]]})
    response = await site.post()
    assert compacted(response) == ["/root", "/root"]
    assert note("note 1") in site.upstream.of("/root", summary=True)[1].texts
    assert site.upstream.of("/root")[2].texts == ["Compare.", note("note 2")]
    site.assert_at_rest()


@pytest.mark.agents(118)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_tools_instructions_and_agents_are_there_as_before(transport):
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], grow(), [listing()], [say("done")]],
            ALPHA: [[say("six")]],
        },
        summaries={"/root": [[say("note 1")]]},
    )
    response = await site.answer(transport, instructions="Be brief.")
    before, after = (site.upstream.of("/root")[number].body for number in (0, 2))
    assert after["tools"] == before["tools"]
    assert after["instructions"] == before["instructions"]
    listed = [found["agents"] for found in outcomes(response) if "agents" in found][-1]
    assert [agent["agent_name"] for agent in listed] == ["/root", ALPHA]
    site.upstream.script["/root"].append([say("more")])
    second = await site.answer(transport, previous_response_id=response["id"], input="x", instructions="Be long.")
    assert site.upstream.of("/root")[4].body["instructions"].startswith("Be long.")
    assert texts(second) == ["more"]
    site.assert_at_rest()


# ---------------------------------------------------------------- what goes wrong


BAD_NOTES = {
    "refused": [fail(500)],
    "empty": [say("")],
    "too long": [say(FILL * 3)],
    "late": [gate("never"), say("note")],
}


@pytest.mark.agents(119)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("bad", BAD_NOTES)
async def test_a_summary_that_fails_changes_nothing(transport, bad):
    site = Site({"/root": [grow(), [say("done"), spend(BELOW, 1)]]}, summaries={"/root": [BAD_NOTES[bad]]})
    response = await site.answer(transport)
    assert compacted(response) == []
    assert site.upstream.of("/root")[1].texts[:2] == ["Compare.", FILL]
    assert texts(response)[-1] == "done"
    site.assert_at_rest()


@pytest.mark.agents(119)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_two_in_a_row_end_the_agent_alone(transport):
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta"), wait()], [wait()], [listing()], [say("done")]],
            ALPHA: [grow(), grow()],
            BETA: [[gate("beta"), say("nine")]],
        },
        summaries={ALPHA: [[fail(500)], [say("")]]},
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("beta")
        await site.upstream.until_asked("/root", 2)
        site.upstream.release("beta")
        response = await answer
    listed = [found["agents"] for found in outcomes(response) if "agents" in found][-1]
    assert list(listed[1]["agent_status"]) == ["errored"]
    assert listed[2]["agent_status"] == {"completed": "nine"}
    assert texts(response, "/root") == ["done"]
    site.assert_at_rest()


@pytest.mark.agents(119)
async def test_two_in_a_row_of_the_root_fail_the_response():
    site = Site({"/root": [grow(), grow()]}, summaries={"/root": [[fail(500)], [fail(500)]]})
    events = await site.events()
    assert events[-1]["type"] == "response.failed"
    assert site.store.appended == []
    site.assert_at_rest()


@pytest.mark.agents(120)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("given", "times"), [(limit(10_000), 1), (limit(10**6), 0), ({}, 0)])
async def test_a_continuation_brings_its_own_threshold(transport, given, times):
    site = Site({"/root": [[say(FILL * 15), spend(50_000, 1)], [say("done")]]}, summaries={"/root": [[say("note 1")]]})
    parent = await site.answer(transport, **limit(10**6))
    response = await site.answer(transport, previous_response_id=parent["id"], input="More.", **given)
    assert len(compacted(response)) == times
    seen = site.upstream.of("/root")[1].texts
    assert seen == (["Compare.", "More.", note("note 1")] if times else ["Compare.", FILL * 15, "More."])
    site.assert_at_rest()


@pytest.mark.agents(120)
async def test_another_limit_of_helpers_leaves_windows_alone():
    site = Site({"/root": [grow(), [say("one")], [say("two")]]}, summaries={"/root": [[say("note 1")]]})
    parent = await site.post()
    await site.post(
        previous_response_id=parent["id"],
        input="More.",
        multi_agent={"enabled": True, "max_concurrent_subagents": 9},
    )
    assert site.upstream.of("/root")[2].texts == ["Compare.", note("note 1"), "one", "More."]
    site.assert_at_rest()


@pytest.mark.agents(121, 130)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "given", [{"reasoning": {"summary": "auto"}}, {"max_tool_calls": 3}, {"store": False}], ids=str
)
async def test_what_a_tree_does_not_support_changes_nothing(transport, given):
    site = Site({"/root": [grow(), [say("one")], [say("two")]]}, summaries={"/root": [[say("note 1")]]})
    parent = await site.answer(transport)
    before = len(site.upstream), len(site.store.appended)
    with pytest.raises(Refused) as refused:
        await site.answer(transport, previous_response_id=parent["id"], input="More.", **given)
    assert refused.value.status == 400
    assert (len(site.upstream), len(site.store.appended)) == before
    await site.answer(transport, previous_response_id=parent["id"], input="More.")
    assert site.upstream.of("/root")[2].texts == ["Compare.", note("note 1"), "one", "More."]
    site.assert_at_rest()


@pytest.mark.agents(122)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_summaries_count_in_usage_and_shrink_the_tree(transport):
    site = Site(
        {"/root": [grow(tokens=ABOVE), [say("done"), spend(10, 20)]]},
        summaries={"/root": [[say("note 1"), spend(1000, 100)]]},
    )
    response = await site.answer(transport)
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (ABOVE + 10 + 1000, 1 + 20 + 100)
    (stored,) = site.store.appended
    assert not any(FILL.encode() in row.state for row in stored.agents)
    site.assert_at_rest()


@pytest.mark.agents(122)
@pytest.mark.parametrize("bound", ["max_stream_event_bytes", "max_retained_bytes"])
async def test_a_note_without_room_fails_its_compaction_alone(bound):
    site = Site(
        {"/root": [[say("done")]]}, summaries={"/root": [[say("n" * 4200), spend(7, 3)]]}, responses={bound: 4000}
    )
    response = await site.post(input="word " * 3000, **limit(100))
    assert compacted(response) == []
    assert texts(response) == ["done"]
    assert response["usage"]["total_tokens"] == 22
    site.assert_at_rest()
