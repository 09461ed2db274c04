"""Every parameter of a create request: forwarded, handled here, or refused by name."""

import json

import pytest
from conformance.verdict import schema
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import codec
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.requests import (
    UNSUPPORTED_ON_WEBSOCKETS,
    CreateFields,
    RequestPolicy,
    build_response,
    build_upstream_body,
    check_request,
    load_tools,
    read_object,
    read_request,
)

TOOL = {"type": "function", "name": "f"}

# What an engine is sent, word for word.
FORWARDED = {
    "instructions": "Be brief.",
    "temperature": 0.5,
    "top_p": 0.25,
    "max_output_tokens": 7,
    "top_logprobs": 3,
    "presence_penalty": -2.0,
    "frequency_penalty": 1.5,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "json_object"}},
    "truncation": "auto",
    "prompt_cache_key": "k",
    "prompt_cache_options": {"a": 1},
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "service_tier": "flex",
    "user": "u",
}
# What the gateway does itself, or keeps for the response object.
HANDLED = {
    "previous_response_id": "resp_1",
    "store": False,
    "stream": True,
    "stream_options": {"include_obfuscation": True},
    "background": True,
    "conversation": {"id": "conv_1"},
    "background_options": {"completion_window": "soonest"},
    "max_tool_calls": 3,
    "metadata": {"a": "b"},
    "multi_agent": {"enabled": False},
    "context_management": [],
    "generate": False,
}
WITH_TOOLS = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
REFUSED = {
    "context_management": [{"type": "compaction"}],
    "prompt": {"id": "p"},
    "generate": True,
    "stream_id": "s",
    # Without a policy there are no trees of agents.
    "multi_agent": {"enabled": True},
}


def read(policy=None, **given):
    return read_request(json.dumps({"model": "m", "input": "hi", **given}).encode(), policy or RequestPolicy())


def body_of(request):
    return build_upstream_body(request, request.items, request.toolset.offers.first, model="engine-model", stream=True)


def refusal_of(policy=None, **given):
    with pytest.raises(InvalidRequest) as refused:
        read(policy, **given)
    return refused.value


def test_the_tables_of_this_module_know_every_parameter():
    tables = {*FORWARDED, *HANDLED, *WITH_TOOLS, *REFUSED, "model", "input"}
    assert tables == set(CreateFields.__struct_fields__)


@pytest.mark.parametrize("name", FORWARDED)
def test_forwarded_parameters_reach_the_engine_as_written(name):
    body = body_of(read(**{name: FORWARDED[name]}))
    assert body[name] == FORWARDED[name]
    assert set(body) == {"model", "stream", "store", "input", name}


