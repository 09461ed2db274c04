"""How servers are asked for tokens: as they put the prompt together themselves."""

import json

import pytest
from engine.doubles import SettableClock

from gateway.config.schema import GatewayConfig
from gateway.engine.plan import Caller
from gateway.engine.service import Engine
from gateway.engine.standalone import Standalone
from gateway.protocol.ids import UuidIds
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing
from gateway.upstream.chat import ChatDialect
from gateway.upstream.client import HttpUpstream
from gateway.upstream.dialects import find_dialect
from gateway.upstream.settings import UpstreamSettings

ITEMS = [
    {"role": "user", "content": "q"},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "one"},
]
BODY = {
    "model": "m",
    "instructions": "Be brief.",
    "input": ITEMS,
    "tools": [{"type": "function", "name": "f", "parameters": {}}],
    "chat_template_kwargs": {"enable_thinking": False},
    "temperature": 0.5,
    "stream": False,
    "store": False,
}


def test_vllm_gets_the_chat_it_would_make_of_the_request():
    vllm = find_dialect("vllm")
    question = vllm.ask_tokens(vllm.adapt(BODY))
    assert question.target == "/tokenize"
    assert question.body.keys() == {"model", "messages", "tools", "chat_template_kwargs"}
    assert [message["role"] for message in question.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert question.body["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_a_chat_is_asked_about_as_it_is():
    chat = ChatDialect(find_dialect("vllm"))
    vllm = find_dialect("vllm")
    assert chat.ask_tokens(chat.adapt(BODY)) == vllm.ask_tokens(vllm.adapt(BODY))
    assert ChatDialect(find_dialect("generic")).ask_tokens({}) is None


def test_what_no_chat_has_a_form_for_is_not_asked_about():
    assert find_dialect("vllm").ask_tokens({"input": [{"type": "program"}]}) is None


def test_llamacpp_takes_the_request_as_it_is():
    question = find_dialect("llamacpp").ask_tokens(BODY)
    assert question.target == "/v1/responses/input_tokens"
    assert question.body == {name: BODY[name] for name in BODY.keys() - {"temperature", "stream", "store"}}


def test_of_an_unknown_server_no_way_is_known():
    assert find_dialect("generic").ask_tokens(BODY) is None


def test_vllm_is_spared_what_others_sealed():
    body = {"input": [{"type": "compaction", "encrypted_content": "gAAA"}, {"role": "user", "content": "q"}]}
    assert find_dialect("vllm").adapt(body)["input"] == [{"role": "user", "content": "q"}]
    assert find_dialect("generic").adapt(body)["input"] == body["input"]


@pytest.mark.checklist(713)
async def test_a_request_has_as_many_tokens_as_it_is_billed_for(simulator):
    upstream = HttpUpstream(UpstreamSettings(url=simulator.url, dialect="vllm"))
    await upstream.start()
    try:
        config, metrics, clock = GatewayConfig(), Metrics(), SettableClock()
        parts = {"metrics": metrics, "clock": clock, "ids": UuidIds()}
        engine = Engine(config, store=MemoryStore(), upstreams={"default": upstream}, tracing=Tracing(), **parts)
        standalone = Standalone(engine, MemoryStore(), config, metrics, clock, UuidIds())
        body = json.dumps({**BODY, "model": "sim"}).encode()
        counted = json.loads(await standalone.count_tokens("local", body, ()))
        request, route = engine.read(body)
        plan = await engine.prepare(Caller(principal="local", transport="json", headers={}), request, route)
        billed = json.loads(await engine.answer(plan))["usage"]["input_tokens"]
    finally:
        await upstream.close()
    assert counted == {"object": "response.input_tokens", "input_tokens": billed}
