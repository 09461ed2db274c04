"""The catalogue of client events against the published one."""

from typing import Any

import pytest
from conformance.verdict import beta_schema, schema

from gateway.protocol import codec, events
from gateway.protocol.errors import UpstreamError
from gateway.protocol.events import CATALOGUE, CONTROLS, HOSTED, NAMES, read_hosted, tag_of
from gateway.protocol.items import AgentRef
from gateway.protocol.response import Response

TABLE: dict[str, Any] = schema()._events
RESPONSE = Response(id="resp_1", created_at=1, status="in_progress", model="m")
SAMPLES: dict[str, Any] = {
    "response": RESPONSE,
    "item": {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []},
    "part": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    "annotation": {"type": "file_path"},
    "delta": "d",
    "output": [],
    "logprobs": [],
}


def sample(type_: str) -> events.Event:
    """One event of a type with every required field of the table, and no other."""
    fields = {}
    for name, kind in TABLE[type_]["required"].items():
        if name == "type":
            continue
        fields[name] = SAMPLES.get(name, 0 if kind == "integer" else "x")
    if type_ == "response.shell_call_output_content.delta":
        fields["delta"] = {"stdout": "x"}
    return CATALOGUE[type_](**fields)


def test_the_catalogue_is_the_published_one():
    assert set(CATALOGUE) == set(TABLE)
    assert len(CATALOGUE) == 59
    every = [*CATALOGUE.values(), *CONTROLS.values()]
    assert {kind: name.decode() for kind, name in NAMES.items()} == {kind: tag_of(kind) for kind in every}
    assert {*CATALOGUE, *CONTROLS} == set(beta_schema()._events)


@pytest.mark.parametrize("type_", sorted(TABLE))
def test_each_event_carries_what_the_table_requires(type_):
    event = codec.decode(codec.encode(sample(type_)))
    assert event["type"] == type_
    assert schema().check_event(event) == []
    required, allowed = set(TABLE[type_]["required"]), {*TABLE[type_]["required"], *TABLE[type_]["optional"]}
    assert required <= set(event) <= allowed


@pytest.mark.parametrize(
    "type_", sorted(set(TABLE) - {"error", "response.audio.done", "response.audio.transcript.done"})
)
def test_no_required_field_can_be_forgotten(type_):
    with pytest.raises(TypeError, match="Missing required argument"):
        CATALOGUE[type_]()


def test_the_error_event_says_it_flat_and_nested():
    detail = events.ErrorDetail(type="server_error", code="c", message="m")
    event = codec.decode(codec.encode(events.ErrorEvent(sequence_number=5, code="c", message="m", error=detail)))
    assert event == {
        "type": "error",
        "sequence_number": 5,
        "code": "c",
        "message": "m",
        "param": None,
        "error": {"type": "server_error", "code": "c", "message": "m", "param": None},
    }


@pytest.mark.parametrize("type_", sorted(HOSTED))
def test_hosted_events_get_our_id_and_lose_nulls_and_numbers(type_):
    fields = codec.decode(codec.encode(sample(type_)))
    optional = dict.fromkeys(TABLE[type_]["optional"])
    told = codec.decode(
        codec.encode(read_hosted({**fields, **optional, "item_id": "theirs", "output_index": 9}, "ours"))
    )
    assert told["output_index"] == -1
    assert told.get("item_id", "ours") == "ours"
    assert told == {
        **fields,
        **({"item_id": "ours"} if "item_id" in fields else {}),
        "output_index": -1,
        "sequence_number": -1,
    }


def test_a_hosted_event_without_its_field_is_refused():
    with pytest.raises(UpstreamError, match="malformed event"):
        read_hosted({"type": "response.mcp_call_arguments.delta"}, "mcp_1")


TARGET = "resp_1"
FAULT = {"code": "response_already_completed", "message": "Response 'resp_1' has already completed."}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "6 weeks"}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (events.InjectCreated(response_id=TARGET), {"response_id": TARGET}),
        (
            events.InjectFailed(response_id=TARGET, input=[OUTPUT], error=events.ControlError(**FAULT)),
            {"response_id": TARGET, "input": [OUTPUT], "error": FAULT},
        ),
        (
            events.SteerAccepted(steer=events.Steer(id="steer_1", previous_response_id=TARGET)),
            {"steer": {"id": "steer_1", "previous_response_id": TARGET}},
        ),
        (
            events.SteerPending(
                steer=events.Steer(id="steer_1", previous_response_id=TARGET),
                required_input=[{"type": "function_call_output", "call_id": "call_1", "name": "f"}],
            ),
            {
                "steer": {"id": "steer_1", "previous_response_id": TARGET},
                "reason": "waiting_for_required_input",
                "required_input": [{"type": "function_call_output", "call_id": "call_1", "name": "f"}],
            },
        ),
        (
            events.SteerFailed(
                steer=events.Steer(previous_response_id=TARGET, input="more"),
                error=events.ControlError(type="invalid_request_error", **FAULT),
            ),
            {
                "steer": {"previous_response_id": TARGET, "input": "more"},
                "error": {"type": "invalid_request_error", **FAULT},
            },
        ),
    ],
    ids=lambda value: value.__class__.__name__ if isinstance(value, events.Event) else "",
)
def test_what_became_of_a_control(event: events.Event, told: dict[str, Any]):
    shown = codec.decode(codec.encode(event))
    assert shown == {"type": NAMES[type(event)].decode(), "sequence_number": -1, **told}
    assert beta_schema().check_event(shown) == []


def test_an_event_of_an_agent_says_whose_it_is():
    shown = codec.encode(events.OutputTextDelta(item_id="m", output_index=0, content_index=0, delta="d"))
    assert b"agent" not in shown
    event = events.OutputTextDelta(item_id="m", output_index=0, content_index=0, delta="d")
    event.agent = AgentRef(agent_name="/root/alpha")
    shown = codec.decode(codec.encode(event))
    assert shown["agent"] == {"agent_name": "/root/alpha"}
    assert beta_schema().check_event(shown) == []
