"""The stand-in's chats against captures of vLLM 0.32.0, and against its own Responses."""

import json
from pathlib import Path

import aiohttp
import pytest

CAPTURES = Path(__file__).parents[1] / "chat" / "captures"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
# What this stand-in leaves out of every object.
EXTRAS = {
    "token_ids", "prompt_token_ids", "prompt_text", "stop_reason", "system_fingerprint", "routed_experts",
    "service_tier", "prompt_logprobs", "kv_transfer_params", "ec_transfer_params", "metrics",
}  # fmt: skip


@pytest.fixture
def chat(simulator):
    """Return a caller that gives back status and body of one chat."""

    async def post(model: str = "sim", content: object = "hi there", **more) -> tuple[int, bytes]:
        body = {"model": model, "messages": [{"role": "user", "content": content}], **more}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{simulator.url}/v1/chat/completions", json=body) as response,
        ):
            return response.status, await response.read()

    return post


def chunks(raw: bytes) -> list[dict]:
    *blocks, done, rest = raw.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]


def shapes(raw: bytes) -> set[str]:
    return {json.dumps(shape(chunk)) for chunk in chunks(raw)}


def shape(value: object) -> object:
    """Members of an object with theirs, values left out."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in sorted(value.items()) if key not in EXTRAS}
    return [shape(member) for member in value] if isinstance(value, list) else None


@pytest.mark.parametrize(
    ("capture", "model", "more"),
    [
        ("vllm-chat_stream", "sim-think", {"stream_options": {"include_usage": True}}),
        ("vllm-chat_tool_stream", "sim-tool", {"tools": [TOOL]}),
    ],
)
async def test_chunks_have_the_members_of_real_ones(chat, capture, model, more):
    _, raw = await chat(model, stream=True, **more)
    real = {text.replace('"content": null, "tool_calls"', '"tool_calls"') for text in shapes_of(capture)}
    assert shapes(raw) <= real


def shapes_of(capture: str) -> set[str]:
    return shapes((CAPTURES / f"{capture}.raw").read_bytes())


async def test_json_has_the_members_of_a_real_one(chat):
    _, raw = await chat("sim-think")
    assert shape(json.loads(raw)) == shape(json.loads((CAPTURES / "vllm-chat_nonstream.raw").read_bytes()))


async def test_a_conversation_with_tools(simulator, chat):
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    _, raw = await chat(messages=messages, tools=[TOOL])
    (choice,) = json.loads(raw)["choices"]
    assert "sunny" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert simulator.simulator.received[-1].path == "/v1/chat/completions"


@pytest.mark.parametrize("bound", ["max_tokens", "max_completion_tokens"])
async def test_a_bound_of_tokens(chat, bound):
    _, raw = await chat(stream=True, **{bound: 3})
    *_, last = chunks(raw)
    assert last["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"model": "nope"}, 404),
        ({"messages": []}, 400),
        ({"messages": "hi"}, 400),
        ({"messages": [5]}, 400),
        ({"max_tokens": 0}, 400),
        ({"tool_choice": "required"}, 400),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, 400),
        ({"model": "sim-error-429"}, 429),
    ],
)
async def test_refusals(chat, more, status):
    found, raw = await chat(**more)
    assert found == status
    assert json.loads(raw)["error"]["code"] == status


async def test_the_answer_of_known_size(chat):
    _, raw = await chat("fixture-100-30", stream=True)
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks(raw)]
    assert [len(delta) for delta in deltas] == [30, 30, 30, 10, 0]
    _, raw = await chat("fixture-100-30")
    assert json.loads(raw)["choices"][0]["message"]["content"] == "x" * 100


async def test_an_error_in_the_middle(chat):
    _, raw = await chat("sim-error-event", stream=True)
    assert chunks(raw)[-1]["error"]["code"] == 500
