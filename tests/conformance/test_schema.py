"""The field tables on trial: they accept what is right and name what is not."""

from typing import Any

import pytest
from conformance import samples
from conformance.schema import NEVER_NULL, Schema, reader_of

SCHEMA = Schema()


@pytest.mark.parametrize(
    ("type_", "right", "wrong"),
    [
        ("string", ["", "a"], [1, None, []]),
        ("integer", [0, -1], [1.0, True, "1"]),
        ("number", [0, 1.5], [True, "1", None]),
        ("boolean", [True], [0, None]),
        ("string (any model id)", ["m"], [None]),
        ("string | null", ["a", None], [1]),
        ('"a"|"b"', ["a", "b"], ["c", None]),
        ('"a"|"b" | null', ["a", None], ["c"]),
        ("array<Logprob>", [[], [{}]], [None, [1], {}]),
        ("array<string | null>", [["a", None]], [[1]]),
        ("map<string, string>", [{}, {"a": "b"}], [{"a": 1}, []]),
        ("Agent | null", [{}, None], ["a"]),
        ("any", [None, 1, "a"], []),
    ],
)
def test_types_of_the_table(type_: str, right: list[Any], wrong: list[Any]) -> None:
    assert [value for value in right if not reader_of(type_)(value)] == []
    assert [value for value in wrong if reader_of(type_)(value)] == []


def test_good_events_have_no_faults() -> None:
    assert [fault for event in samples.full_stream() for fault in SCHEMA.check_event(event)] == []


def test_unknown_event_types_are_faults() -> None:
    assert SCHEMA.check_event({"type": "response.reasoning_part.added"}) == [
        "unknown event type 'response.reasoning_part.added'"
    ]


@pytest.mark.parametrize("name", ["sequence_number", "delta", "item_id", "output_index", "content_index", "logprobs"])
def test_required_event_fields_are_missed(name: str) -> None:
    delta = next(e for e in samples.full_stream() if e["type"] == "response.output_text.delta")
    del delta[name]
    assert SCHEMA.check_event(delta) == [f"{name} is missing"]


def test_wrong_types_are_named() -> None:
    delta = next(e for e in samples.full_stream() if e["type"] == "response.output_text.delta")
    assert SCHEMA.check_event({**delta, "output_index": "0"}) == ['output_index is "0", expected integer']


# The published tables do not ask for `conversation`; the gateway always sends it.
@pytest.mark.parametrize("name", sorted(samples.response().keys() - {"conversation"}))
def test_every_response_field_must_be_present(name: str) -> None:
    response = samples.response()
    del response[name]
    assert f"response lacks {name}" in SCHEMA.check_response(response)


@pytest.mark.parametrize("name", NEVER_NULL)
def test_fields_that_may_not_be_null(name: str) -> None:
    assert f"response {name} is null" in SCHEMA.check_response(samples.response(**{name: None}))


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"status": "error"}, "response status is 'error'"),
        ({"output": None}, "output is null"),
        ({"temperature": "1"}, "temperature is"),
        ({"error": {"code": "x", "message": "y"}}, "status 'completed' with error"),
        ({"incomplete_details": {"reason": "x"}}, "status 'completed' with incomplete_details"),
        ({"completed_at": None}, "completed without completed_at"),
        ({"usage": {"input_tokens": 1}}, "usage: output_tokens is missing"),
        ({"metadata": {"k": 1}}, "metadata is"),
    ],
)
def test_faults_of_a_completed_response(members: dict[str, Any], fault: str) -> None:
    assert any(found.startswith(fault) for found in SCHEMA.check_response(samples.response(**members)))


def test_a_failed_response_needs_a_code() -> None:
    failed = samples.response("failed", error={"code": None, "message": "x"})
    assert any("string code" in fault for fault in SCHEMA.check_response(failed))


def test_items_carry_an_id_and_a_status() -> None:
    item = samples.call_item(0, ["{}"])[-1]["item"]
    assert SCHEMA.check_item(item) == []
    assert SCHEMA.check_item({**item, "id": None}) == ["function_call: item id is None"]
    assert SCHEMA.check_item({**item, "status": None}) == ["function_call: item status is None"]
    assert SCHEMA.check_item({"type": "nonsense"}) == ["unknown item type 'nonsense'"]


def test_parts_need_their_annotations() -> None:
    item = samples.text_item("message", 0, ["a"])[-1]["item"]
    del item["content"][0]["annotations"]
    assert SCHEMA.check_item(item) == ["message: annotations is missing"]
