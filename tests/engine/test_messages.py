import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.messages import build_messages, build_text
from gateway.protocol.items import FunctionCall, Message, OutputText, Reasoning, ReasoningText, Refusal, SummaryText

PICTURE = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "parts": [{"type": "text", "content": "hi"}]}),
        (
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PICTURE}],
            },
            {"role": "user", "parts": [{"type": "text", "content": "see"}, {"type": "input_image"}]},
        ),
        (
            Message(id="msg_1", status="completed", content=[OutputText(text="yes"), Refusal(refusal="no")]),
            {"role": "assistant", "parts": [{"type": "text", "content": "yes"}, {"type": "text", "content": "no"}]},
        ),
        (
            Reasoning(id="rs_1", status="completed", summary=[], content=[ReasoningText(text="hm")]),
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]},
        ),
        (
            Reasoning(id="rs_1", status="completed", summary=[SummaryText(text="short")]),
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "short"}]},
        ),
        (
            FunctionCall(id="fc_1", status="completed", call_id="call_1", name="f", arguments="{}"),
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "call_1", "name": "f", "arguments": "{}"}]},
        ),
        (
            {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": "free"},
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "call_2", "name": "g", "arguments": "free"}]},
        ),
        (
            {"type": "function_call_output", "call_id": "call_1", "output": "7"},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "7"}]},
        ),
        (
            {"type": "shell_call", "call_id": "call_1", "action": {"commands": ["ls"]}},
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "id": "call_1", "name": "shell", "arguments": {"commands": ["ls"]}}],
            },
        ),
        (
            {"type": "computer_call", "call_id": "call_1"},
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "id": "call_1", "name": "computer", "arguments": None}],
            },
        ),
        (
            {"type": "computer_call_output", "call_id": "call_1", "output": {"type": "screen", "image_url": PICTURE}},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": {"type": "screen"}}]},
        ),
        (
            {"type": "tool_search_output", "call_id": "call_1", "tools": []},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": []}]},
        ),
        ({"type": "compaction", "encrypted_content": "x"}, {"role": "assistant", "parts": [{"type": "compaction"}]}),
    ],
)  # fmt: skip
def test_an_item_becomes_a_message_of_the_conventions(item, expected):
    assert build_messages([item]) == [expected]


def test_what_is_the_same_for_all_is_added_to_each():
    assert [message["finish_reason"] for message in build_messages([{"content": "a"}] * 2, finish_reason="stop")] == [
        "stop",
        "stop",
    ]


def test_instructions_are_parts():
    assert build_text("Be brief.") == [{"type": "text", "content": "Be brief."}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KINDS = ["message", "reasoning", "function_call", "custom_tool_call", "function_call_output", "else", 7, None]
MEMBERS = dict.fromkeys(("role", "content", "summary", "call_id", "name", "arguments", "input", "output"), JSON)


@given(st.fixed_dictionaries({}, optional={"type": st.sampled_from(KINDS), **MEMBERS}))
def test_whatever_a_server_calls_an_item_becomes_a_message(item):
    (message,) = build_messages([item])
    assert set(message) == {"role", "parts"}
    assert all("type" in part for part in message["parts"])
