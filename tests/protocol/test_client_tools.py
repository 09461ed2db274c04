"""Tools of the API that clients run: what a model is offered, and what it may write."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.client_tool import read_arguments
from gateway.protocol.client_tools import CLIENT_TOOLS, NO_PATH, find_client_tool
from gateway.protocol.ledger import charge

SHELL, LOCAL, PATCH, SEARCH, COMPUTER, PREVIEW = CLIENT_TOOLS.values()


@pytest.mark.parametrize(
    ("tool", "carried"),
    [
        ({"type": "shell"}, True),
        ({"type": "shell", "environment": None}, True),
        ({"type": "shell", "environment": {"type": "local"}}, True),
        ({"type": "shell", "environment": {"type": "container_auto"}}, False),
        ({"type": "shell", "environment": "local"}, False),
        ({"type": "local_shell"}, True),
        ({"type": "apply_patch"}, True),
        ({"type": "tool_search", "execution": "client"}, True),
        ({"type": "tool_search", "execution": "server"}, False),
        ({"type": "tool_search"}, False),
        ({"type": "computer"}, True),
        ({"type": "computer_use_preview"}, True),
        ({"type": "code_interpreter"}, False),
    ],
)
def test_only_what_the_client_runs_is_carried(tool, carried):
    assert (find_client_tool(tool) is not None) == carried


@pytest.mark.parametrize("kind", CLIENT_TOOLS)
def test_what_a_model_is_offered_can_be_encoded(kind):
    description, parameters = CLIENT_TOOLS[kind].describe({"type": kind})
    assert description
    assert parameters["type"] == "object"
    assert set(parameters.get("required", [])) <= set(parameters["properties"])
    json.dumps(parameters)


def test_the_clients_words_reach_the_model():
    skills = [{"name": "pdf", "path": "/skills/pdf", "description": "Reads PDFs."}, "junk"]
    description, _ = SHELL.describe({"type": "shell", "environment": {"type": "local", "skills": skills}})
    assert "- pdf (/skills/pdf): Reads PDFs." in description
    assert "Skills" not in SHELL.describe({"type": "shell", "environment": {"type": "local", "skills": 5}})[0]
    own = {"type": "object", "properties": {"q": {"type": "string"}}}
    assert SEARCH.describe({"description": "Finds.", "parameters": own}) == ("Finds.", own)
    assert SEARCH.describe({"description": "", "parameters": None}) == (SEARCH.description, SEARCH.parameters)
    assert "1024x768 pixels" in PREVIEW.describe({"display_width": 1024, "display_height": 768})[0]


def action(*commands, timeout_ms=None, max_output_length=None):
    return {"action": {"commands": list(commands), "timeout_ms": timeout_ms, "max_output_length": max_output_length}}


@pytest.mark.parametrize(
    ("arguments", "members"),
    [
        ('{"commands": ["ls", "pwd"]}', action("ls", "pwd")),
        (
            '{"commands": ["ls"], "timeout_ms": 5, "max_output_length": 7.0}',
            action("ls", timeout_ms=5, max_output_length=7),
        ),
        ('{"commands": ["ls"], "timeout_ms": "5", "max_output_length": -1}', action("ls", timeout_ms=5)),
        ('{"commands": ["ls"], "timeout_ms": true, "max_output_length": "soon"}', action("ls")),
        ('{"commands": "ls"}', action("ls")),
        ('{"command": "ls"}', action("ls")),
        ('["ls", "pwd"]', action("ls", "pwd")),
        ('"ls"', action("ls")),
        ("ls -l", action("ls -l")),
        ('{"commands": ["ls', action('{"commands": ["ls')),
        ('{"commands": [5]}', action('{"commands": [5]}')),
        ("", action("")),
        ("5", action("5")),
    ],
)  # fmt: skip
def test_shell_commands(arguments, members):
    assert SHELL.restore(arguments) == members


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        (
            '{"command": ["ls"], "env": {"A": "1", "B": 2}, "timeout_ms": 5, "user": "u", "working_directory": "/"}',
            {"command": ["ls"], "env": {"A": "1", "B": "2"}, "timeout_ms": 5, "user": "u", "working_directory": "/"},
        ),
        ('{"command": "ls -l", "user": 5}', {"command": ["sh", "-c", "ls -l"], "env": {}}),
        ('["ls"]', {"command": ["ls"], "env": {}}),
        ("ls -l", {"command": ["sh", "-c", "ls -l"], "env": {}}),
        ('{"command": [5], "env": 5}', {"command": ["sh", "-c", '{"command": [5], "env": 5}'], "env": {}}),
    ],
)  # fmt: skip
def test_local_shell_commands(arguments, action):
    assert LOCAL.restore(arguments) == {"action": {"type": "exec", **action}}


@pytest.mark.parametrize(
    ("arguments", "operation", "whole"),
    [
        (
            '{"type": "create_file", "path": "a", "diff": "+x"}',
            {"type": "create_file", "path": "a", "diff": "+x"},
            True,
        ),
        ('{"type": "delete_file", "path": "a", "diff": "x"}', {"type": "delete_file", "path": "a"}, True),
        ('{"operation": {"type": "delete_file", "path": "a"}}', {"type": "delete_file", "path": "a"}, True),
        ('{"type": "update_file", "path": "a"}', {"type": "update_file", "path": "a", "diff": ""}, True),
        ('{"type": "move", "path": "a", "diff": 5}', {"type": "update_file", "path": "a", "diff": ""}, False),
        ('{"type": "update_file"}', {"type": "update_file", "path": NO_PATH, "diff": '{"type": "update_file"}'}, False),
        ("+x", {"type": "update_file", "path": NO_PATH, "diff": "+x"}, False),
        ("[]", {"type": "update_file", "path": NO_PATH, "diff": "[]"}, False),
    ],
)
def test_patches(arguments, operation, whole):
    assert PATCH.restore(arguments) == {"operation": operation}
    assert PATCH.is_whole(arguments) == whole
    begun = PATCH.begin({"operation": operation})["operation"]
    assert begun == {**operation, **({"diff": ""} if "diff" in operation else {})}


@pytest.mark.parametrize(
    ("arguments", "value"), [('{"query": "mail"}', {"query": "mail"}), ("mail", "mail"), ("", ""), ("5", 5)]
)
def test_searches(arguments, value):
    assert SEARCH.restore(arguments) == {"execution": "client", "arguments": value}


CLICK = {"type": "click", "x": 1, "y": 2, "button": "left"}
LOOK = {"type": "screenshot"}


@pytest.mark.parametrize(
    ("arguments", "actions"),
    [
        ({"actions": [{"type": "click", "x": 1, "y": 2}, {"type": "wait"}]}, [CLICK, {"type": "wait"}]),
        ([CLICK], [CLICK]),
        (CLICK, [CLICK]),
        ({"actions": CLICK}, [CLICK]),
        ({**CLICK, "keys": ["CTRL"], "junk": 1}, [{**CLICK, "keys": ["CTRL"]}]),
        ({"type": "scroll", "x": 1, "y": 2}, [{"type": "scroll", "x": 1, "y": 2, "scroll_x": 0, "scroll_y": 0}]),
        ({"type": "drag", "path": [{"x": 1, "y": 2}]}, [{"type": "drag", "path": [{"x": 1, "y": 2}]}]),
        ({"type": "type", "text": "hi"}, [{"type": "type", "text": "hi"}]),
        ({"type": "click", "x": "left"}, [LOOK]),
        ({"type": "fly"}, [LOOK]),
        ({"actions": []}, [LOOK]),
        ({}, [LOOK]),
        ("click", [LOOK]),
    ],
)
def test_computer_actions(arguments, actions):
    arguments = json.dumps(arguments)
    assert COMPUTER.restore(arguments) == {"pending_safety_checks": [], "actions": actions}
    assert PREVIEW.restore(arguments) == {"pending_safety_checks": [], "action": actions[0]}


def test_half_a_character_is_typed_and_names_no_action():
    assert COMPUTER.restore('{"type": "type", "text": "\\udfff"}')["actions"] == [{"type": "type", "text": "\udfff"}]
    assert COMPUTER.restore('{"type": "\\udfff"}')["actions"] == [LOOK]


@pytest.mark.parametrize("tool", CLIENT_TOOLS.values(), ids=CLIENT_TOOLS)
@given(arguments=st.text('{}[]":,ab5\udfff', max_size=30))
def test_any_arguments_are_restored(tool, arguments):
    members = tool.restore(arguments)
    assert members.keys() >= tool.blank.keys()
    assert tool.begin(members).keys() <= members.keys()
    assert charge(members)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (SHELL, {"commands": ["ls"], "timeout_ms": 5}),
        (LOCAL, {"command": ["ls"], "env": {"A": "1"}, "user": "u"}),
        (LOCAL, {"command": ["ls"]}),
        (PATCH, {"type": "delete_file", "path": "a"}),
        (SEARCH, {"query": "mail"}),
        (COMPUTER, {"actions": [CLICK]}),
        (PREVIEW, CLICK),
    ],
)
def test_history_shows_the_model_what_it_wrote(tool, arguments):
    item = {"type": tool.call, "call_id": "c", **tool.restore(json.dumps(arguments))}
    assert tool.write_arguments(item) == arguments


def test_calls_that_callers_made_up_are_shown_as_far_as_they_go():
    assert SHELL.write_arguments({"action": 5}) == {}
    assert COMPUTER.write_arguments({"action": CLICK}) == {"actions": [CLICK]}
    assert COMPUTER.write_arguments({}) == {"actions": []}
    assert PREVIEW.write_arguments({}) == {}


@pytest.mark.parametrize(
    ("tool", "item", "output"),
    [
        (
            SHELL,
            {"output": [{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}, "by": "x"}]},
            '[{"stdout":"a\\n","stderr":"","outcome":{"type":"exit","exit_code":1}}]',
        ),
        (SHELL, {"output": [5]}, "[{}]"),
        (SHELL, {"output": "a"}, "a"),
        (LOCAL, {"output": "a"}, "a"),
        (PATCH, {"status": "failed", "output": "no file", "id": "x"}, '{"status":"failed","output":"no file"}'),
        (PATCH, {"status": "completed", "output": None}, '{"status":"completed"}'),
        (SEARCH, {"tools": [{"name": "f"}]}, '{"tools":[{"name":"f"}]}'),
        (
            COMPUTER,
            {"output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,"}},
            [{"type": "input_image", "image_url": "data:image/png;base64,"}],
        ),
        (COMPUTER, {"output": {"type": "computer_screenshot"}}, '{"type":"computer_screenshot"}'),
        (COMPUTER, {"output": 5}, "5"),
    ],
)  # fmt: skip
def test_outputs_are_told_as_those_of_functions(tool, item, output):
    assert tool.write_output(item) == output


def test_what_is_no_json_is_text():
    assert read_arguments("[" * 1000) == "[" * 1000
    assert read_arguments("\udfff") == "\udfff"
