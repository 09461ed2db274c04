import pytest

from gateway.protocol.errors import InvalidRequest
from gateway.upstream.chat.messages import write_messages


def call(call_id: str, **more) -> dict:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": '{"a":1}', **more}


def output(call_id: str, told="done") -> dict:
    return {"type": "function_call_output", "call_id": call_id, "output": told}


def said(text: str) -> dict:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def thought(text: str) -> dict:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def chat_call(call_id: str) -> dict:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def test_a_text_is_a_message_of_the_user():
    assert write_messages(None, "hi") == [user("hi")]


def test_instructions_and_the_first_system_messages_are_one():
    source = [{"role": "developer", "content": "B"}, {"role": "system", "content": "C"}, user("hi")]
    assert write_messages("A", source) == [{"role": "system", "content": "A\n\nB\n\nC"}, user("hi")]


def test_a_later_system_message_stays_where_it_is():
    source = [user("hi"), {"role": "developer", "content": [{"type": "input_text", "text": "B"}]}]
    assert write_messages("A", source)[1:] == [user("hi"), {"role": "system", "content": "B"}]


def test_a_system_message_with_an_image_is_not_joined():
    picture = {"role": "system", "content": [{"type": "input_image", "image_url": "data:x"}]}
    assert [message["role"] for message in write_messages("A", [picture])] == ["system", "system"]


def test_thought_text_and_parallel_calls_are_one_message():
    source = [user("hi"), thought("T"), said("S"), call("1"), call("2"), output("1"), output("2"), said("end")]
    assert write_messages(None, source) == [
        user("hi"),
        {"role": "assistant", "content": "S", "reasoning_content": "T", "tool_calls": [chat_call("1"), chat_call("2")]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
        {"role": "tool", "tool_call_id": "2", "content": "done"},
        {"role": "assistant", "content": "end"},
    ]


def test_what_stands_between_calls_and_their_outputs_joins_them():
    # A chat wants outputs right behind the message with the calls.
    source = [thought("T"), call("1"), thought("U"), said("S"), call("2"), output("1"), output("2")]
    first, *rest = write_messages(None, source)
    assert first["content"] == "S"
    assert first["reasoning_content"] == "T\nU"
    assert [one["id"] for one in first["tool_calls"]] == ["1", "2"]
    assert [message["role"] for message in rest] == ["tool", "tool"]


def test_calls_without_text_have_no_content():
    assert write_messages(None, [call("1")]) == [{"role": "assistant", "content": None, "tool_calls": [chat_call("1")]}]


def test_calls_of_two_rounds_are_two_messages():
    roles = [message["role"] for message in write_messages(None, [call("1"), output("1"), call("2"), output("2")])]
    assert roles == ["assistant", "tool", "assistant", "tool"]


def test_two_answers_in_a_row_stay_two():
    assert [message["content"] for message in write_messages(None, [said("a"), said("b")])] == ["a", "b"]
    two = write_messages(None, [said("a"), thought("T"), said("b")])
    assert two[1] == {"role": "assistant", "content": "b", "reasoning_content": "T"}


def test_reasoning_that_cannot_be_read_is_left_out():
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    assert write_messages(None, [user("hi"), sealed]) == [user("hi")]


def test_a_call_without_arguments_has_an_empty_object():
    (message,) = write_messages(None, [call("1", arguments="")])
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_parts():
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_image", "image_url": "data:image/png;base64,BB"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,CC"},
        {"type": "input_audio", "input_audio": {"data": "DD", "format": "wav"}},
    ]
    (message,) = write_messages(None, [{"type": "message", "role": "user", "content": parts}])
    assert message["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,BB"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,CC"}},
        {"type": "input_audio", "input_audio": {"data": "DD", "format": "wav"}},
    ]


def test_a_refusal_in_history_is_what_was_said():
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert write_messages(None, [item]) == [{"role": "assistant", "content": "No."}]


@pytest.mark.parametrize(
    ("told", "content"),
    [
        ("text", "text"),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "ab"),
        ([], ""),
        (
            [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}],
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
        ),
    ],
)
def test_outputs(told, content):
    assert write_messages(None, [call("1"), output("1", told)])[1]["content"] == content


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"type": "image_generation_call"}, "image_generation_call"),
        ({"role": "user", "content": [{"type": "input_file", "file_url": "http://a/b"}]}, "input_file"),
        ({"role": "user", "content": [{"type": "hologram"}]}, "hologram"),
    ],
)
def test_what_has_no_form_is_refused_by_name(item, named):
    with pytest.raises(InvalidRequest, match=named) as refused:
        write_messages(None, [item])
    assert refused.value.param == "input"
