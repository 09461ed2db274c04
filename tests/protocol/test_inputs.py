"""Input items: what is accepted, made uniform, or refused by its path."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.errors import InvalidRequest
from gateway.protocol.inputs import REQUIRED_TEXT, json_type, read_input
from gateway.protocol.items import INPUT_TYPES


def read(value, **options):
    return read_input(value, **{"max_items": 10, "remote_images": False, **options})


def call(**more):
    return {"type": "function_call", "name": "f", "arguments": "", **more}


def parts(*content):
    return {"role": "user", "content": list(content)}


def test_text_is_one_message_and_nothing_is_no_item():
    assert read("hi") == [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    assert read(None) == read([]) == []


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_the_type_of_a_message_may_be_left_out(role):
    message = {"role": role, "content": "hi", "phase": "commentary"}
    assert read([message, {"type": None, **message}]) == [{"type": "message", **message}] * 2


def test_the_type_of_a_reference_may_be_left_out():
    assert (
        read([{"id": "msg_1"}, {"type": "item_reference", "id": "msg_1"}])
        == [{"type": "item_reference", "id": "msg_1"}] * 2
    )


def test_null_fields_are_no_fields():
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": None,
        "encrypted_content": None,
        "status": None,
    }
    assert read([item]) == [{"type": "reasoning", "id": "rs_1", "summary": []}]


PART_LISTS = [
    [],
    [
        {"type": "input_text", "text": "a"},
        {"type": "output_text", "text": "", "annotations": []},
        {"type": "text", "text": "b"},
    ],
    [{"type": "refusal", "refusal": "no"}],
    [{"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}],
    [{"type": "input_image", "image_url": "DATA:image/png;base64,AA==", "file_id": None}],
    [{"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,AA=="}],
    [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}],
]


@pytest.mark.parametrize("parts", PART_LISTS)
def test_content_parts_pass(parts):
    given = [
        {"type": "message", "role": "user", "content": parts},
        {"type": "function_call_output", "call_id": "c", "output": parts},
        {"type": "custom_tool_call_output", "call_id": "c", "output": parts},
        {"type": "reasoning", "summary": parts, "content": parts},
    ]
    assert read(given) == given


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
        {"type": "custom_tool_call", "call_id": "c", "name": "s", "input": ""},
        {"type": "function_call_output", "call_id": "c", "output": "text"},
        {"type": "reasoning", "summary": "text", "content": "text"},
        {"type": "reasoning"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c", "output": []},
        {"type": "local_shell_call", "call_id": "c", "action": {}},
        {"type": "local_shell_call_output", "call_id": "c", "output": "text"},
        {"type": "apply_patch_call", "call_id": "c", "operation": {}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"},
        {"type": "computer_call", "call_id": "c"},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
        {"type": "tool_search_output", "tools": []},
        {"type": "additional_tools", "role": "developer", "tools": []},
        *(
            {"type": kind}
            for kind in sorted(INPUT_TYPES - REQUIRED_TEXT.keys())
            if kind.endswith(("_call", "_list_tools"))
        ),
    ],
)
def test_replayed_items_pass(item):
    assert read([item]) == [item]


URL = "https://example.org/cat.png"


def screen(**output):
    return {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", **output}}


def test_an_output_of_a_local_shell_may_name_its_call_by_its_id():
    item = {"type": "local_shell_call_output", "id": "c", "output": "text"}
    assert read([item]) == [{**item, "call_id": "c"}]
    assert read([{**item, "call_id": "d"}]) == [{**item, "call_id": "d"}]


@pytest.mark.parametrize(("kind", "key"), [("input_image", "image_url"), ("input_file", "file_url")])
def test_remote_media_pass_only_where_the_operator_says_so(kind, key):
    message = {"type": "message", "role": "user", "content": [{"type": kind, key: URL}]}
    assert read([message], remote_images=True) == [message]
    with pytest.raises(InvalidRequest, match="remote_images") as refused:
        read([message])
    assert (refused.value.param, refused.value.code) == (f"input[0].content[0].{key}", "unsupported_parameter")
    assert "example.org" not in refused.value.message


@pytest.mark.parametrize(
    ("item", "param", "code", "words"),
    [
        ("text", "", "invalid_type", "expected an object, got a string"),
        (5, "", "invalid_type", "expected an object, got a number"),
        ({}, ".type", "invalid_value", "is missing"),
        ({"type": 5}, ".type", "invalid_value", "is missing"),
        ({"type": "magic"}, ".type", "invalid_value", "'magic', which is not an input item type"),
        ({"type": "message", "content": "a"}, ".role", "invalid_value", "assistant, developer, system, user"),
        ({"role": ["user"], "content": "a"}, ".role", "invalid_value", "must be one of"),
        ({"role": "tool", "content": "a"}, ".role", "invalid_value", "must be one of"),
        ({"role": "user"}, ".content", "invalid_type", "a string or a list of parts, got null or nothing"),
        ({"role": "user", "content": 5}, ".content", "invalid_type", "a list of parts, got a number"),
        (parts("a"), ".content[0]", "invalid_type", "an object, got a string"),
        (parts({}), ".content[0].type", "invalid_value", "is missing"),
        (parts({"type": ["input_text"]}), ".content[0].type", "invalid_value", "is missing"),
        (parts({"type": "image_url"}), ".content[0].type", "invalid_value", "'image_url'"),
        (parts({"type": "input_text"}), ".content[0].text", "invalid_type", "a string"),
        (parts({"type": "refusal", "text": "a"}), ".content[0].refusal", "invalid_type", "a string"),
        (parts({"type": "input_image", "file_id": "f"}), ".content[0].file_id", "unsupported_parameter", "data URL"),
        (parts({"type": "input_file", "file_id": "f"}), ".content[0].file_id", "unsupported_parameter", "no files"),
        (parts({"type": "input_image", "image_url": {}}), ".content[0].image_url", "invalid_type", "an object"),
        (call(), ".call_id", "invalid_type", "a non-empty string, got null"),
        (call(call_id=""), ".call_id", "invalid_type", "non-empty"),
        (call(call_id="c", arguments={}), ".arguments", "invalid_type", "a string, got an object"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f"}, ".input", "invalid_type", "a string"),
        ({"type": "function_call_output", "output": "x"}, ".call_id", "invalid_type", "non-empty"),
        ({"type": "function_call_output", "call_id": "c"}, ".output", "invalid_type", "a list of parts"),
        ({"type": "item_reference"}, ".id", "invalid_type", "a string"),
        ({"type": "compaction"}, ".encrypted_content", "invalid_type", "a string"),
        ({"type": "shell_call", "call_id": "c"}, ".action", "invalid_type", "an object, got null"),
        ({"type": "shell_call_output", "call_id": "c", "output": "x"}, ".output", "invalid_type", "got a string"),
        ({"type": "local_shell_call_output", "output": "x"}, ".call_id", "invalid_type", "non-empty"),
        ({"type": "local_shell_call_output", "id": 5, "output": "x"}, ".call_id", "invalid_type", "got a number"),
        ({"type": "apply_patch_call_output", "call_id": "c"}, ".status", "invalid_type", "a string"),
        ({"type": "tool_search_output", "call_id": "c", "tools": {}}, ".tools", "invalid_type", "a list"),
        (screen(file_id="f"), ".output.file_id", "unsupported_parameter", "no files"),
        (screen(image_url=URL), ".output.image_url", "unsupported_parameter", "remote_images"),
        ({"type": "reasoning", "summary": [5]}, ".summary[0]", "invalid_type", "an object, got a number"),
        ({"type": "reasoning", "content": True}, ".content", "invalid_type", "a list of parts, got a boolean"),
    ],
)  # fmt: skip
def test_refusals_name_the_path(item, param, code, words):
    with pytest.raises(InvalidRequest) as refused:
        read([{"role": "user", "content": "fine"}, item])
    assert words in refused.value.message
    assert (refused.value.param, refused.value.code) == (f"input[1]{param}", code)


def test_too_many_items_are_refused():
    with pytest.raises(InvalidRequest, match="11 items; at most 10") as refused:
        read([{"id": "x"}] * 11)
    assert (refused.value.param, refused.value.code) == ("input", "array_above_max_length")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null or nothing"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("", "a string"),
        ([], "an array"),
        ({}, "an object"),
    ],
)
def test_types_are_named_as_json_names_them(value, name):
    assert json_type(value) == name


junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(sorted(INPUT_TYPES))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "role", "content", "id", "call_id", "text", "output", "image_url"]),
            inner,
            max_size=4,
        ),
    ),
)


@given(st.lists(junk, max_size=3))
def test_any_list_is_read_or_refused(value):
    with contextlib.suppress(InvalidRequest):
        items = read(value)
        assert len(items) == len(value)
        assert all(item["type"] in INPUT_TYPES and None not in item.values() for item in items)
