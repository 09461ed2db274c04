import json

import pytest
from cassette.conftest import KEY
from cassette.provider import Provider

from gateway.cassette.bounds import Bounds
from gateway.cassette.checks import check_sessions
from gateway.cassette.dialogue import Call
from gateway.cassette.format import Close, Failure, Frame, encode_record
from gateway.cassette.proposals import answer_call
from gateway.cassette.transcript import read_sessions

ON_SOCKETS = [f"R{number}" for number in range(1, 19) if number not in {14, 15}]


def sent(cassette) -> list[dict]:
    frames = [record for record in cassette.records if isinstance(record, Frame)]
    return [json.loads(frame.text) for frame in frames if frame.op == 1 and frame.dir == "c2s"]


def problems(cassette, scenario: str) -> list[str]:
    findings = check_sessions(read_sessions(cassette.records), scenario)
    return [f"{finding.name} {problem}" for finding in findings for problem in finding.problems]


@pytest.mark.parametrize("name", ON_SOCKETS)
async def test_every_scenario_shows_what_it_should(name, record):
    provider = Provider(ends_after=1 if name == "R2" else None)
    outcome, cassette = await record(name, provider)
    assert (outcome.failure, outcome.missed) == (None, None)
    assert (cassette.is_complete, cassette.is_intact) == (True, True)
    assert cassette.head.scenario == name
    assert problems(cassette, name) == []
    if name not in {"R9", "R13"}:
        assert {record.clean for record in cassette.records if isinstance(record, Close)} == {True}


async def test_outputs_go_by_the_arguments(record):
    _, cassette = await record("R1")
    injects = [event for event in sent(cassette) if event["type"] == "response.inject"]
    outputs = {item["call_id"]: item["output"] for event in injects for item in event["input"]}
    assert outputs == {
        "call_p_resp_1_alpha": '{"estimated_weeks":6,"risk":"medium"}',
        "call_p_resp_1_beta": '{"estimated_weeks":8,"risk":"low"}',
    }


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "custom_tool_call", "name": "get_proposal", "input": '{"proposal":"beta"}'}, '"risk":"low"'),
        ({"type": "function_call", "name": "get_proposal", "arguments": '{"proposal":"gamma"}'}, "no such proposal"),
        ({"type": "function_call", "name": "get_proposal", "arguments": "[]"}, "no object"),
        ({"type": "function_call", "name": "get_proposal", "arguments": "{"}, "no object"),
        ({"type": "function_call", "name": "other", "arguments": "{}"}, "no function 'other'"),
    ],
)
def test_whatever_is_called_gets_an_output(item, said):
    answer = answer_call(Call("call_1", item, "/root"))
    assert answer["call_id"] == "call_1"
    assert answer["type"] == f"{item['type']}_output"
    assert said in answer["output"]


async def test_what_came_too_late_goes_into_a_create_on_the_same_connection(record):
    outcome, cassette = await record("R1", Provider(ends_after=0))
    assert outcome.missed is None
    first, *_, last = sent(cassette)
    assert (first["type"], last["type"]) == ("response.create", "response.create")
    assert last["previous_response_id"] == "resp_1"
    assert [item["call_id"] for item in last["input"]] == ["call_p_resp_1_alpha", "call_p_resp_1_beta"]
    assert outcome.counts["sessions"] == 1


async def test_only_one_inject_of_a_response_is_open_at_a_time(record):
    _, cassette = await record("R4")
    frames = [record for record in cassette.records if isinstance(record, Frame) and record.op == 1]
    kinds = [json.loads(frame.text)["type"] for frame in frames]
    order = [kind for kind in kinds if "inject" in kind]
    assert order == ["response.inject", "response.inject.created"] * 2
    _, cassette = await record("R4", bounds=Bounds(outstanding=2))
    frames = [record for record in cassette.records if isinstance(record, Frame) and record.op == 1]
    kinds = [json.loads(frame.text)["type"] for frame in frames]
    assert [kind for kind in kinds if "inject" in kind][:2] == ["response.inject"] * 2


async def test_a_race_that_was_lost_is_told(record):
    outcome, cassette = await record("R5", Provider(ends_after=0))
    assert "ended before a sibling wrote" in outcome.missed
    assert problems(cassette, "R5") == []


@pytest.mark.agents(140)
async def test_store_false_is_recorded_as_it_was_said(record):
    _, cassette = await record("R12", store=True)
    assert [event["store"] for event in sent(cassette)] == [False]
    for store, said in ((True, [True]), (False, [False]), (None, [])):
        _, cassette = await record("R1", Provider(), store=store)
        assert [event["store"] for event in sent(cassette) if "store" in event] == said


@pytest.mark.agents(136)
async def test_the_key_is_sent_and_recorded_nowhere(record):
    provider = Provider(mangle=lambda event: {**event, "echo": f"your key is {KEY}"})
    _, cassette = await record("R1", provider)
    assert provider.headers[0]["authorization"] == f"Bearer {KEY}"
    written = b"".join(encode_record(record) for record in cassette.records).decode()
    assert KEY not in written
    assert '"authorization":"Bearer ***"' in written
    assert "your key is ***" in written
    assert '"OpenAI-Beta":"responses_multi_agent=v1"' in written


async def test_without_the_beta_and_with_other_words(record):
    provider = Provider()
    outcome, _ = await record("R1", provider, beta=False, prompt="Say something.")
    assert "openai-beta" not in provider.headers[0]
    assert provider.created[0]["input"] == "Say something."
    assert outcome.missed == "the model called 0 functions instead of 2"


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (Bounds(max_frames=5), "--max-frames"),
        (Bounds(max_injects=1), "--max-injects"),
        (Bounds(step_seconds=0.05), "longer than 0.05 seconds"),
    ],
)
async def test_what_is_bounded_ends_the_recording_in_good_order(bounds, told, record):
    provider = Provider(ends_after=None)
    outcome, cassette = await record("R2" if "longer" in told else "R1", provider, bounds)
    assert told in outcome.failure
    assert cassette.is_intact
    [failure] = [record for record in cassette.records if isinstance(record, Failure)]
    assert failure.message == outcome.failure


async def test_a_server_that_leaves_is_a_failure_of_the_scenario(record):
    provider = Provider()
    provider.on_connect = lambda socket: socket.close(1001)
    outcome, cassette = await record("R1", provider)
    assert outcome.failure in {"the server closed the connection", "the connection has ended"}
    assert cassette.is_intact


@pytest.mark.parametrize("change", [{"item": "text"}, {"type": []}, {"agent": 7}, {"response": None}])
async def test_what_is_no_event_is_evidence_and_no_crash(change, record):
    told = []
    provider = Provider(mangle=lambda event: {**event, **change} if set(change) & set(event) else event)
    outcome, cassette = await record("R1", provider, Bounds(step_seconds=0.2), tell=told.append)
    assert outcome.failure is None or "longer than" in outcome.failure
    assert "< what is no event" in told
    assert any("is no event" in problem for problem in problems(cassette, "R1"))
