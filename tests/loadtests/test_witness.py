"""What counts as a good turn, and what as which fault."""

import time
from typing import Any

import msgspec
import pytest
from harness.engine import Answer, message, reasoning, says
from measure import Turn
from witness import Witness, decode_event

Events = list[dict[str, Any]]
TEXT = "Hello, world. All is well."


def events(**changes: Any) -> Events:
    return list(Answer([message(TEXT)], **changes).events())


def on_lane(lane: str, told: Events) -> Events:
    return [{**event, "stream_id": lane} for event in told]


def judge(told: Events, lane: str | None = None, expected: tuple[str, ...] = ()) -> Turn:
    witness = Witness("sse", lane, expected)
    for event in told:
        raw = msgspec.json.encode(event)
        witness.take(decode_event(raw), raw, time.perf_counter_ns())
    return witness.finish()


def without(told: Events, type: str) -> Events:
    return [event for event in told if event["type"] != type]


def test_a_good_turn() -> None:
    turn = judge(events(), expected=("All is well",))
    assert (turn.outcome, turn.fault, turn.tokens, len(turn.gaps)) == ("ok", "", 7, 1)
    assert 0 <= turn.ack <= turn.ttft <= turn.e2e
    assert turn.ended - turn.began == turn.e2e


def test_a_good_turn_on_a_lane() -> None:
    assert judge(on_lane("left", events()), lane="left").outcome == "ok"


def test_times_are_microseconds() -> None:
    witness = Witness("sse")
    began = time.perf_counter_ns()
    told = events(deltas=[["Hello, ", "world. ", "All is well."]])
    for event in told:
        raw = msgspec.json.encode(event)
        witness.take(decode_event(raw), raw, began + event["sequence_number"] * 1_234_000)
    turn = witness.finish()
    assert turn.gaps == [1234, 1234]
    # The witness came a moment before the clock was read here.
    assert 4 * 1234 <= turn.ttft < turn.e2e == turn.ttft + 6 * 1234


def test_what_is_thought_counts_as_a_first_token_and_not_as_text() -> None:
    turn = judge(list(Answer([reasoning("Hmm."), message(TEXT)]).events()))
    assert (turn.outcome, len(turn.gaps)) == ("ok", 2)


def test_an_end_that_is_called_completed_may_be_incomplete() -> None:
    assert judge(events(status="incomplete")).outcome == "incomplete"


def test_an_incomplete_answer_need_not_say_everything() -> None:
    assert judge(events(status="incomplete"), expected=("more",)).outcome == "incomplete"


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (events()[:-1], "no terminal event"),
        ([], "no terminal event"),
        (without(events(), "response.output_text.delta"), "sequence gap"),
        ([*events()[:3], *events()[2:]], "sequence gap"),
        (events()[1:], "sequence gap"),
        ([{"type": "response.created"}], "sequence gap"),
        (on_lane("right", events()), "wrong stream_id"),
        ([*events(), {"type": "response.in_progress", "sequence_number": 9}], "an event after the end"),
        ([*events()[:2], {"type": "response.failed", "sequence_number": 2}], "the response failed"),
        ([{"type": "error", "error": {"code": "rate_limit_exceeded"}}], "the response failed"),
        (events(deltas=[["Hello", " there"]]), "text mismatch"),
    ],
)
def test_what_fails(told: Events, fault: str) -> None:
    turn = judge(told)
    assert (turn.outcome, turn.fault) == ("failed", fault)


def test_an_event_of_a_lane_without_its_name_fails() -> None:
    told = on_lane("left", events())
    del told[3]["stream_id"]
    assert judge(told, lane="left").fault == "wrong stream_id"


def test_the_answer_to_another_prompt_fails() -> None:
    turn = judge(events(), expected=("Turn 1234",))
    assert (turn.fault, turn.detail) == ("text mismatch", f"'Turn 1234' is not in '{TEXT}'")


def test_the_first_of_several_faults_counts() -> None:
    told = events()
    del told[4]["sequence_number"]
    assert judge(told[:-1]).fault == "sequence gap"


def judge_document(body: bytes, expected: tuple[str, ...] = ()) -> Turn:
    witness = Witness("json", None, expected)
    witness.take_document(body, time.perf_counter_ns() + 5_000_000)
    return witness.finish()


def test_a_document() -> None:
    body = msgspec.json.encode(says(TEXT).response)
    turn = judge_document(body, (TEXT,))
    assert (turn.outcome, turn.tokens, turn.ttft, turn.gaps) == ("ok", 7, None, [])
    assert turn.e2e >= 5000
    assert judge_document(body, ("else",)).fault == "text mismatch"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"<html>", "unreadable answer"),
        (b"{}", "the response failed"),
        (b'{"status": "failed"}', "the response failed"),
    ],
)
def test_a_document_that_is_no_good(body: bytes, fault: str) -> None:
    assert judge_document(body).fault == fault
