"""One simulated server asked in Responses and in Chat Completions: what callers get is the same."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conformance.verdict import judge_stream
from harness.client import create
from harness.tools import MCP, ScriptedTools, tool
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway

from gateway.config import load_config
from gateway.upstream.simulated import serve_simulator

APIS = ("responses", "chat_completions")
TOOLS = [
    {
        "type": "function",
        "name": name,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
    for name in ("get_time", "get_weather")
]
CASES: dict[str, dict[str, Any]] = {
    "text": {"model": "sim", "instructions": "Be kind."},
    "reasoning": {"model": "sim-think"},
    "one call": {"model": "sim-tool", "tools": TOOLS},
    "two calls": {"model": "sim-tools2", "tools": TOOLS},
    "a chosen call": {"model": "sim", "tools": TOOLS, "tool_choice": {"type": "function", "name": "get_weather"}},
    "a custom tool": {"model": "sim-tool", "tools": [{"type": "custom", "name": "shout"}]},
    "a call that the gateway runs": {"model": "sim-tool", "tools": [MCP]},
    "two rounds": {
        "model": "sim",
        "tools": [MCP, *TOOLS],
        "input": '@tool look {"a": "x"}\n@tool look\n@then\n@tool get_time {}\n@say Done.',
    },
    "no tool": {"model": "sim-tool", "tools": TOOLS, "tool_choice": "none"},
    "a bound": {"model": "sim-think", "max_output_tokens": 17},
    "incomplete": {"model": "sim-incomplete"},
    "a refusal": {"model": "sim-refuse"},
    "nothing": {"model": "sim-empty"},
    "difficult characters": {"model": "sim-unicode"},
    "many deltas": {"model": "fixture-900-7"},
    "a history": {
        "model": "sim",
        "tools": TOOLS,
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "How warm?"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Ask."}]},
            {"type": "function_call", "call_id": "1", "name": "get_weather", "arguments": '{"city":"Rome"}'},
            {"type": "function_call", "call_id": "2", "name": "get_time", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "30 degrees"},
            {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "noon"}]},
        ],
    },
    "a broken answer": {"model": "sim-cut"},
    "an error in the middle": {"model": "sim-error-event"},
    "400": {"model": "sim-error-400"},
    "429": {"model": "sim-error-429"},
    "500": {"model": "sim-error-500"},
    "503": {"model": "sim-error-503"},
    "an unknown model": {"model": "nope"},
    "a web page": {"model": "sim-html"},
    "no JSON": {"model": "sim-garbage"},
}
_CHANGING = re.compile(r'"(created_at|completed_at)":\d+|\b[a-z]+_[0-9a-f]{32}\b|chatcmpl-tool-[0-9a-f]{16}')


@contextmanager
def simulated(itl: float = 0) -> Iterator[str]:
    """A simulator with so many seconds before each word, in a thread of its own; yields its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="simulator", daemon=True)
    thread.start()
    server = serve_simulator(itl=itl)
    served = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(20)
    try:
        yield served.url
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, EmbeddedGateway]]:
    with simulated() as url:

        def build(api: str) -> EmbeddedGateway:
            folder = tmp_path_factory.mktemp(api)
            own = {"upstream.url": url, "upstream.api": api, "storage.url": f"sqlite:///{folder}/gateway.db"}
            settings = [f"{name}={value}" for name, value in own.items()]
            bare = ["server.port=0", "admin.enabled=false", "upstream.breaker_failures=0"]
            return EmbeddedGateway(load_config(None, {}, settings + bare).config, ScriptedTools(known=[tool("look")]))

        first, second = map(build, APIS)
        with first, second:
            yield dict(zip(APIS, (first, second), strict=True))


def plain(told: Any) -> Any:
    """What was told without the ids and times that no two answers share."""
    return json.loads(
        _CHANGING.sub(lambda found: '"at":0' if found[1] else "", json.dumps(told, separators=(",", ":")))
    )


def answer_json(port: int, body: dict[str, Any]) -> Any:
    answer = create(port, body)
    return answer.status, answer.json


def answer_sse(port: int, body: dict[str, Any]) -> Any:
    answer = create(port, {**body, "stream": True})
    if answer.status != 200:
        return answer.status, answer.json
    assert judge_stream(answer.body) == []
    return answer.status, answer.events


def answer_websocket(port: int, body: dict[str, Any]) -> Any:
    with WebSocket(port) as socket:
        fields = dict(body)
        socket.create(fields.pop("model"), fields.pop("input"), **fields)
        return socket.events_until_terminal()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", [answer_json, answer_sse, answer_websocket])
def test_the_same_is_told(gateways: dict[str, EmbeddedGateway], way: Any, case: str) -> None:
    body = {"input": "How are you?", **CASES[case]}
    plainly, chatting = (plain(way(gateways[api].port, body)) for api in APIS)
    assert chatting == plainly


@pytest.mark.parametrize("way", [answer_json, answer_sse, answer_websocket])
def test_a_chain_with_a_call_goes_on(gateways: dict[str, EmbeddedGateway], way: Any) -> None:
    port = gateways["chat_completions"].port
    first = create(port, {"model": "sim-tool", "input": "How warm is it?", "tools": TOOLS}).json
    (call,) = first["output"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "21 degrees"}
    second = {"model": "sim-tool", "input": [output], "previous_response_id": first["id"], "tools": TOOLS}
    assert "21 degrees" in json.dumps(way(port, second))
