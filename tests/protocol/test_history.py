"""Which calls wait, and which outputs may come."""

import pytest

from gateway.protocol.errors import InvalidRequest
from gateway.protocol.history import call_ids, drop_incomplete_calls, drop_orphaned_outputs, is_plain, match_outputs

USER = {"type": "message", "role": "user", "content": "hi"}


def call(call_id, **more):
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def output(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": "x"}


def custom(call_id):
    return {"type": "custom_tool_call", "call_id": call_id, "name": "s", "input": ""}


def custom_output(call_id):
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": "x"}


def typed(kind, call_id):
    return {"type": kind, "call_id": call_id}


@pytest.mark.parametrize(
    ("history", "new"),
    [
        ([], []),
        ([USER], [USER]),
        ([call("a")], [output("a"), USER]),
        ([call("a"), call("b")], [output("b"), output("a")]),
        ([], [call("a"), output("a"), custom("b"), custom_output("b")]),
        ([call("a"), output("a")], [call("a"), output("a")]),
        ([call("a"), custom("b")], [custom_output("b"), output("a")]),
        ([output("stray")], [USER]),
        ([typed("shell_call", "a")], [typed("shell_call_output", "a")]),
        ([typed("apply_patch_call", "a")], [typed("apply_patch_call_output", "a")]),
        ([typed("tool_search_call", "a")], [typed("tool_search_output", "a")]),
        ([typed("computer_call", "a")], [typed("computer_call_output", "a")]),
        ([typed("local_shell_call", "a")], [typed("local_shell_call_output", "a")]),
        ([typed("local_shell_call", "a")], [output("a")]),
        ([{"type": "tool_search_call"}], [{"type": "tool_search_output"}, USER]),
    ],
)
def test_every_call_is_answered_once(history, new):
    match_outputs(history, new)


@pytest.mark.parametrize(
    ("history", "new", "code", "words"),
    [
        ([call("a")], [USER], "missing_tool_output", "No tool output found for function call a."),
        ([custom("a")], [], "missing_tool_output", "No tool output found for custom tool call a."),
        ([call("a"), call("b")], [output("a")], "missing_tool_output", "function call b."),
        ([], [output("a")], "invalid_tool_output", "No tool call found for function call output with call_id a."),
        (
            [],
            [custom_output("a")],
            "invalid_tool_output",
            "No tool call found for custom tool call output with call_id a.",
        ),
        ([call("a"), output("a")], [output("a")], "invalid_tool_output", "call_id a already has an output."),
        ([call("a")], [output("a"), output("a")], "invalid_tool_output", "call_id a already has an output."),
        (
            [call("a")],
            [custom_output("a")],
            "invalid_tool_output",
            "Call a is a function call; answer it with a function_call_output.",
        ),
        ([custom("a")], [output("a")], "invalid_tool_output", "answer it with a custom_tool_call_output."),
        ([typed("shell_call", "a")], [USER], "missing_tool_output", "No tool output found for shell call a."),
        (
            [typed("apply_patch_call", "a")],
            [output("a")],
            "invalid_tool_output",
            "Call a is an apply patch call; answer",
        ),
        ([], [typed("shell_call_output", "a")], "invalid_tool_output", "for shell call output with call_id a."),
        ([], [output("a"), call("a")], "invalid_tool_output", "No tool call found"),
    ],
)
def test_what_does_not_match_is_refused(history, new, code, words):
    with pytest.raises(InvalidRequest) as refused:
        match_outputs(history, new)
    assert words in refused.value.message
    assert (refused.value.code, refused.value.param, refused.value.status) == (code, "input", 400)


def test_call_ids_are_not_repeated_at_length():
    with pytest.raises(InvalidRequest) as refused:
        match_outputs([], [output("x" * 9999)])
    assert len(refused.value.message) < 250


def test_calls_cut_short_are_not_shown_again():
    kept = [USER, call("a", status="completed"), call("c"), {"type": "message", "status": "incomplete"}]
    cut = [call("b", status="incomplete"), {**custom("d"), "status": "incomplete"}]
    assert drop_incomplete_calls([*kept, *cut]) == kept


def test_call_ids_in_use():
    assert call_ids([call("a"), output("a"), custom("b"), USER, {"type": "x", "call_id": None}]) == {"a", "b"}


def test_outputs_without_their_call_are_not_shown():
    call = {"type": "function_call", "call_id": "a"}
    output = {"type": "function_call_output", "call_id": "a", "output": ""}
    other = {"type": "custom_tool_call_output", "call_id": "a", "output": ""}
    search = {"type": "tool_search_output"}
    message = {"type": "message"}
    history = [output, message, call, other, output, output, search, call]
    assert drop_orphaned_outputs(history) == [message, call, output, search, call]
    assert drop_orphaned_outputs([]) == []


def test_approvals_of_what_is_not_there_are_not_shown():
    asked, answer = (
        typed("mcp_approval_request", None) | {"id": "a"},
        {"type": "mcp_approval_response", "approve": True},
    )
    first, other = {**answer, "approval_request_id": "a"}, {**answer, "approval_request_id": "b"}
    assert drop_orphaned_outputs([first, asked, first, first, other, USER]) == [asked, first, USER]


@pytest.mark.parametrize(
    ("kinds", "plain"),
    [
        ([], True),
        (["message", "reasoning"], True),
        (["message", "function_call"], False),
        (["item_reference"], False),
        (["compaction", "message"], False),
        (["additional_tools"], False),
        (["mcp_approval_response"], False),
    ],
)
def test_only_words_are_plain(kinds, plain):
    assert is_plain([{"type": kind} for kind in kinds]) is plain
