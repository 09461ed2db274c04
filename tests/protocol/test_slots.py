"""Items that are not plain text: carried calls, hosted tools, unknown types."""

import pytest
from property.engine import CARRIED, MESSAGE, Client, added, completed, done, event, listen, settled, spell, whole

from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.ledger import charge

SEARCH = {"type": "web_search_call", "id": "ws", "status": "in_progress", "action": {"type": "search"}}


def test_a_carried_custom_call_is_told_when_its_input_is_known():
    call = {"type": "function_call", "call_id": "c", "name": CARRIED, "arguments": '{"input": "ls\\n"}'}
    client = settled(listen(*spell(call, 0, lambda whole: [whole[:7], whole[7:]])))
    assert [told["type"].removeprefix("response.") for told in client.told[2:-1]] == [
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
    ]  # fmt: skip
    (item,) = client.output
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", CARRIED, "ls\n")
    assert item["id"].startswith("ctc_")


def test_a_carried_call_closed_behind_another_item_is_unwrapped_once():
    call = {"type": "function_call", "call_id": "c", "name": CARRIED, "arguments": '{"input": "ls"}'}
    client = settled(listen(added({"type": "message"}, 0), *spell(call, 1, whole)))
    assert client.output[1]["input"] == "ls"


def test_a_carried_call_that_breaks_off_shows_no_raw_arguments():
    call = {"type": "function_call", "call_id": "c", "name": CARRIED, "arguments": '{"input": "ls"}'}
    client = Client()
    round_ = client.turn.open_round()
    for one in spell(call, 0, whole)[:2]:
        client.ingest(round_, one)
    client.fail(ResourceLimitExceeded("max_retained_bytes", 1), round_)
    assert (client.output[0]["input"], client.output[0]["status"]) == ("", "incomplete")
    assert client.faults() == []


def test_hosted_events_are_told_with_our_id_and_index():
    said = [
        added(SEARCH, 3),
        event("web_search_call.searching", item_id="ws", output_index=3),
        done({**SEARCH, "status": "completed"}, 3),
    ]
    client = settled(listen(*said))
    searching = next(told for told in client.told if told["type"].endswith("searching"))
    assert (searching["item_id"], searching["output_index"]) == (client.output[0]["id"], 0)


def test_hosted_events_wait_for_the_item_before_and_count_while_they_wait():
    progress = event("web_search_call.searching", item_id="ws", output_index=1)
    client = Client()
    round_ = client.turn.open_round()
    for one in (added({"type": "message"}, 0), added(SEARCH, 1)):
        client.ingest(round_, one)
    before, heard = client.turn.ledger.total, len(client.told)
    client.ingest(round_, progress)
    assert len(client.told) == heard
    assert client.turn.ledger.total == before + charge(progress)
    for one in (done(MESSAGE, 0), done({**SEARCH, "status": "completed"}, 1), completed()):
        client.ingest(round_, one)
    settled(client.finish())
    assert client.told[-3]["type"] == progress["type"]


def test_hosted_text_counts_until_the_snapshot_replaces_it():
    code = {"type": "code_interpreter_call", "id": "ci", "status": "in_progress", "container_id": "c", "code": ""}
    client = Client()
    round_ = client.turn.open_round()
    client.ingest(round_, added(code, 0))
    before = client.turn.ledger.total
    client.ingest(round_, event("code_interpreter_call_code.delta", item_id="ci", output_index=0, delta="é"))
    assert client.turn.ledger.total == before + 2
    client.ingest(round_, done({**code, "status": "completed", "code": "é"}, 0))
    client.ingest(round_, completed())
    client.finish()
    assert client.turn.ledger.total == charge(client.output[0])


@pytest.mark.parametrize(
    "events", [[], [added(MESSAGE, 0)], [added(SEARCH, 0), done({**SEARCH, "status": "completed"}, 0)]]
)
def test_hosted_events_for_anything_else_are_dropped(events):
    stray = event("web_search_call.searching", output_index=0)
    assert [told["type"] for told in listen(*events, stray).told] == [told["type"] for told in listen(*events).told]


@pytest.mark.parametrize(
    ("status", "final"),
    [
        ("in_progress", "completed"),
        ("searching", "completed"),
        (None, "completed"),
        (5, "completed"),
        ("failed", "failed"),
    ],
)
def test_a_hosted_item_ends_with_a_final_status(status, final):
    assert settled(listen(added({**SEARCH, "status": status}, 0))).output[0]["status"] == final


def test_items_of_unknown_types_are_carried_with_our_id():
    strange = {"type": "hologram", "id": "theirs", "data": {"a": [None]}}
    client = listen(added(strange, 0), done(strange, 0))
    assert client.output == [{**strange, "id": client.output[0]["id"], "status": "completed"}]
    assert client.output[0]["id"].startswith("item_")


@pytest.mark.parametrize("arguments", ['{"input": ""}', ""])
def test_a_carried_call_may_have_no_input(arguments):
    call = {"type": "function_call", "call_id": "c", "name": CARRIED, "arguments": arguments}
    client = settled(listen(*spell(call, 0, whole)))
    assert client.output[0]["input"] == ""
    assert client.deltas == {}
