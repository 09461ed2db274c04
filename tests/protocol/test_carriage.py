"""Custom tools and namespaces, out as functions and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.carriage import MAX_NAME, Carriage, Carried, carry_item, unwrap_input, upstream_name

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: A"}


def test_a_plain_function_is_offered_as_it_is():
    carriage, tool = Carriage(), {"type": "function", "name": "f", "parameters": {}}
    assert carriage.declare(tool) is tool
    assert carriage.resolve("f") == Carried("f", None, custom=False)


def test_a_custom_tool_becomes_a_function_of_one_text():
    carriage = Carriage()
    carried = carriage.declare({"type": "custom", "name": "shell", "description": "Runs."})
    assert (carried["type"], carried["name"], carried["description"]) == ("function", "shell", "Runs.")
    assert carried["parameters"]["required"] == ["input"]
    assert carried["parameters"]["properties"]["input"]["type"] == "string"
    assert carriage.resolve("shell") == Carried("shell", None, custom=True)


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
    assert carriage.resolve("mail__get") == Carried("get", "mail", custom=False)
    assert carriage.resolve("mail__run") == Carried("run", "mail", custom=True)
    assert tool["name"] == "get"


def test_an_undeclared_name_stands_for_itself():
    assert Carriage().resolve("mail__get") == Carried("mail__get", None, custom=False)


@given(st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=100))
def test_names_are_short_and_the_same_every_time(name, namespace):
    upstream = upstream_name(name, namespace)
    assert len(upstream) <= MAX_NAME
    assert upstream == upstream_name(name, namespace)
    assert upstream_name(name, None) == name


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
        ({"type": "message", "role": "user", "content": "hi"}, {"type": "message", "role": "user", "content": "hi"}),
    ],
)
def test_history_is_carried_the_same_way(item, carried):
    before = dict(item)
    assert carry_item(item) == carried
    assert item == before


@given(st.text('a"\\\n\0é😀\u2028\udfff'))
def test_input_comes_back_as_it_went(text):
    arguments = carry_item({"type": "custom_tool_call", "name": "n", "input": text})["arguments"]
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
