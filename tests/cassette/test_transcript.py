"""What is read of what the two sides said, however deep it is nested."""

from types import SimpleNamespace

import pytest

from gateway.cassette.proposals import FIXTURE, answer_call
from gateway.cassette.stage import read_answer
from gateway.cassette.talk import ScenarioFailed
from gateway.cassette.transcript import parse_event

DEEP = '{"a":' * 100_000


@pytest.mark.parametrize("text", [DEEP, DEEP.encode(), b"\xff", "[]", "7", ""])
def test_what_is_no_object_is_no_event(text):
    assert parse_event(text) is None


def test_an_answer_that_is_nested_too_deep_fails_its_scenario():
    with pytest.raises(ScenarioFailed, match="no JSON"):
        read_answer({}, 200, "application/json", DEEP.encode(), {})


def test_arguments_that_are_nested_too_deep_are_told_as_a_mistake():
    item = {"type": "function_call", "name": FIXTURE, "arguments": DEEP}
    answer = answer_call(SimpleNamespace(item=item, call_id="call_1"))
    assert "no object" in answer["output"]