@pytest.mark.parametrize("name", HANDLED)
def test_handled_parameters_stay_here(name):
    body = body_of(read(**{name: HANDLED[name]}))
    assert set(body) == {"model", "stream", "store", "input"}
    assert (body["stream"], body["store"]) == (True, False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_by_name(name):
    error = refusal_of(**{name: REFUSED[name]})
    assert (error.param, error.code) == (name, "unsupported_parameter")
    assert name in error.message


@pytest.mark.parametrize("name", sorted({*CreateFields.__struct_fields__} - {"model", "input"}))
def test_null_is_absent(name):
    assert body_of(read(**{name: None})) == body_of(read())
    assert read(**{name: None}).extras == {}


def test_zero_is_no_way_around_a_refusal():
    assert refusal_of(prompt=0).param == "prompt"


def test_the_engine_gets_its_own_model_name_the_items_and_no_state():
    request = read(store=True, stream=False)
    assert build_upstream_body(
        request, request.items, request.toolset.offers.first, model="engine-model", stream=False
    ) == {
        "model": "engine-model",
        "stream": False,
        "store": False,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    }


def test_tools_and_their_choice_go_together():
    body = body_of(read(**WITH_TOOLS))
    assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == ([TOOL], "required", False)
    assert "parallel_tool_calls" not in body_of(read(tools=[TOOL]))
    assert body_of(read(tools=[TOOL]))["tool_choice"] == "auto"
    assert not {"tools", "tool_choice"} & set(body_of(read(tools=[], tool_choice="auto", parallel_tool_calls=True)))


def test_properties_of_a_request():
    request = read(store=False, stream=True)
    assert (request.model, request.store, request.stream) == ("m", False, True)
    assert (read().store, read().stream) == (True, False)


# ---------------------------------------------------------------- model and input


@pytest.mark.parametrize("given", [{"model": None}, {"model": ""}])
def test_a_model_is_required(given):
    error = refusal_of(**given)
    assert (error.param, error.code) == ("model", "missing_required_parameter")


@pytest.mark.parametrize("empty", [None, "", []])
def test_input_may_be_empty_only_in_a_continuation(empty):
    error = refusal_of(input=empty)
    assert (error.param, error.code) == ("input", "missing_required_parameter")
    assert "previous_response_id" in error.message
    assert read(input=empty, previous_response_id="resp_1").fields.previous_response_id == "resp_1"


def test_the_bounds_of_the_policy_hold():
    policy = RequestPolicy(max_tools=1, max_input_items=1)
    assert refusal_of(policy, tools=[TOOL, TOOL]).param == "tools"
    assert refusal_of(policy, input=[{"id": "a"}, {"id": "b"}]).param == "input"
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}]}]
    assert refusal_of(policy, input=image).param == "input[0].content[0].image_url"
    assert read(RequestPolicy(remote_images=True), input=image).items[0]["content"] == image[0]["content"]


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", [0, 2, 1.5], [-0.1, 2.1]),
        ("top_p", [0, 1], [-0.1, 1.1]),
        ("top_logprobs", [0, 20], [-1, 21]),
        ("presence_penalty", [-2, 2], [-2.1, 2.1]),
        ("frequency_penalty", [-2, 2], [-2.1, 2.1]),
        ("max_output_tokens", [1, 10**12], [0, -1]),
        ("max_tool_calls", [1], [0]),
        ("truncation", ["auto", "disabled"], ["sometimes"]),
        (
            "metadata",
            [{}, {"k" * 64: "v" * 512}, {str(number): "" for number in range(16)}],
            [{"k" * 65: ""}, {"k": "v" * 513}, {str(number): "" for number in range(17)}],
        ),
    ],
)
def test_values_are_held_to_their_ranges(name, good, bad):
    for value in good:
        assert getattr(read(**{name: value}).fields, name) == value
    for value in bad:
        error = refusal_of(**{name: value})
        assert (error.param, error.code) == (name, "invalid_value")
        assert f"'{name}'" in error.message


@pytest.mark.parametrize(
    ("name", "value", "param", "words"),
    [
        ("model", 5, "model", "expected a string, got an integer"),
        ("input", {}, "input", "expected a string or an array, got an object"),
        ("stream", "yes", "stream", "expected a boolean, got a string"),
        ("temperature", "1", "temperature", "expected a number, got a string"),
        ("max_output_tokens", True, "max_output_tokens", "expected an integer, got a boolean"),
        ("max_output_tokens", 1.5, "max_output_tokens", "expected an integer, got a number"),
        ("tools", {}, "tools", "expected an array, got an object"),
        ("tool_choice", [], "tool_choice", "expected a string or an object, got an array"),
        ("include", ["a", 5], "include[1]", "expected a string, got an integer"),
        ("include", [None], "include[0]", "expected a string, got null"),
        ("metadata", {"a": 5}, "metadata", "expected a string, got an integer"),
        ("text", "json", "text", "expected an object, got a string"),
    ],
)
def test_types_are_refused_in_the_words_of_json(name, value, param, words):
    error = refusal_of(**{name: value})
    assert error.message == f"Invalid type for '{param}': {words}."
    assert (error.param, error.code) == (param, "invalid_type")


# ---------------------------------------------------------------- unknown fields


def test_unknown_fields_are_forwarded_and_null_ones_are_not():
    request = read(top_k=5, seed=None, chat_template_kwargs={"enable_thinking": False})
    assert request.extras == {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}}
    assert body_of(request)["top_k"] == 5


def test_a_strict_gateway_refuses_unknown_fields_unless_they_are_listed():
    error = refusal_of(RequestPolicy(strict=True), top_k=5)
    assert (error.param, error.code, error.message) == ("top_k", "unknown_parameter", "Unknown parameter: 'top_k'.")
    listed = RequestPolicy(strict=True, allow_fields=frozenset({"top_k"}))
    assert read(listed, top_k=5).extras == {"top_k": 5}


OPERATORS = ["request_id", "priority", "cache_salt", "kv_transfer_params", "ec_transfer_params"]


@pytest.mark.parametrize("name", [*OPERATORS, "previous_input_messages", "enable_response_messages"])
def test_the_operators_fields_are_the_operators(name):
    error = refusal_of(**{name: 1})
    assert (error.param, error.code) == (name, "unsupported_parameter")
    assert "allow_fields" in error.message
    assert read(RequestPolicy(allow_fields=frozenset({name})), **{name: 1}).extras == {name: 1}


