"""Each agent has a window of its own, which is summarized when it has grown too long."""

import asyncio

import pytest
from engine.agents.bench import ALPHA, BETA, ROOT, TreeBench
from engine.doubles import settle
from harness.agents import call, fail, follow, gate, interrupt, listing, say, send, spawn, spend, wait

from gateway.protocol.errors import UpstreamRefused

LONG = "word " * 4000
LIMIT = [{"type": "compaction", "compact_threshold": 4000}]


def kinds(response):
    return [(item["type"], item["agent"]["agent_name"]) for item in response["output"]]


def compacted(response):
    return [item["agent"]["agent_name"] for item in response["output"] if item["type"] == "compaction"]


@pytest.mark.agents(112, 113)
async def test_only_the_agent_whose_window_is_long_is_summarized():
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say(LONG), listing()], [say("found")]]},
        summaries={ALPHA: [[say("NOTE")]]},
    )
    response = await bench.answer(context_management=LIMIT)
    assert compacted(response) == [ALPHA]
    shown = bench.played.of(ALPHA)[1].texts
    assert shown[0] == "hi"
    assert "NOTE" in shown[1]
    assert len(shown) == 2
    assert kinds(response)[-5:] == [
        ("compaction", ALPHA),
        ("message", ALPHA),
        ("multi_agent_call_output", ROOT),
        ("agent_message", ROOT),
        ("message", ROOT),
    ]
    assert response["usage"]["total_tokens"] == 5 * 12


@pytest.mark.agents(111)
@pytest.mark.parametrize(
    "given",
    [{}, {"context_management": None}, {"context_management": []}, {"context_management": [{"type": "compaction"}]}],
)
async def test_windows_are_watched_although_nobody_asks_for_it(given):
    bench = TreeBench(
        {ROOT: [[say(LONG), listing()], [say("done")]]},
        summaries={ROOT: [[say("NOTE")]]},
        compaction={"default_threshold": 4000, "multi_agent_default_threshold": 4000},
    )
    assert compacted(await bench.answer(**given)) == [ROOT]


@pytest.mark.parametrize(("length", "summarized"), [(5000, [ROOT]), (10_000_000, [])])
async def test_a_window_is_long_by_what_the_server_tells_of_the_model(length, summarized):
    bench = TreeBench(
        {ROOT: [[say(LONG), listing()], [say("done")]]},
        summaries={ROOT: [[say("NOTE")]]},
        models=[{"id": "m", "max_model_len": length}],
    )
    assert compacted(await bench.answer()) == summarized


async def test_the_tokens_that_the_server_counted_count():
    bench = TreeBench({ROOT: [[say("x"), listing(), spend(5000, 5)], [say("done")]]}, summaries={ROOT: [[say("N")]]})
    response = await bench.answer(context_management=LIMIT)
    assert compacted(response) == [ROOT]


@pytest.mark.agents(115)
async def test_what_arrives_during_a_summary_comes_behind_it():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha")], [gate("now"), send("alpha", "Hurry."), follow("alpha", "More.")], [say("done")]],
            ALPHA: [[say(LONG), listing()], [say("found"), listing()], [say("found")], [say("more")]],
        },
        summaries={ALPHA: [[gate("summary"), say("NOTE")]]},
    )
    listener, _ = await bench.start(context_management=LIMIT)
    await bench.played.reached("summary", "now")
    bench.played.release("now")
    await settle(100)
    bench.played.release("summary")
    response = (await listener.take_all())[-1]["response"]
    assert response["status"] == "completed"
    texts = bench.played.of(ALPHA)[2].texts
    assert "NOTE" in texts[1]
    assert texts[-1].endswith("Hurry.")
    assert bench.played.of(ALPHA)[3].texts[-1].endswith("More.")


@pytest.mark.agents(116)
async def test_an_agent_that_is_interrupted_during_its_summary_is_not_asked():
    bench = TreeBench(
        {
            ROOT: [
                [spawn("alpha")],
                [gate("now"), interrupt("alpha")],
                [follow("alpha", "More."), wait()],
                [say("done")],
            ],
            ALPHA: [[say(LONG), listing()], [say("found")]],
        },
        summaries={ALPHA: [[gate("summary"), say("NOTE")]]},
    )
    listener, _ = await bench.start(context_management=LIMIT)
    await bench.played.reached("summary", "now")
    bench.played.release("now")
    await settle(100)
    bench.played.release("summary")
    response = (await listener.take_all())[-1]["response"]
    assert response["status"] == "completed"
    assert len(bench.played.of(ALPHA)) == 2
    texts = bench.played.of(ALPHA)[1].texts
    assert texts[-1].endswith("More.")


@pytest.mark.agents(116)
async def test_a_child_gets_the_note_in_the_place_of_what_it_tells_of():
    bench = TreeBench(
        {ROOT: [[say(LONG), listing()], [spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("found")]]},
        summaries={ROOT: [[say("NOTE")]]},
    )
    await bench.answer(context_management=LIMIT)
    texts = bench.played.of(ALPHA)[0].texts
    assert texts[0] == "hi"
    assert "NOTE" in texts[1]
    assert len(texts) == 3


