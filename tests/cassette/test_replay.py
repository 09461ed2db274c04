import json

import pytest
from cassette.conftest import KEY
from cassette.provider import Provider, provided

from gateway.cassette.bounds import Bounds
from gateway.cassette.format import Frame, read_cassette
from gateway.cassette.playback import Playback, serve_playback
from gateway.cassette.recorder import MemorySink
from gateway.cassette.replay import judge_replay, replay_cassette
from gateway.cassette.stage import Settings

BOUNDS = Bounds(step_seconds=20, close_seconds=0.3)


async def replay(cassette, url, **settings):
    sink = MemorySink()
    known = Settings(url=url, key=KEY, bounds=BOUNDS, **settings)
    result = await replay_cassette(cassette, known, sink)
    replayed = read_cassette(iter(sink.lines))
    findings = judge_replay(cassette, replayed, result, "texts")
    return result, replayed, [f"{finding.name} {problem}" for finding in findings for problem in finding.problems]


@pytest.mark.agents(135)
@pytest.mark.parametrize("name", ["R1", "R2", "R3", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13"])
async def test_a_recording_is_played_again(name, record):
    patience = 1 if name == "R2" else None
    _, cassette = await record(name, Provider(ends_after=patience))
    async with provided(Provider(ends_after=patience)) as url:
        result, _, problems = await replay(cassette, url)
    assert (result.failure, problems) == (None, [])
    assert result.sent > 0


async def test_ids_of_the_new_session_are_used(record):
    _, cassette = await record("R1", Provider(ends_after=0))
    provider = Provider(ends_after=0)
    provider.created = [{"input": ""}] * 41
    async with provided(provider) as url:
        _, replayed, problems = await replay(cassette, url, model="another")
    assert problems == []
    frames = [record for record in replayed.records if isinstance(record, Frame)]
    sent = [json.loads(frame.text) for frame in frames if frame.dir == "c2s" and frame.op == 1]
    assert sent[0]["model"] == "another"
    assert {event["response_id"] for event in sent if "response_id" in event} == {"resp_42"}
    assert [item["call_id"] for item in sent[-1]["input"]] == ["call_p_resp_42_alpha", "call_p_resp_42_beta"]
    assert sent[-1]["previous_response_id"] == "resp_42"


@pytest.mark.agents(135)
async def test_nothing_is_sent_before_what_it_followed(record):
    """A server that ends at once makes the recorded milestone of a sibling that writes come too late or never."""
    _, cassette = await record("R5")

    def hold_back(event):
        return {**event, "type": "response.note"} if event["type"] == "response.output_text.delta" else event

    async with provided(Provider(mangle=hold_back)) as url:
        known = Settings(url=url, bounds=Bounds(step_seconds=0.3, close_seconds=0.2))
        sink = MemorySink()
        result = await replay_cassette(cassette, known, sink)
    [unreached] = result.unreached
    assert unreached.startswith("response.inject (dup) was not sent")
    assert "/root/beta writes" in unreached
    assert result.sent == 1


async def test_another_ending_is_a_difference(record):
    _, cassette = await record("R1")
    async with provided(Provider(ends_after=0)) as url:
        _, _, problems = await replay(cassette, url)
    assert any("response.inject.failed response_already_completed came" in problem for problem in problems)


@pytest.mark.parametrize("name", ["R1", "R6", "R9", "R10", "R12"])
async def test_a_served_recording_answers_its_own_replay(name, record):
    _, cassette = await record(name)
    playback = Playback(cassette)
    async with serve_playback(playback) as url:
        result, _, problems = await replay(cassette, url)
    assert (result.failure, problems, playback.problems) == (None, [], [])
