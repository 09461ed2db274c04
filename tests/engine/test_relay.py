"""Calls that pass through: where they go, what of them, and how they end."""

import asyncio
from contextlib import suppress

import pytest
from engine.doubles import ScriptedUpstream
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.config.schema import EngineConfig, GatewayConfig, UpstreamConfig
from gateway.engine.relay import Relay
from gateway.engine.service import Engine
from gateway.protocol.errors import GatewayError, Unavailable, UpstreamError, UpstreamTimeout
from gateway.protocol.ids import UuidIds
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing

PATH = "/v1/embeddings"


class Answered:
    """An answer of two pieces, or one that breaks off."""

    def __init__(self, status=200, error=None):
        self.status = status
        self.headers = [(b"X-Own", b"1")]
        self.error = error
        self.closed = 0
        self._pieces = [b"one", b"two"]

    async def read(self):
        if not self._pieces and self.error:
            raise self.error
        return self._pieces.pop(0) if self._pieces else b""

    async def close(self):
        self.closed += 1


class RelayingUpstream(ScriptedUpstream):
    """Answers every call with the same, once it is told to."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.ready = asyncio.Event()
        self.ready.set()

    async def relay(self, call):
        self.calls.append(call)
        await self.ready.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Clock:
    now = monotonic = staticmethod(lambda: 0.0)


class Setting:
    def __init__(self, answer=None, *, deadline=60.0, **upstream):
        self.upstream = RelayingUpstream(answer or Answered())
        self.spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracing = Tracing(provider)
        self.metrics = Metrics()
        config = GatewayConfig(
            upstream=UpstreamConfig(passthrough=(PATH,), **upstream),
            engine=EngineConfig(run_deadline_seconds=deadline),
        )
        parts = {"metrics": self.metrics, "tracing": self.tracing}
        engine = Engine(
            config, store=MemoryStore(), upstreams={"default": self.upstream}, clock=Clock(), ids=UuidIds(), **parts
        )
        self.relay = Relay(engine, config, self.metrics, self.tracing)

    async def call(self, body=b"{}", query="", headers=()):
        with self.tracing.start_request("POST", {}):
            async with self.relay.open(PATH, query, body, headers) as answer:
                pieces = []
                while piece := await answer.read():
                    pieces.append(piece)
                return b"".join(pieces)

    def counted(self, **labels):
        self.metrics.refresh()
        return self.metrics.registry.get_sample_value("gateway_upstream_requests_total", labels)


async def test_a_call_goes_out_as_it_came():
    setting = Setting(forward_headers=("x-tenant",))
    headers = [(b"content-type", b"text/x"), (b"x-tenant", b"7"), (b"authorization", b"Bearer x"), (b"cookie", b"c")]
    assert await setting.call(b"\xff{", "a=1", headers) == b"onetwo"
    (call,) = setting.upstream.calls
    assert (call.target, call.body) == (f"{PATH}?a=1", b"\xff{")
    assert call.headers.pop("traceparent")
    assert call.headers == {"content-type": "text/x", "x-tenant": "7"}
    assert setting.upstream.answer.closed == 1
    assert setting.counted(status="200") == 1


async def test_one_call_is_one_server_and_one_client_span():
    setting = Setting()
    await setting.call()
    client, server = setting.spans.get_finished_spans()
    assert (client.kind, server.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert client.parent.span_id == server.context.span_id
    assert client.name == f"POST {PATH}"
    assert client.attributes["http.response.status_code"] == 200
    assert client.attributes["url.path"] == PATH
    assert client.attributes["server.port"] == 8000
    assert "gen_ai.request.model" not in client.attributes


@pytest.mark.parametrize(
    ("answer", "code", "counted"),
    [
        (Answered(503), "503", "503"),
        (UpstreamTimeout("Silent."), "upstream_timeout", "timeout"),
        (Answered(error=UpstreamError("Broken off.")), "upstream_error", "200"),
    ],
)
async def test_a_failure_is_seen_in_the_span_and_in_the_count(answer, code, counted):
    setting = Setting(answer)
    with suppress(GatewayError):
        await setting.call()
    (client, *_) = setting.spans.get_finished_spans()
    assert client.status.status_code is StatusCode.ERROR
    assert client.attributes["error.type"] == code
    assert setting.counted(status=counted) == 1


async def test_an_alias_is_replaced_and_nothing_else():
    setting = Setting(aliases={"small": "qwen"})
    await setting.call(b'{"model": "small",  "n": 1.00}')
    await setting.call(b'{"model": "other",  "n": 1.00}')
    await setting.call(b'{"n":  1}')
    await setting.call(b"[" * 5000)
    await setting.call(b'{"model": 7}')
    bodies = [call.body for call in setting.upstream.calls]
    assert bodies[0] == b'{"model":"qwen","n":1.00}'
    assert bodies[1:] == [b'{"model": "other",  "n": 1.00}', b'{"n":  1}', b"[" * 5000, b'{"model": 7}']
    assert setting.spans.get_finished_spans()[0].attributes["gen_ai.request.model"] == "qwen"


async def test_a_call_waits_for_a_seat_and_not_for_ever():
    setting = Setting(max_concurrent=1, max_concurrent_wait_seconds=0.01)
    setting.upstream.ready.clear()
    first = asyncio.create_task(setting.call())
    while not setting.upstream.calls:
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="max_concurrent"):
        await setting.call()
    setting.upstream.ready.set()
    assert await first == b"onetwo"


async def test_a_call_does_not_outlast_the_deadline_of_runs():
    setting = Setting(deadline=0.01)
    setting.upstream.ready.clear()
    with pytest.raises(GatewayError, match="run_deadline_seconds"):
        await setting.call()
    assert setting.counted(status="cancelled") == 1


async def test_a_stop_ends_calls_wherever_they_are():
    setting = Setting()
    setting.upstream.ready.clear()
    waiting = asyncio.create_task(setting.call())
    while not setting.upstream.calls:
        await asyncio.sleep(0)
    assert setting.relay.cut_off() == 1
    with pytest.raises(Unavailable, match="shutting down"):
        await waiting
    assert setting.relay.cut_off() == 0


async def test_a_caller_that_leaves_ends_its_call():
    setting = Setting()
    entered = asyncio.Event()

    async def hold():
        async with setting.relay.open(PATH, "", b"{}", ()):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setting.upstream.answer.closed == 1


async def test_no_error_tells_the_gateways_key():
    setting = Setting(Answered(error=UpstreamError("Broken off after s3cret.")))
    with pytest.raises(UpstreamError) as caught:
        await setting.call()
    assert caught.value.message == "Broken off after [redacted]."
