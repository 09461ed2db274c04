import json

import pytest

from gateway.upstream.simulated.directives import Directives, Wanted, read_directives
from gateway.upstream.simulated.personas import find_persona
from gateway.upstream.simulated.plan import Call, Say
from gateway.upstream.simulated.requests import read_request

TOOLS = [
    {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    {"type": "function", "name": "files__read", "parameters": {}},
]
PROMPT = '@tool add {"a": 2}\n@tool read not json\n@then\n  @tool add\n@say It is done.\n@say Really.'


def act(prompt: str, *outputs: str, model: str = "sim", **more) -> list:
    answered = [
        {"type": "function_call_output", "call_id": str(number), "output": output}
        for number, output in enumerate(outputs)
    ]
    items = [{"role": "user", "content": prompt}, *answered]
    asked = read_request({"model": model, "input": items, "tools": TOOLS, **more})
    return list(find_persona(model).behave(asked).plan.steps)


def test_lines_are_read():
    assert read_directives(PROMPT) == Directives(
        [[Wanted("add", '{"a": 2}'), Wanted("read", "not json")], [Wanted("add", "")]], "It is done.\nReally."
    )


@pytest.mark.parametrize("prompt", ["", "hello", "@tool", "@then", "@say", "a @tool add", "@tools add"])
def test_other_lines_ask_for_nothing(prompt):
    assert read_directives(prompt) == Directives()


def test_rounds_go_on_with_the_outputs():
    first = [Call("add", '{"a": 2}'), Call("files__read", "not json")]
    assert act(PROMPT) == first
    assert act(PROMPT, "one") == first
    (again,) = act(PROMPT, "one", "two")
    assert (again.name, json.loads(again.text)) == ("add", {"a": 1})
    assert act(PROMPT, "one", "two", "three") == [Say("It is done.\nReally.")]


def test_without_words_outputs_are_quoted():
    assert act("@tool add", "4") == [Say("The tool answered: “4”.")]


def test_what_is_not_offered_is_not_called():
    assert act("@tool divide") == [Say("You offered me no function “divide”.")]


def test_a_forbidden_tool_is_not_called():
    assert "You said" in act("@tool add", tool_choice="none")[0].text


def test_a_thinking_model_thinks_first():
    thought, call = act("@tool add {}", model="sim-think")
    assert (thought.text[:8], call) == ("The user", Call("add", "{}"))
