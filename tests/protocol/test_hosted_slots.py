"""Items of the gateway's own tools as engines word their calls in unusual ways."""

import pytest
from harness.tools import tool
from property.engine import Client, completed, done

from gateway.protocol.citations import Source
from gateway.protocol.compaction_slot import CompactionSlot
from gateway.protocol.errors import UpstreamError
from gateway.protocol.events import Compacting

LOOK = tool("look")


def listen(*events, most=None):
    client = Client()
    client.turn.host([LOOK], most)
    round_ = client.turn.open_round()
    for event in events:
        client.ingest(round_, event)
    return client, round_


def called(name="mcp__s__look", **fields):
    return {"type": "function_call", "id": "fc_1", "call_id": "c", "name": name, **fields}


def test_a_call_without_arguments_has_the_empty_text():
    client, _ = listen(done(called(arguments=""), 0), completed())
    assert client.told[-1]["type"] == "response.mcp_call_arguments.done"
    assert client.told[-1]["arguments"] == ""


def test_a_call_that_is_named_too_late_cannot_be_run():
    added = {"type": "response.output_item.added", "output_index": 0, "item": called("", arguments="")}
    with pytest.raises(UpstreamError, match="too late"):
        listen(added, done(called(arguments="{}"), 0))


def test_a_call_whose_arguments_never_came_has_the_empty_text():
    added = {"type": "response.output_item.added", "output_index": 0, "item": called()}
    client, _ = listen(added, completed())
    assert client.told[-1]["type"] == "response.mcp_call_arguments.done"
    assert client.told[-1]["arguments"] == ""


def test_a_call_beyond_the_budget_that_was_cut_off_is_not_heard_of():
    added = {
        "type": "response.output_item.added",
        "output_index": 1,
        "item": {**called(), "id": "fc_2", "call_id": "d"},
    }
    client, round_ = listen(done(called(arguments="{}"), 0), added, completed(status="incomplete"), most=1)
    assert [item["type"] for item in client.turn.output] == ["mcp_call"]
    assert len(round_.slots) == 1


def test_sources_of_several_calls_add_up():
    client, _ = listen()
    client.turn.permit_citing([Source(1, "https://one.example", "One")])
    client.turn.permit_citing([Source(2, "https://two.example", "Two")])
    round_ = client.turn.open_round()
    text = {"type": "output_text", "text": "See [1] and [2].", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
    for event in (done(message, 0), completed()):
        client.ingest(round_, event)
    (part,) = client.finish().output[-1]["content"]
    assert [cited["url"] for cited in part["annotations"]] == ["https://one.example", "https://two.example"]


def test_a_compaction_is_told_once():
    slot = CompactionSlot("cmp_1", "sealed")
    assert [type(event) for event in slot.flush()] == [Compacting]
    assert slot.flush() == []
