import json

import pytest

from gateway.upstream.simulated.personas import find_persona
from gateway.upstream.simulated.requests import read_request

FUNCTION = {
    "type": "function",
    "name": "look_up",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": ["string", "null"], "enum": ["celsius"]},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array"},
            "more": {"type": "object", "properties": {"deep": {"type": "number"}}},
        },
    },
}


def say(role: str, text: str) -> dict:
    return {"role": role, "content": text}


async def text_of(create, model: str = "sim", **more) -> str:
    status, response = await create(model, **more)
    assert status == 200
    return response["output"][-1]["content"][0]["text"]


async def test_history_shows(create):
    assert await text_of(create, input="hello") == "You said “hello”. I am a simulated model, but I read all of it."
    history = [say("user", "I am Ada"), say("assistant", "Hi"), say("user", "Still there?"), say("user", "Who am I?")]
    text = await text_of(create, input=history)
    assert "“Who am I?”" in text
    assert "wrote 2 times, first “I am Ada”" in text


async def test_long_quotes_are_cut(create):
    assert len(await text_of(create, input="y" * 10_000)) < 300


async def test_call_and_answer(create):
    _, response = await create("sim-tool", tools=[FUNCTION])
    (call,) = response["output"]
    assert call["name"] == "look_up"
    assert json.loads(call["arguments"]) == {
        "city": "Paris", "unit": "celsius", "days": 1, "exact": True, "tags": [], "more": {"deep": 1},
    }  # fmt: skip
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "18 degrees"}
    text = await text_of(create, "sim-tool", input=[say("user", "hi"), call, output], tools=[FUNCTION])
    assert text == "The tool answered: “18 degrees”."


async def test_a_later_question_is_answered_with_a_call_again(create):
    output = {"type": "function_call_output", "call_id": "c", "output": "18"}
    _, response = await create("sim-tool", input=[say("user", "a"), output, say("user", "b")], tools=[FUNCTION])
    assert response["output"][0]["type"] == "function_call"


async def test_two_calls(create):
    _, response = await create("sim-tools2", tools=[FUNCTION, {"type": "function", "name": "other"}])
    assert [call["name"] for call in response["output"]] == ["look_up", "other"]
    assert len({call["call_id"] for call in response["output"]}) == 2


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look_up"}])
async def test_any_model_obeys_tool_choice(create, choice):
    _, response = await create("sim", tools=[FUNCTION], tool_choice=choice)
    assert response["output"][0]["name"] == "look_up"


async def test_no_call_without_a_function(create):
    assert "no function" in await text_of(create, "sim-tool")
    assert "no function" in await text_of(create, "sim-tool", tools=[FUNCTION], tool_choice="none")


async def test_token_limit(create):
    _, response = await create("sim", max_output_tokens=2)
    assert (response["status"], response["usage"]["output_tokens"]) == ("incomplete", 2)


async def test_empty_answer(create):
    _, response = await create("sim-empty")
    assert (response["status"], response["output"]) == ("completed", [])


async def test_unicode_is_raw_and_whole(stream):
    events = await stream("sim-unicode")
    text = events[-1]["response"]["output"][0]["content"][0]["text"]
    assert "\u2028" in text
    assert "".join(event.get("delta", "") for event in events) == text


def test_pace_in_the_name():
    asked = read_request({"model": "sim-slow", "input": "hi"})
    for name, pace in {"sim-slow": 0.25, "sim-slow-0.05": 0.05, "sim-slow-3": 3.0, "sim-slow-9999": 60.0}.items():
        assert find_persona(name).behave(asked).pace == pace
    assert find_persona("sim-slow-") is None
    assert find_persona("sim-slow-x") is None
    assert find_persona("sim-nothing") is None


async def test_error_event(stream):
    events = await stream("sim-error-event")
    assert events[-1]["type"] == "error"
    assert events[-1]["code"] == "server_error"
    assert sum("delta" in event for event in events) == 3


@pytest.mark.parametrize("status", [400, 429, 500, 503])
@pytest.mark.parametrize("streamed", [False, True])
async def test_error_statuses(ask, status, streamed):
    async with ask(f"sim-error-{status}", stream=streamed) as response:
        assert response.status == status
        assert ("Retry-After" in response.headers) == (status in {429, 503})
        assert (await response.json())["error"]["code"] == status


async def test_error_event_model_fails_plainly_in_json(create):
    assert (await create("sim-error-event"))[0] == 500


async def test_web_page(ask):
    async with ask("sim-html") as response:
        assert response.status == 200
        assert response.content_type == "text/html"


@pytest.mark.parametrize(("streamed", "kind"), [(True, "text/event-stream"), (False, "application/json")])
async def test_garbage(ask, streamed, kind):
    async with ask("sim-garbage", stream=streamed) as response:
        assert (response.status, response.content_type) == (200, kind)
        with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
            json.loads((await response.read()).split(b"data: ")[-1])
