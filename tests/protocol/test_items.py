import pytest
from conformance.verdict import schema

from gateway.protocol import codec
from gateway.protocol.items import (
    CLIENT_CALLS,
    CLIENT_OUTPUTS,
    INPUT_TYPES,
    CustomToolCall,
    FunctionCall,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    Refusal,
    SummaryText,
)

ITEMS = [
    Message(id="msg_1", status="completed", content=[OutputText(text="a"), Refusal(refusal="b")], phase="commentary"),
    Reasoning(id="rs_1", status="completed", summary=[SummaryText(text="s")], content=[ReasoningText(text="t")]),
    FunctionCall(id="fc_1", status="incomplete", call_id="c", name="n", arguments="{}", namespace="ns"),
    CustomToolCall(id="ctc_1", status="in_progress", call_id="c", name="n", input="free"),
]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_items_are_worded_as_published(item):
    assert schema().check_item(codec.decode(codec.encode(item))) == []


def test_what_was_never_said_is_absent():
    assert codec.decode(codec.encode(Reasoning(id="rs_1", status="completed", summary=[]))) == {
        "type": "reasoning", "id": "rs_1", "status": "completed", "summary": [],
    }  # fmt: skip
    assert "phase" not in codec.decode(codec.encode(Message(id="msg_1", status="completed", content=[])))
    assert "namespace" not in codec.decode(
        codec.encode(FunctionCall(id="f", status="completed", call_id="c", name="n", arguments=""))
    )


def test_everything_that_can_be_output_can_be_replayed():
    assert set(schema()._items) <= INPUT_TYPES | {"program", "program_output"}
    assert {*CLIENT_CALLS, *CLIENT_CALLS.values()} <= INPUT_TYPES


def test_calls_and_outputs_name_each_other():
    assert {CLIENT_OUTPUTS[output]: output for output in CLIENT_OUTPUTS} == CLIENT_CALLS
