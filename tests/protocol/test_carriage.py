"""Custom tools and namespaces, out as functions and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.carriage import MAX_NAME, Carriage, Carried, identify, unwrap_input, upstream_name

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: A"}


def test_a_plain_function_is_offered_as_it_is():
    carriage, tool = Carriage(), {"type": "function", "name": "f", "parameters": {}}
    assert carriage.declare(tool) is tool
    assert carriage.resolve("f") == Carried("f", None)


def test_a_custom_tool_becomes_a_function_of_one_text():
    carriage = Carriage()
    carried = carriage.declare({"type": "custom", "name": "shell", "description": "Runs."})
    assert (carried["type"], carried["name"], carried["description"]) == ("function", "shell", "Runs.")
    assert carried["parameters"]["required"] == ["input"]
    assert carried["parameters"]["properties"]["input"]["type"] == "string"
    assert carriage.resolve("shell") == Carried("shell", None, "custom")


@pytest.mark.parametrize(
    ("tool", "description"),
    [
        ({}, ""),
        ({"format": {"type": "text"}}, ""),
        ({"description": "Runs.", "format": {"type": "text"}}, "Runs."),
        ({"format": GRAMMAR}, "The input must match this lark grammar:\nstart: A"),
        ({"description": "Runs.", "format": GRAMMAR}, "Runs.\n\nThe input must match this lark grammar:\nstart: A"),
    ],
)
def test_a_grammar_is_told_in_words(tool, description):
    assert Carriage().declare({"type": "custom", "name": "n", **tool})["description"] == description


def test_tools_of_a_namespace_are_named_with_it():
    carriage, tool = Carriage(), {"type": "function", "name": "get", "parameters": {}}
    assert carriage.declare(tool, "mail") == {**tool, "name": "mail__get"}
    assert carriage.declare({"type": "custom", "name": "run"}, "mail")["name"] == "mail__run"
    assert carriage.resolve("mail__get") == Carried("get", "mail")
    assert carriage.resolve("mail__run") == Carried("run", "mail", "custom")
    assert tool["name"] == "get"


def test_an_undeclared_name_stands_for_itself():
    assert Carriage().resolve("mail__get") == Carried("mail__get", None)


@given(st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=100))
def test_names_are_short_and_the_same_every_time(name, namespace):
    upstream = upstream_name(name, namespace)
    assert len(upstream) <= MAX_NAME
    assert upstream == upstream_name(name, namespace)
    assert (upstream_name(name, None) == name) == (len(name) <= MAX_NAME)


def test_long_names_stay_apart():
    long = "n" * 70
    assert len({upstream_name(long + end, "mail") for end in "abc"}) == 3
    assert upstream_name("\udfff" * 70, "mail").startswith("mail__")


@pytest.mark.parametrize(
    ("item", "carried"),
    [
        (
            {
                "type": "custom_tool_call",
                "id": "ctc_1",
                "call_id": "c",
                "name": "shell",
                "input": "é\n",
                "status": "completed",
            },
            {"type": "function_call", "id": "ctc_1", "call_id": "c", "name": "shell", "arguments": '{"input":"é\\n"}'},
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "run", "namespace": "mail", "input": ""},
            {"type": "function_call", "call_id": "c", "name": "mail__run", "arguments": '{"input":""}'},
        ),
        (
            {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "get", "namespace": "mail", "arguments": "{}"},
            {"type": "function_call", "call_id": "c", "name": "mail__get", "arguments": "{}"},
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ),
        ({"type": "web_search_call", "id": "ws_1"}, {"type": "web_search_call", "id": "ws_1"}),
        ({"type": "message", "role": "user", "content": "hi"}, {"type": "message", "role": "user", "content": "hi"}),
    ],
)
def test_history_is_carried_the_same_way(item, carried):
    before = dict(item)
    assert Carriage().carry([item]) == [carried]
    assert item == before


@given(st.text('a"\\\n\0é😀\u2028\udfff'))
def test_input_comes_back_as_it_went(text):
    arguments = Carriage().carry([{"type": "custom_tool_call", "name": "n", "input": text}])[0]["arguments"]
    assert unwrap_input(arguments) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", ""),
        ("ls -l", "ls -l"),
        ('{"input": "ls"', '{"input": "ls"'),
        ('{"input": 5}', '{"input": 5}'),
        ('{"other": "ls"}', '{"other": "ls"}'),
        ('["ls"]', '["ls"]'),
        ('"ls"', "ls"),
        ('{"input": "ls", "more": 1}', "ls"),
        ("\udfff", "\udfff"),
    ],
)
def test_anything_but_the_agreed_object_is_the_input_itself(arguments, text):
    assert unwrap_input(arguments) == text


def test_input_with_escaped_surrogates_is_read():
    assert unwrap_input(json.dumps({"input": "\udfff"})) == "\udfff"


def test_a_bare_name_means_the_only_namespace_tool_of_that_name():
    carriage = Carriage()
    carriage.declare({"type": "function", "name": "read"}, "files")
    carriage.declare({"type": "function", "name": "list"}, "files")
    carriage.declare({"type": "function", "name": "list"}, "mail")
    carriage.declare({"type": "function", "name": "send"}, "mail")
    carriage.declare({"type": "function", "name": "send"})
    found = {name: carriage.resolve(name) for name in ("read", "list", "send", "mail__send", "other")}
    assert {name: (one.namespace, one.name) for name, one in found.items()} == {
        "read": ("files", "read"),
        "list": (None, "list"),
        "send": (None, "send"),
        "mail__send": ("mail", "send"),
        "other": (None, "other"),
    }


def test_a_name_is_its_first_owners_and_comes_back_as_what_it_was():
    carriage = Carriage()
    declared = [
        ({"type": "function", "name": "shell"}, None),
        ({"type": "custom", "name": "shell"}, None),
        ({"type": "shell"}, None),
        ({"type": "function", "name": "mail__get"}, None),
        ({"type": "function", "name": "get"}, "mail"),
        ({"type": "function", "name": "n" * 70}, None),
    ]
    names = [carriage.declare(tool, namespace)["name"] for tool, namespace in declared]
    assert names[0] == "shell"
    assert names[3] == "mail__get"
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= MAX_NAME
    assert [carriage.resolve(name) for name in names] == [identify(tool, namespace) for tool, namespace in declared]
    assert [Carriage().declare(tool, namespace)["name"] for tool, namespace in declared[:1]] == names[:1]


def test_history_goes_out_under_the_names_that_are_offered():
    carriage = Carriage()
    carriage.declare({"type": "function", "name": "shell"})
    offered = carriage.declare({"type": "shell"})["name"]
    call = {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["ls"], "timeout_ms": None}}
    answer = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": ""}]}
    function = {"type": "function_call", "call_id": "d", "name": "shell", "arguments": "{}"}
    assert carriage.carry([call, answer, function]) == [
        {"type": "function_call", "call_id": "c", "id": "sh_1", "name": offered, "arguments": '{"commands":["ls"]}'},
        {"type": "function_call_output", "call_id": "c", "output": '[{"stdout":"a","stderr":""}]'},
        function,
    ]
    assert Carriage().carry([call])[0]["name"] == "shell"


def test_a_computer_call_is_one_of_the_tool_that_is_declared():
    carriage, call = Carriage(), {"type": "computer_call", "call_id": "c", "action": {"type": "wait"}}
    assert carriage.carry([call])[0]["name"] == "computer"
    carriage.declare({"type": "computer_use_preview"})
    assert (carried := carriage.carry([call])[0])["name"] == "computer_use_preview"
    assert carried["arguments"] == '{"type":"wait"}'


def test_a_search_tells_the_names_by_which_its_tools_are_called():
    found = [
        {"type": "function", "name": "f", "description": "Does f.", "parameters": {"type": "object"}},
        {"type": "namespace", "name": "mail", "tools": [{"type": "function", "name": "get"}, 5]},
        {"type": "namespace", "name": "empty"},
        {"type": "apply_patch"},
        "junk",
        {"name": "no type"},
    ]
    output = {"type": "tool_search_output", "call_id": "c", "tools": found}
    (carried,) = Carriage().carry([output])
    assert carried == {
        "type": "function_call_output",
        "call_id": "c",
        "output": '{"tools":[{"name":"f","description":"Does f."},{"name":"mail__get"},{"name":"apply_patch"}]}',
    }
    assert Carriage().carry([{"type": "tool_search_output", "call_id": "c"}])[0]["output"] == '{"tools":[]}'


def test_what_is_none_of_the_models_is_not_shown_to_it():
    silent = [
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "tool_search_call", "execution": "server", "arguments": {}},
        {"type": "tool_search_output", "execution": "server", "tools": []},
    ]
    assert Carriage().carry(silent) == []


def test_what_is_only_ever_said_to_the_gateway_stays_here():
    tool = {"type": "function", "name": "f", "parameters": {}, "defer_loading": True}
    assert Carriage().declare(tool) == {"type": "function", "name": "f", "parameters": {}}
