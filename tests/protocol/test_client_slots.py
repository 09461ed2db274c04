"""Calls of the API's client tools while a model writes them."""

import json

import pytest
from property.engine import CALL, Client, added, completed, done, event, listen, settled, spell, whole

from gateway.protocol.client_tools import NO_PATH
from gateway.protocol.errors import UpstreamError

PATCH = {"type": "create_file", "path": "a.txt", "diff": "+hi"}


def call(name, arguments):
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": f"call_{name}", "name": name, "arguments": written}


def names(client):
    return [told["type"].removeprefix("response.") for told in client.told[2:-1]]


def test_shell_commands_are_told_one_by_one_once_they_are_known():
    client = settled(listen(*spell(call("shell", {"commands": ["ls", ""]}), 0, lambda text: [text[:9], text[9:]])))
    assert names(client) == [
        "output_item.added",
        "shell_call_command.added", "shell_call_command.delta", "shell_call_command.done",
        "shell_call_command.added", "shell_call_command.done",
        "output_item.done",
    ]  # fmt: skip
    assert client.told[2]["item"]["action"]["commands"] == []
    (item,) = client.output
    assert item == {
        "type": "shell_call",
        "id": item["id"],
        "call_id": "call_shell",
        "status": "completed",
        "action": {"commands": ["ls", ""], "timeout_ms": None, "max_output_length": None},
    }
    assert item["id"].startswith("sh_")


@pytest.mark.parametrize(
    ("name", "prefix", "kind"),
    [
        ("local_shell", "lsh", "local_shell_call"),
        ("apply_patch", "apc", "apply_patch_call"),
        ("tool_search", "tsc", "tool_search_call"),
        ("computer", "cu", "computer_call"),
        ("computer_use_preview", "cu", "computer_call"),
    ],
)
def test_other_calls_are_only_added_and_done(name, prefix, kind):
    client = settled(listen(*spell(call(name, PATCH), 0, whole)))
    assert names(client) == ["output_item.added", "output_item.done"]
    assert client.output[0]["type"] == kind
    assert client.output[0]["id"].startswith(f"{prefix}_")


def test_a_call_cut_off_is_incomplete():
    events = spell(call("shell", '{"commands": ["ls'), 0, whole)[:-2]
    client = settled(listen(*events, end=completed(status="incomplete")))
    (item,) = client.output
    assert (item["type"], item["status"]) == ("shell_call", "incomplete")


@pytest.mark.parametrize("before", [[], [done({"type": "message", "content": "Hi"}, 0)]])
def test_a_patch_cut_off_is_no_call_yet_for_its_item_has_no_form_for_that(before):
    events = spell(call("apply_patch", '{"type": "create_fi'), 1, whole)
    client = settled(listen(*before, *events, end=completed(status="incomplete")))
    assert [item["status"] for item in client.output] == ["completed"] * len(before)
    assert client.told[-1]["type"] == "response.incomplete"


def test_a_whole_patch_stays_a_call_where_the_round_is_cut_off():
    client = settled(listen(*spell(call("apply_patch", PATCH), 0, whole), end=completed(status="incomplete")))
    (item,) = client.output
    assert (item["operation"], item["status"]) == (PATCH, "completed")


def test_a_patch_is_announced_with_its_file():
    client = settled(listen(*spell(call("apply_patch", PATCH), 0, whole)))
    assert client.told[2]["item"]["operation"] == {**PATCH, "diff": ""}


def test_a_patch_that_names_no_file_is_told_when_the_round_has_ended_well():
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    client = settled(listen(*spell(call("apply_patch", "+hi"), 0, whole), done(message, 1)))
    assert client.output[0]["operation"] == {"type": "update_file", "path": NO_PATH, "diff": "+hi"}
    assert client.output[1]["content"][0]["text"] == "Hi"


def test_a_patch_whose_stream_breaks_off_is_not_shown():
    client = Client()
    round_ = client.turn.open_round()
    for one in spell(call("apply_patch", PATCH), 0, whole)[:-1]:
        client.ingest(round_, one)
    client.fail(UpstreamError("gone"), round_)
    assert client.output == []
    assert client.faults() == []


def test_what_breaks_off_shows_no_arguments():
    client = Client()
    round_ = client.turn.open_round()
    for one in spell(call("shell", {"commands": ["ls"]}), 0, whole)[:-1]:
        client.ingest(round_, one)
    client.fail(UpstreamError("gone"), round_)
    assert client.output[0]["action"]["commands"] == []
    assert client.faults() == []


def test_a_call_without_a_name_is_still_a_fault():
    with pytest.raises(UpstreamError, match="without a name"):
        listen(added({**CALL, "name": ""}, 0))


def test_events_of_other_calls_pass_by():
    client = settled(
        listen(*spell(call("shell", {"commands": ["ls"]}), 0, whole), event("function_call_arguments.delta", delta="x"))
    )
    assert client.output[0]["action"]["commands"] == ["ls"]
