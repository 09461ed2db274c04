"""Events as they are recorded, and what a response that waits tells."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import codec, events, recorded
from gateway.protocol.limits import Limits
from gateway.protocol.requests import RequestPolicy, build_response, read_request
from gateway.protocol.turn import Turn

TEXTS = st.lists(st.text(), min_size=1, max_size=6)


def make_turn():
    request = read_request(b'{"model": "m", "input": "hi", "background": true}', RequestPolicy())
    limits = Limits(
        max_retained_bytes=1000, max_upstream_json_bytes=1000, max_upstream_sse_line_bytes=1000,
        max_stream_event_bytes=1000,
    )  # fmt: skip
    return Turn(build_response(request, response_id="resp_1", created_at=1), limits, lambda kind: f"{kind}_1")


@given(texts=TEXTS, skip=st.integers(min_value=-2, max_value=7))
def test_what_is_recorded_is_read_again(texts, skip):
    told = [
        codec.encode(
            events.OutputTextDelta(sequence_number=n, item_id="i", output_index=0, content_index=0, delta=text)
        )
        for n, text in enumerate(texts)
    ]
    read = list(recorded.split(recorded.join(told), skip)) if skip < len(told) else []
    assert read == [(b"response.output_text.delta", event) for event in told[max(0, skip) :]]


@pytest.mark.parametrize(
    ("status", "name"),
    [("completed", "completed"), ("incomplete", "incomplete"), ("failed", "failed"), ("cancelled", "incomplete")],
)
def test_a_response_that_has_ended_has_a_last_event(status, name):
    event = recorded.encode_terminal(status, 7, b'{"id":"resp_1"}')
    assert json.loads(event) == {"type": f"response.{name}", "sequence_number": 7, "response": {"id": "resp_1"}}
    ((kind, _),) = recorded.split(event, 0)
    assert kind in recorded.TERMINALS
    assert recorded.tells_output(kind)


def test_what_waits_is_queued_then_in_progress_then_what_its_owner_wishes():
    turn = make_turn()
    waiting = turn.enqueue()
    names = [events.NAMES[type(event)] for event in waiting]
    assert names == [b"response.created", b"response.queued"]
    assert not any(map(recorded.tells_output, names))
    assert turn.response.status == "queued"
    assert turn.next_number == 2
    (begun,) = turn.begin()
    assert (begun.sequence_number, begun.response.status) == (2, "in_progress")
    assert (turn.cancel().status, turn.phase.is_terminal) == ("cancelled", True)
