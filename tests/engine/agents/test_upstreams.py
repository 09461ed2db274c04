"""What inference servers answer to agents, well or badly."""

import pytest
from engine.agents.bench import ROOT, TreeBench
from engine.doubles import Reply, ScriptedUpstream, streamed, whole
from harness.agents import say, spawn, wait
from harness.engine import Answer, call, message, says

ALPHA = "/root/alpha"
SPAWNS = call("spawn_agent", '{"task_name": "alpha", "message": "Look."}', "call_s")
WAITS = call("wait_agent", "{}", "call_w")


async def test_an_answer_may_be_one_body():
    played = ScriptedUpstream(whole(Answer([SPAWNS, WAITS])), whole(says("found")), whole(says("done")))
    response = await TreeBench({}, played=played).answer()
    assert response["status"] == "completed"
    assert [item["type"] for item in response["output"]][-1] == "message"
    assert [reply_body["stream"] for reply_body in played.bodies] == [True, True, True]


async def test_a_body_that_is_no_answer_fails_its_agent_alone():
    played = ScriptedUpstream(
        streamed(Answer([SPAWNS, WAITS])), Reply([b"<html>"], event_stream=False), streamed(says("done"))
    )
    response = await TreeBench({}, played=played).answer()
    assert response["status"] == "completed"
    assert "[agent failed] The upstream answered 200 with a body that is not JSON." in str(played.bodies[-1]["input"])


@pytest.mark.agents(58)
async def test_a_stream_that_breaks_off_fails_its_agent_alone_and_what_it_has_told_stays():
    broken = Answer([message("one"), message("two")]).frames()
    played = ScriptedUpstream(streamed(Answer([SPAWNS, WAITS])), Reply(broken[:-3]), streamed(says("done")))
    response = await TreeBench({}, played=played).answer()
    said = [item for item in response["output"] if item["type"] == "message"]
    assert [(item["content"][0]["text"], item["agent"]["agent_name"], item["phase"]) for item in said] == [
        ("one", ALPHA, "commentary"), ("done", ROOT, "final_answer"),
    ]  # fmt: skip
    assert played.replies == type(played.replies)()


async def test_what_is_too_much_for_the_response_ends_it_whoever_said_it():
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), wait()]], ALPHA: [[say("x" * 30_000)]]}, responses={"max_retained_bytes": 20_000}
    )
    told = await bench.stream()
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["error"]["resource"] == "max_retained_bytes"
    assert bench.played.running == []


async def test_an_event_that_cannot_be_sent_ends_the_response():
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), wait()]], ALPHA: [[say("x" * 30_000)]]}, responses={"max_stream_event_bytes": 20_000}
    )
    told = await bench.stream()
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["error"]["resource"] == "max_stream_event_bytes"