@pytest.mark.agents(117)
async def test_windows_are_stored_and_summarized_again():
    bench = TreeBench(
        {ROOT: [[say(LONG), listing()], [say("done")], [say(LONG), listing()], [say("more")]]},
        summaries={ROOT: [[say("NOTE ONE")], [say("NOTE TWO")]]},
    )
    first = await bench.answer(context_management=LIMIT)
    second = await bench.answer(context_management=LIMIT, previous_response_id=first["id"], input="go on")
    assert compacted(second) == [ROOT]
    before, after = bench.played.of(ROOT)[2].texts, bench.played.of(ROOT)[3].texts
    assert ["NOTE ONE" in text for text in before] == [False, True, False, False]
    (summarized,) = [asked.texts for asked in bench.played.of(ROOT, summary=True)[1:]]
    assert any("NOTE ONE" in text for text in summarized)
    assert ["NOTE TWO" in text for text in after] == [False, False, True]
    assert after[:2] == ["hi", "go on"]


@pytest.mark.agents(119)
@pytest.mark.parametrize("bad", [[fail(500)], [say("")], [say(LONG * 2)]])
async def test_a_bad_summary_leaves_the_window_as_it_is(bad):
    bench = TreeBench(
        {ROOT: [[say(LONG), listing()], [listing()], [say("done")]]},
        summaries={ROOT: [bad, [say("NOTE")]]},
    )
    response = await bench.answer(context_management=LIMIT)
    assert response["status"] == "completed"
    assert LONG in bench.played.of(ROOT)[1].texts
    assert LONG not in bench.played.of(ROOT)[2].texts


@pytest.mark.agents(119)
async def test_an_agent_whose_window_cannot_be_summarized_fails_alone():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha"), wait()], [say("done")]],
            ALPHA: [[say(LONG), listing()], [listing()]],
        },
        summaries={ALPHA: [[fail(500)], [fail(500)]]},
    )
    response = await bench.answer(context_management=LIMIT)
    assert response["status"] == "completed"
    assert "[agent failed] The history could not be compacted" in bench.played.of(ROOT)[1].texts[-1]


@pytest.mark.agents(119)
async def test_a_root_whose_window_cannot_be_summarized_ends_the_response():
    bench = TreeBench({ROOT: [[say(LONG), listing()], [listing()]]}, summaries={ROOT: [[fail(500)], [fail(500)]]})
    told = await bench.stream(context_management=LIMIT)
    assert told[-1]["type"] == "response.failed"
    assert "[compaction] max_failures" in told[-1]["response"]["error"]["message"]


@pytest.mark.agents(113)
async def test_two_agents_are_summarized_at_once_and_the_others_go_on():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha"), spawn("beta"), wait()], [wait()], [say("done")]],
            ALPHA: [[say(LONG), listing()], [say("found")]],
            BETA: [[say(LONG), listing()], [say("found")]],
        },
        summaries={ALPHA: [[gate("a"), say("NOTE")]], BETA: [[gate("b"), say("NOTE")]]},
    )
    listener, _ = await bench.start(context_management=LIMIT)
    await bench.played.reached("a", "b")
    assert sorted(bench.played.running) == [ALPHA, BETA]
    bench.played.release("b")
    await settle(100)
    assert bench.played.of(BETA)[1].texts
    bench.played.release("a")
    response = (await listener.take_all())[-1]["response"]
    assert compacted(response) == [BETA, ALPHA]


@pytest.mark.agents(131)
async def test_a_trigger_summarizes_the_root_and_asks_nobody():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha"), say(LONG), call("get_proposal", id="ask_1"), wait()], [say("done")]],
            ALPHA: [[call("get_proposal", id="ask_2")], [say("x")]],
        },
        summaries={ROOT: [[say("NOTE")]]},
    )
    first = await bench.answer()
    asked = len(bench.played)
    second = await bench.answer(previous_response_id=first["id"], input=[{"type": "compaction_trigger"}])
    assert kinds(second) == [("compaction", ROOT)]
    assert len(bench.played) == asked + 1
    outputs = [{"type": "function_call_output", "call_id": name, "output": name} for name in ("ask_1", "ask_2")]
    third = await bench.answer(previous_response_id=second["id"], input=outputs)
    assert third["status"] == "completed"
    assert ("message", ROOT) in kinds(third)


@pytest.mark.agents(129)
async def test_a_client_that_leaves_during_a_summary_takes_it_along():
    bench = TreeBench({ROOT: [[say(LONG), listing()]]}, summaries={ROOT: [[gate("summary"), say("NOTE")]]})
    _, task = await bench.start(context_management=LIMIT)
    await bench.played.reached("summary")
    task.cancel()
    await asyncio.wait([task])
    assert bench.played.running == []


async def test_a_conversation_of_one_agent_that_was_summarized_goes_on_as_that_of_the_root():
    bench = TreeBench({"": [[say(LONG)], [say("short")]], ROOT: [[say("done")]]}, summaries={"": [[say("NOTE")]]})
    first = await bench.answer(multi_agent=None)
    second = await bench.answer(
        multi_agent=None, context_management=LIMIT, previous_response_id=first["id"], input="go on"
    )
    assert [item["type"] for item in second["output"]] == ["compaction", "message"]
    third = await bench.answer(previous_response_id=second["id"], input="and on")
    assert third["status"] == "completed"
    texts = bench.played.of(ROOT)[0].texts
    assert LONG not in texts
    assert ["NOTE" in text for text in texts] == [False, False, True, False, False]


async def test_a_trigger_whose_summary_fails_fails_the_response():
    bench = TreeBench({ROOT: [[say("done")]]}, summaries={ROOT: [[fail(500)]]})
    first = await bench.answer()
    with pytest.raises(UpstreamRefused):
        await bench.stream(previous_response_id=first["id"], input=[{"type": "compaction_trigger"}])
