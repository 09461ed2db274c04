"""Items of the gateway's own tools as engines word their calls in unusual ways."""

import pytest
from harness.tools import tool
from property.engine import Client, completed, done

from gateway.protocol.errors import UpstreamError

LOOK = tool("look")


def listen(*events):
    client = Client()
    client.turn.host([LOOK], None)
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