def test_long_names_are_not_repeated_at_length():
    error = refusal_of(RequestPolicy(strict=True), **{"n" * 9999: 1})
    assert error.param == "n" * 64
    assert len(error.message) < 200


# ---------------------------------------------------------------- the body


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model": NaN}', "not valid JSON"),
        (b'{"a":"\xff"}', "not valid JSON"),
        (b"[" * 100_000, "nested deeper than 100 levels"),
        ('{"a":1}'.encode("utf-16"), "not valid JSON"),
        (b"[]", "must be a JSON object, not an array"),
        (b"null", "must be a JSON object, not null"),
        (b'"text"', "must be a JSON object, not a string"),
    ],
)
def test_a_body_that_is_no_object_is_refused(body, words):
    with pytest.raises(InvalidRequest, match=words) as refused:
        read_request(body, RequestPolicy())
    assert refused.value.code == "invalid_json"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_bounded_exactly(opening, closing):
    def nested(levels):
        return b'{"a":' + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"}"

    assert read_object(nested(5), max_depth=5)
    with pytest.raises(InvalidRequest, match="deeper than 5 levels") as refused:
        read_object(nested(6), max_depth=5)
    assert refused.value.code == "invalid_json"


def test_many_brackets_side_by_side_are_not_deep():
    body = json.dumps({"a": [[] for _ in range(50)], "b": "[[[[[[[[["}).encode()
    assert read_object(body, max_depth=3) == json.loads(body)


@given(st.recursive(st.integers(), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=12))
def test_depth_is_what_the_body_says(value):
    depth, inner = 1, [value]
    while any(isinstance(one, list) for one in inner):
        depth, inner = depth + 1, [member for one in inner if isinstance(one, list) for member in one]
    body = json.dumps({"a": value}).encode()
    assert read_object(body, max_depth=depth) == {"a": value}
    if depth > 1:
        with pytest.raises(InvalidRequest):
            read_object(body, max_depth=depth - 1)


def test_any_transport_may_bring_a_decoded_object():
    assert check_request({"model": "m", "input": "hi"}, RequestPolicy()).model == "m"


# ---------------------------------------------------------------- WebSockets


def check_frame(**given):
    return check_request({"model": "m", "input": "hi", **given}, RequestPolicy(), on_websocket=True)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED_ON_WEBSOCKETS))
def test_what_a_websocket_cannot_do_is_refused_by_name(name):
    with pytest.raises(InvalidRequest) as refused:
        check_frame(**{name: {**REFUSED, "background": True}[name]})
    assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")
    assert refused.value.message.startswith(f"'{name}' is not supported. ")


@pytest.mark.parametrize(
    ("given", "generate"),
    [
        ({}, True),
        ({"generate": None}, True),
        ({"generate": True}, True),
        ({"generate": False}, False),
        ({"prompt_cache_options": {"prewarm": True}}, False),
        ({"prompt_cache_options": {"prewarm": True}, "generate": True}, False),
        ({"prompt_cache_options": {"prewarm": False}, "generate": False}, True),
        ({"prompt_cache_options": {"prewarm": None}, "generate": False}, False),
        ({"prompt_cache_options": {"prewarm": 1}, "generate": True}, True),
        ({"prompt_cache_options": "prewarm", "generate": False}, False),
    ],
)
def test_a_warm_up_exists_on_websockets_only(given, generate):
    assert check_frame(**given).generate is generate
    assert {"generate", "stream_id"} & set(body_of(check_frame(**given))) == set()
    if given.get("generate") is not True:
        assert read(**given).generate is True


@pytest.mark.parametrize("empty", [None, []])
def test_a_warm_up_may_have_no_input(empty):
    assert check_frame(input=empty, generate=False).items == []
    with pytest.raises(InvalidRequest) as refused:
        check_frame(input=empty)
    assert refused.value.param == "input"
    assert refusal_of(input=empty, generate=False).param == "input"


def test_generate_is_true_or_false():
    with pytest.raises(InvalidRequest) as refused:
        check_frame(generate="no")
    assert refused.value.message == "Invalid type for 'generate': expected a boolean, got a string."


# ---------------------------------------------------------------- the response object


def respond(**given):
    return codec.decode(codec.encode(build_response(read(**given), response_id="resp_1", created_at=7)))


def test_a_created_response_is_complete():
    response = respond()
    assert schema().check_response(response) == []
    assert (response["id"], response["created_at"], response["status"]) == ("resp_1", 7, "in_progress")
    assert (response["model"], response["output"], response["usage"]) == ("m", [], None)
    assert response["text"] == {"format": {"type": "text"}}
    assert response["reasoning"] == {"effort": None, "summary": None}
    assert (response["tool_choice"], response["parallel_tool_calls"], response["store"]) == ("auto", True, True)


