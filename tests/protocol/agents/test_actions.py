import json
import re

import pytest

from gateway.protocol.agents.actions import ACTIONS, build_tools, read_arguments, read_fork_turns
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.paths import is_task_name
from gateway.protocol.agents.refusals import Refusal


def test_the_tools_are_six_functions_in_a_fixed_order():
    tools = build_tools(Bounds())
    assert tuple(tool["name"] for tool in tools) == ACTIONS
    assert tools == build_tools(Bounds())
    for tool in tools:
        assert (tool["type"], tool["strict"]) == ("function", False)
        assert tool["description"]
        assert tool["parameters"]["additionalProperties"] is False


def test_they_say_what_must_be_given():
    required = {tool["name"]: tool["parameters"]["required"] for tool in build_tools(Bounds())}
    assert required == {
        "spawn_agent": ["task_name", "message"],
        "send_message": ["target", "message"],
        "followup_task": ["target", "message"],
        "wait_agent": [],
        "interrupt_agent": ["target"],
        "list_agents": [],
    }


def test_they_say_how_names_look_and_how_long_a_wait_is():
    tools = {tool["name"]: tool["parameters"]["properties"] for tool in build_tools(Bounds(wait_min_ms=5))}
    assert tools["wait_agent"]["timeout_ms"]["minimum"] == 5
    assert tools["wait_agent"]["timeout_ms"]["maximum"] == Bounds().wait_max_ms
    pattern = re.compile(tools["spawn_agent"]["task_name"]["pattern"])
    assert [bool(pattern.search(name)) for name in ("ok_1", "No", "a b")] == [True, False, False]
    assert is_task_name("ok_1")


@pytest.mark.parametrize("given", ["", "  ", "{}", '{"timeout_ms": null}'])
def test_nothing_and_null_are_no_arguments(given):
    assert read_arguments("wait_agent", given) == {}


def test_arguments_keep_half_characters():
    assert read_arguments("send_message", '{"target":"a","message":"\\ud800"}')["message"] == "\ud800"


@pytest.mark.agents(28)
@pytest.mark.parametrize(
    ("action", "given", "text"),
    [
        ("spawn_agent", "no", "arguments must be one JSON object"),
        ("spawn_agent", "[1]", "arguments must be one JSON object"),
        ("spawn_agent", '{"task_name":"a"}', "spawn_agent needs message"),
        ("spawn_agent", '{"task_name":"a","message":null}', "spawn_agent needs message"),
        ("spawn_agent", '{"task_name":1,"message":"m"}', "task_name must be a string"),
        (
            "spawn_agent",
            '{"task_name":"a","message":"m","model":"x"}',
            "spawn_agent takes no model; it takes task_name, message, fork_turns",
        ),
        ("wait_agent", '{"timeout_ms":true}', "timeout_ms must be a whole number"),
        ("wait_agent", '{"timeout_ms":1.5}', "timeout_ms must be a whole number"),
        ("dance", "{}", "there is no action dance"),
    ],
)
def test_other_arguments_are_refused_in_words_a_model_can_use(action, given, text):
    with pytest.raises(Refusal) as caught:
        read_arguments(action, given)
    assert caught.value.text == text


def test_a_fork_takes_all_no_or_so_many_turns():
    assert [read_fork_turns(given) for given in ("all", "none", "1", "12")] == [None, 0, 1, 12]


@pytest.mark.agents(25)
@pytest.mark.parametrize("given", ["0", "-1", "x", "", "1.5", "٣", "9" * 5000, "ALL"])
def test_a_fork_takes_nothing_else(given):
    with pytest.raises(Refusal, match="bad_fork_turns"):
        read_fork_turns(given)


def test_what_can_be_asked_is_json():
    json.dumps(build_tools(Bounds()))
