"""Frames of a WebSocket: what routes a create, what is refused before that, and the gateway's own frames."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import codec
from gateway.protocol.errors import (
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    ResourceLimitExceeded,
    Unavailable,
    UpstreamError,
    UpstreamRefused,
)
from gateway.protocol.events import OutputTextDelta
from gateway.protocol.frames import (
    MAX_EVENT_ID,
    FrameError,
    InjectFrame,
    SteerFrame,
    build_error_frame,
    read_frame,
    reframe_error,
    refuse_binary,
    tag,
    tag_overhead,
)
from gateway.protocol.limits import MINIMAL_ERROR_BYTES
from gateway.protocol.minimal_error import minimal_error
from gateway.protocol.requests import RequestPolicy, check_request

INVALID_STREAM_ID = (
    "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters, "
    "numbers, underscores, hyphens, and periods."
)
lanes = st.from_regex(r"[A-Za-z0-9_.-]{1,256}", fullmatch=True)


def read(default_model=None, **fields):
    text = json.dumps({"type": "response.create", **fields})
    return read_frame(text, max_depth=100, default_model=default_model)


def refusal_of(data):
    with pytest.raises(FrameError) as refused:
        read_frame(data if isinstance(data, str | bytes) else json.dumps(data), max_depth=100)
    return refused.value


# ---------------------------------------------------------------- creates


def test_a_flat_create_has_its_parameters_beside_the_type():
    frame = read(stream_id="main", event_id="e1", model="m", input="hi", store=False, client_metadata={"a": "b"})
    assert (frame.stream_id, frame.event_id) == ("main", "e1")
    assert frame.body == {"model": "m", "input": "hi", "store": False, "client_metadata": {"a": "b"}, "stream": True}


def test_a_nested_create_has_them_in_response():
    frame = read(stream_id="main", event_id="e1", generate=False, response={"model": "m", "input": "hi", "top_k": 5})
    assert (frame.stream_id, frame.event_id) == ("main", "e1")
    assert frame.body == {"model": "m", "input": "hi", "top_k": 5, "generate": False, "stream": True}


@pytest.mark.parametrize(
    ("outside", "inside", "taken"), [(False, True, False), (None, False, False), (True, None, True)]
)
def test_generate_beside_a_nested_create_wins(outside, inside, taken):
    assert read(generate=outside, response={"generate": inside}).body["generate"] is taken


def test_a_response_that_is_null_is_none():
    assert read(model="m", response=None).body == {"model": "m", "response": None, "stream": True}


@pytest.mark.parametrize("response", ["text", [], 0, False])
def test_a_response_that_is_no_object_is_refused(response):
    with pytest.raises(FrameError) as refused:
        read(model="m", response=response, stream_id="main", event_id="e1")
    error = refused.value.error
    assert (error.code, error.param, refused.value.stream_id, refused.value.event_id) == (
        *("invalid_type", "response"),
        *("main", "e1"),
    )


@pytest.mark.parametrize("name", ["model", "input", "previous_response_id", "store", "tools"])
def test_a_parameter_beside_a_nested_create_is_not_lost(name):
    with pytest.raises(FrameError) as refused:
        read(response={"model": "m"}, **{name: "x"})
    assert (refused.value.error.code, refused.value.error.param) == ("invalid_value", name)
    assert f"'{name}'" in refused.value.error.message


def test_what_says_nothing_may_stand_beside_a_nested_create():
    frame = read(response={"model": "m"}, model=None, stream=True, client_metadata={"a": 1})
    assert frame.body == {"model": "m", "stream": True}


def test_bytes_are_read_as_text_is():
    text = '{"type":"response.create","model":"\u00e9","input":"\\ud800"}'
    assert read_frame(text.encode(), max_depth=2) == read_frame(text, max_depth=2)
    assert read_frame(text, max_depth=2).body["model"] == "\u00e9"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("stream", [True, False, None, "no", 7, {}])
def test_it_streams_whatever_the_client_says(nested, stream):
    fields = {"stream": stream, "stream_options": stream}
    assert read(**({"response": fields} if nested else fields)).body == {"stream": True}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("named", "taken"), [("m", "m"), (None, "default"), ("", "")])
def test_the_default_model_is_for_creates_that_name_none(nested, named, taken):
    fields = {"model": named}
    frame = read(default_model="default", **({"response": fields} if nested else fields))
    assert frame.body["model"] == taken
    assert "model" not in read(input="hi").body


def test_null_is_the_default_lane_and_no_event_id():
    for frame in (read(), read(stream_id=None, event_id=None)):
        assert (frame.stream_id, frame.event_id) == (None, None)


@given(lanes)
def test_lanes_are_named_freely_within_the_rules(lane):
    assert read(stream_id=lane).stream_id == lane


def test_the_longest_name_of_a_lane_has_256_characters():
    assert read(stream_id="a" * 256).stream_id == "a" * 256


@pytest.mark.parametrize(
    "stream_id",
    ["", "a" * 257, "a b", "a/b", "a\n", "\u00e9", "\u0663", "\ud800", 5, True, False, 0, [], ["a"], {}],
)
def test_a_lane_of_another_name_is_refused_without_repeating_it(stream_id):
    refused = refusal_of({"type": "response.create", "stream_id": stream_id, "event_id": "e1", "model": "m"})
    assert (refused.error.code, refused.error.param) == ("invalid_stream_id", "stream_id")
    assert (refused.error.status, refused.error.message) == (400, INVALID_STREAM_ID)
    assert (refused.stream_id, refused.event_id) == (None, "e1")


@pytest.mark.parametrize("event_id", [5, [], {}, True, "e" * (MAX_EVENT_ID + 1)])
def test_an_event_id_that_cannot_be_repeated_is_no_error(event_id):
    assert read(event_id=event_id).event_id is None
    assert read(event_id="e" * MAX_EVENT_ID).event_id == "e" * MAX_EVENT_ID
    assert refusal_of({"type": "x", "event_id": event_id}).event_id is None


@pytest.mark.parametrize("stream_id", ["main", "not valid"])
def test_what_asks_for_nothing_is_nothing(stream_id):
    data = json.dumps({"type": "response.processed", "response_id": "resp_1", "stream_id": stream_id})
    assert read_frame(data, max_depth=100) is None


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("data", ["", "{", "{bad", '{"a":NaN}', b'{"a":"\xff"}', "[" * 1000, "{'a':1}"])
def test_what_is_no_json_is_refused(data):
    refused = refusal_of(data)
    assert (refused.error.status, refused.error.type) == (400, "invalid_request_error")
    assert (refused.error.code, refused.error.param) == ("invalid_json", None)
    assert refused.error.message.startswith("The frame is ")
    assert (refused.stream_id, refused.event_id) == (None, None)


def test_depth_is_the_callers_to_bound():
    data = '{"type":"response.create","input":[[1]]}'
    assert read_frame(data, max_depth=3)
    with pytest.raises(FrameError, match="nested deeper than 2 levels") as refused:
        read_frame(data, max_depth=2)
    assert refused.value.error.code == "invalid_json"


@pytest.mark.parametrize(
    ("data", "words", "param"),
    [
        ([], "must be a JSON object, not an array", None),
        ("null", "must be a JSON object, not null", None),
        ('"response.create"', "must be a JSON object, not a string", None),
        ({}, "'type' of a frame must be a string, not null or nothing", "type"),
        ({"type": None}, "'type' of a frame must be a string", "type"),
        ({"type": ["response.create"]}, "'type' of a frame must be a string, not an array", "type"),
        ({"type": {}}, "'type' of a frame must be a string, not an object", "type"),
        ({"type": "response.create "}, "type 'response.create ' are not supported", "type"),
    ],
)
def test_other_events_are_refused_with_what_is_taken(data, words, param):
    refused = refusal_of(data)
    assert (refused.error.status, refused.error.type) == (400, "invalid_request_error")
    assert (refused.error.code, refused.error.param) == ("unsupported_event", param)
    assert words in refused.error.message
    assert "This connection takes 'response.create' and 'response.steer'" in refused.error.message
    assert not refused.closes
    assert str(refused) == refused.error.message


@pytest.mark.agents(86)
@pytest.mark.parametrize("frame", [{"response_id": "resp_1", "input": []}, {}])
def test_an_inject_needs_the_beta_header(frame):
    refused = refusal_of({"type": "response.inject", **frame})
    assert (refused.error.code, refused.closes) == ("unsupported_event", False)
    assert "OpenAI-Beta: responses_multi_agent=v1" in refused.error.message


OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}


@pytest.mark.parametrize(
    "item",
    [
        OUTPUT,
        {**OUTPUT, "output": [{"type": "input_text", "text": "x"}], "further": 1},
        {"type": "tool_search_output", "call_id": "c", "tools": []},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"},
        {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True},
        {"type": "message", "role": "user", "content": "x"},
    ],
    ids=lambda item: item["type"],
)
def test_an_inject_is_passed_on_as_it_was_sent(item):
    data = json.dumps(
        {"type": "response.inject", "response_id": "r", "input": [item], "stream_id": "?", "event_id": "e"}
    )
    assert read_frame(data, max_depth=9, injects=True) == InjectFrame(response_id="r", event_id="e", input=[item])


@pytest.mark.agents(77)
@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ({"input": []}, "response_id"),
        ({"response_id": "", "input": []}, "response_id"),
        ({"response_id": 1, "input": []}, "response_id"),
        ({"response_id": "r"}, "input"),
        ({"response_id": "r", "input": {}}, "input"),
        ({"response_id": "r", "input": [OUTPUT, "x"]}, "input[1]"),
        ({"response_id": "r", "input": [{}]}, "input[0].type"),
        ({"response_id": "r", "input": [{"type": "function_call_output", "output": ""}]}, "input[0].call_id"),
        ({"response_id": "r", "input": [{**OUTPUT, "call_id": ""}]}, "input[0].call_id"),
        ({"response_id": "r", "input": [{**OUTPUT, "output": None}]}, "input[0].output"),
        ({"response_id": "r", "input": [{"type": "tool_search_output", "call_id": "c"}]}, "input[0].tools"),
    ],
)
def test_a_malformed_inject_closes_the_connection(frame, param):
    with pytest.raises(FrameError, match=re.escape(f"'{param}' must be")) as refused:
        read_frame(json.dumps({"type": "response.inject", **frame}), max_depth=9, injects=True)
    assert (refused.value.error.code, refused.value.error.param) == ("invalid_event", param)
    assert refused.value.closes


def test_a_steer_is_read_and_not_judged():
    data = {"type": "response.steer", "previous_response_id": "r", "input": [1]}
    assert read_frame(json.dumps(data), max_depth=9) == SteerFrame(
        response_id="r", event_id=None, input=[1], stray=None
    )
    for stray in ("stream_id", "event_id", "metadata"):
        assert read_frame(json.dumps({**data, stray: "x"}), max_depth=9).stray == stray


@pytest.mark.parametrize("response_id", [None, 5, ["r"]])
def test_a_steer_of_no_response_is_an_error(response_id):
    refused = refusal_of({"type": "response.steer", "previous_response_id": response_id, "input": "x", "event_id": "e"})
    assert (refused.error.code, refused.error.param) == ("invalid_event", "previous_response_id")
    assert (refused.event_id, refused.closes) == ("e", False)


def test_a_long_type_is_not_repeated_at_length():
    assert len(refusal_of({"type": "t" * 10_000}).error.message) < 200


@pytest.mark.parametrize(("stream_id", "repeated"), [("main", "main"), ("not valid", None), (5, None), (None, None)])
def test_a_refusal_belongs_to_the_lane_it_names_validly(stream_id, repeated):
    refused = refusal_of({"type": "x", "stream_id": stream_id, "event_id": "e1"})
    assert refused.error.code == "unsupported_event"
    assert (refused.stream_id, refused.event_id) == (repeated, "e1")


def test_binary_frames_are_refused_unread():
    refused = refuse_binary()
    assert (refused.error.status, refused.error.type) == (400, "invalid_request_error")
    assert (refused.error.code, refused.error.param) == ("unsupported_message_type", None)
    assert (refused.stream_id, refused.event_id) == (None, None)


# ---------------------------------------------------------------- the parameters of a create


def check(**fields):
    model = {} if "response" in fields else {"model": "m"}
    return check_request(read(**model, **fields).body, RequestPolicy(strict=True), on_websocket=True)


def test_what_routes_a_create_is_no_parameter_of_it():
    request = check(input="hi", stream_id="main", event_id="e1", stream="no", stream_options=7)
    assert (request.extras, request.stream, request.generate) == ({}, True, True)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"background": True}, "background", "unsupported_parameter"),
        ({"background": "yes"}, "background", "invalid_type"),
        ({"generate": "no"}, "generate", "invalid_type"),
        ({"generate": 0}, "generate", "invalid_type"),
        ({"response": {"model": "m", "stream_id": "main"}}, "stream_id", "unsupported_parameter"),
    ],
)
def test_what_is_wrong_with_a_create_is_told_when_it_is_checked(fields, param, code):
    beside = {} if "response" in fields else {"input": "hi"}
    with pytest.raises(InvalidRequest) as refused:
        check(**beside, **fields)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)
    assert f"'{param}'" in refused.value.message


# ---------------------------------------------------------------- the gateway's frames


def test_an_error_frame_carries_what_is_known():
    error = InvalidRequest("No.", code="invalid_value", param="input")
    assert codec.decode(build_error_frame(error, stream_id="main", event_id="e1", sequence_number=0)) == {
        "type": "error",
        "status": 400,
        "stream_id": "main",
        "event_id": "e1",
        "sequence_number": 0,
        "error": {"message": "No.", "type": "invalid_request_error", "param": "input", "code": "invalid_value"},
    }
    assert set(codec.decode(build_error_frame(error))) == {"type", "status", "error"}


def test_a_limit_is_named_and_a_drain_keeps_its_status():
    frame = codec.decode(build_error_frame(ResourceLimitExceeded("max_stream_event_bytes", 512)))
    assert frame["status"] == 502
    assert (frame["error"]["resource"], frame["error"]["limit"]) == ("max_stream_event_bytes", 512)
    frame = codec.decode(build_error_frame(Unavailable("Shutting down.")))
    assert (frame["status"], frame["error"]["code"]) == (503, "server_is_overloaded")


def test_half_a_surrogate_pair_comes_back_as_it_was():
    frame = build_error_frame(InvalidRequest("\ud800"), event_id="\ud800")
    assert codec.decode(frame)["event_id"] == "\ud800"
    assert codec.decode(frame)["error"]["message"] == "?"


@given(lanes, st.text())
def test_a_tag_is_one_more_member_of_the_event(lane, delta):
    event = OutputTextDelta(sequence_number=3, item_id="msg_1", output_index=0, content_index=0, delta=delta)
    plain = codec.encode(event)
    tagged = tag(plain, lane)
    assert codec.decode(tagged) == {**codec.decode(plain), "stream_id": lane}
    assert len(tagged) == len(plain) + tag_overhead(lane)


def test_the_default_lane_has_no_tag():
    assert tag(b'{"type":"x"}', None) == b'{"type":"x"}'
    assert tag_overhead(None) == 0
    assert tag_overhead("a" * 256) == len(',"stream_id":""') + 256


# ---------------------------------------------------------------- the one event that changes its form


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("No."), 400),
        (RateLimitExceeded("Later."), 429),
        (Unavailable("Later."), 503),
        (UpstreamError("It broke."), 502),
        (ResourceLimitExceeded("max_stream_event_bytes", 512), 502),
        (InternalError(), 500),
        (UpstreamRefused("Busy.", upstream_status=418, code="teapot", type="of its own"), 500),
    ],
    ids=lambda value: getattr(value, "code", value),
)
def test_an_error_event_becomes_an_error_frame(error, status):
    event = minimal_error(error, 7)
    frame = codec.decode(reframe_error(codec.encode(event)))
    assert frame == {
        "type": "error",
        "status": status,
        "sequence_number": 7,
        "error": {"message": event.message, "type": error.type, "param": None, "code": error.code},
    }


def test_a_reframed_error_keeps_the_parameter_and_is_tagged_as_others_are():
    event = minimal_error(InvalidRequest("No."), 0)
    event.param = "input"
    frame = codec.decode(tag(reframe_error(codec.encode(event)), "main"))
    assert (frame["error"]["param"], frame["sequence_number"], frame["stream_id"]) == ("input", 0, "main")


@given(st.text(max_size=400), st.text(max_size=60), st.integers(0, 2**40))
def test_a_reframed_error_is_no_longer_than_the_event(message, code, number):
    event = codec.encode(minimal_error(UpstreamError(message, code=code), number))
    assert len(reframe_error(event)) <= len(event) <= MINIMAL_ERROR_BYTES