UNSEEN = {"include", "prompt_cache_options", "prompt_cache_retention", "service_tier", "reasoning"}
ECHOED = [*sorted({*FORWARDED} - UNSEEN), "max_tool_calls", "metadata", "previous_response_id", "store"]


@pytest.mark.parametrize("name", ECHOED)
def test_parameters_are_echoed(name):
    value = {**FORWARDED, **HANDLED}[name]
    assert respond(**{name: value})[name] == value


def test_what_is_echoed_is_completed():
    assert respond(reasoning={"effort": "low"})["reasoning"] == {"effort": "low", "summary": None}
    assert respond(text={"verbosity": "low", "format": None})["text"] == {
        "format": {"type": "text"},
        "verbosity": "low",
    }
    assert respond(service_tier="flex")["service_tier"] == "default"
    response = respond(**WITH_TOOLS)
    assert response["tools"] == [
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}
    ]
    assert (response["tool_choice"], response["parallel_tool_calls"]) == ("required", False)


def test_zero_is_echoed_as_zero():
    response = respond(temperature=0, top_p=0)
    assert (response["temperature"], response["top_p"]) == (0, 0)


# ---------------------------------------------------------------- half a surrogate pair


@pytest.mark.parametrize("name", ["temperature", "truncation", "stream", "tools", "max_output_tokens", "metadata"])
def test_half_a_surrogate_pair_in_place_of_a_value_is_refused_by_name(name):
    assert refusal_of(**{name: "\ud800"}).param == name


def test_half_a_surrogate_pair_passes_wherever_text_may_stand():
    request = read(**{"input": "\ud800", "\udfff": 1, "metadata": {"\ud800": "\ud800"}, "user": "\ud800"})
    assert request.items[0]["content"][0]["text"] == "\ud800"
    assert request.extras == {"\udfff": 1}
    assert (request.fields.metadata, request.fields.user) == ({"\ud800": "\ud800"}, "\ud800")
    assert refusal_of(RequestPolicy(strict=True), **{"\udfff": 1}).param == "\udfff"


def test_tools_of_the_effective_input_join_those_of_the_request():
    tool = {"type": "function", "name": "f", "parameters": {}}
    request = read_request(b'{"model":"m","input":"q"}', RequestPolicy())
    assert load_tools(request, [{"type": "message"}], RequestPolicy()) is request
    loaded = load_tools(request, [{"type": "additional_tools", "tools": [tool]}], RequestPolicy())
    assert loaded.toolset.offers.first.tools == [tool]
    assert loaded.items == request.items
    with pytest.raises(InvalidRequest, match="what the input loads"):
        load_tools(request, [{"type": "additional_tools", "tools": [tool, tool]}], RequestPolicy(max_tools=1))


@pytest.mark.parametrize("parent", ['"previous_response_id":"resp_1"', '"conversation":"conv_1"'])
def test_a_choice_may_name_what_the_history_brings(parent):
    tool = {"type": "function", "name": "f", "parameters": {}}
    chosen = '"tool_choice":{"type":"function","name":"f"}'
    request = read_request(f'{{"model":"m","input":"q",{chosen},{parent}}}'.encode(), RequestPolicy())
    with pytest.raises(InvalidRequest, match="'f', which is not among the tools"):
        load_tools(request, [], RequestPolicy())
    loaded = load_tools(request, [{"type": "additional_tools", "tools": [tool]}], RequestPolicy())
    assert loaded.toolset.offers.first.choice == {"type": "function", "name": "f"}
    with pytest.raises(InvalidRequest, match="'f', which is not among the tools"):
        read_request(f'{{"model":"m","input":"q",{chosen}}}'.encode(), RequestPolicy())


@pytest.mark.parametrize("choice", ["{}", '{"type":"function"}', '{"type":"code_interpreter"}', '"sometimes"'])
def test_no_history_mends_a_choice_that_is_none(choice):
    with pytest.raises(InvalidRequest):
        read_request(
            f'{{"model":"m","input":"q","tool_choice":{choice},"previous_response_id":"resp_1"}}'.encode(),
            RequestPolicy(),
        )


def test_a_background_response_is_stored():
    with pytest.raises(InvalidRequest, match="store: true") as refused:
        read_request(b'{"model": "m", "input": "hi", "background": true, "store": false}', RequestPolicy())
    assert refused.value.param == "store"
