"""What a collector receives of a gateway, and what the log says of the same requests."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.client import RESPONSES, create, open_create, read_until
from harness.engine import says
from harness.otlp import Collector, Received
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket

CALLER_SPAN = "00f067aa0ba902b7"
SECRETS = {"caller": "sk-of-the-caller", "upstream": "sk-of-the-upstream", "database": "word-of-the-database"}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def traced(collector: Collector, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"responses.max_retained_bytes": "65536"}
    with Gateway(tmp_path_factory.mktemp("traced"), upstream.url, settings, collector.environment) as running:
        yield running


def context(trace_id: str, *, sampled: bool = True) -> dict[str, str]:
    """The headers of a caller that traces."""
    traceparent = f"00-{trace_id}-{CALLER_SPAN}-{sampled:02x}"
    return {"traceparent": traceparent, "tracestate": "vendor=1", "baggage": "tenant=7"}


def shape(trace: list[Received]) -> list[tuple[str, str]]:
    return [(span.kind, span.name) for span in trace]


def expect_chain(trace: list[Received]) -> None:
    """Each span is the child of the one before."""
    assert [span.parent for span in trace[1:]] == [span.span_id for span in trace[:-1]]
    assert len({span.trace_id for span in trace}) == 1


def expect_on_the_wire(call: Request, span: Received) -> None:
    """The inference server was told that the call belongs to this span."""
    assert call.headers["traceparent"][:-2] == f"00-{span.trace_id}-{span.span_id}-"


def test_a_stream_is_three_spans(traced: Gateway, collector: Collector, upstream: Upstream) -> None:
    model, trace_id = upstream.script("traced-stream", says("Hello there", chunk=5)), "1" * 32
    answer = create(traced.port, {"model": model, "input": "hi", "stream": True, "temperature": 0.5}, context(trace_id))
    trace = collector.await_trace("POST /v1/responses", 3, gateway_request_id=answer.headers["x-request-id"])
    assert shape(trace) == [
        ("server", "POST /v1/responses"),
        ("internal", "invoke_agent"),
        ("client", f"chat {model}"),
    ]
    expect_chain(trace)
    server, agent, chat = trace
    assert (server.trace_id, server.parent) == (trace_id, CALLER_SPAN)
    assert server.attributes["http.response.status_code"] == 200
    assert server.resource["service.name"] == "responses-gateway"
    assert agent.attributes["gen_ai.response.id"] == answer.final["id"]
    usage = answer.final["usage"]
    told = chat.attributes
    assert 0 < told.pop("gen_ai.response.time_to_first_chunk") <= chat.seconds
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "openai.api.type": "responses",
        "server.address": "127.0.0.1",
        "server.port": upstream.port,
        "gen_ai.request.model": model,
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.id": told["gen_ai.response.id"],
        "gen_ai.response.model": "engine",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": usage["input_tokens"],
        "gen_ai.usage.cache_read.input_tokens": usage["input_tokens_details"]["cached_tokens"],
        "gen_ai.usage.output_tokens": usage["output_tokens"],
        "gen_ai.usage.reasoning.output_tokens": usage["output_tokens_details"]["reasoning_tokens"],
    }
    assert not any(span.failed or span.events for span in trace)
    (call,) = upstream.calls(model)
    expect_on_the_wire(call, chat)
    assert (call.headers["tracestate"], call.headers["baggage"]) == ("vendor=1", "tenant=7")


def test_a_create_is_three_spans_linked_to_its_connection(
    traced: Gateway, collector: Collector, upstream: Upstream
) -> None:
    model, trace_id = upstream.script("traced-create", says("Hello there", chunk=5)), "2" * 32
    metadata = {f"ws_request_header_{name}": value for name, value in context(trace_id).items()}
    with WebSocket(traced.port) as socket:
        (upgrade,) = collector.await_trace("GET /v1/responses", 1, gateway_request_id=socket.handshake["x-request-id"])
        # It has arrived, so it ended with the upgrade and not with the connection.
        assert upgrade.attributes["http.response.status_code"] == 101
        for lane, fields in (("alone", {}), ("continued", {"client_metadata": metadata})):
            socket.create(model, stream_id=lane, **fields)
            socket.events_until_terminal(lane)
    parents = {"alone": "", "continued": CALLER_SPAN}
    for (lane, parent), call in zip(parents.items(), upstream.calls(model), strict=True):
        trace = collector.await_trace("response.create", 3, gateway_stream_id=lane)
        assert shape(trace) == [
            ("server", "response.create"),
            ("internal", "invoke_agent"),
            ("client", f"chat {model}"),
        ]
        expect_chain(trace)
        assert trace[0].links == [(upgrade.trace_id, upgrade.span_id)]
        assert trace[0].parent == parent
        assert trace[0].attributes["gateway.request.id"] == upgrade.attributes["gateway.request.id"]
        expect_on_the_wire(call, trace[2])
    assert trace[0].trace_id == trace_id


def test_a_limit_is_told_where_it_was_met(traced: Gateway, collector: Collector, upstream: Upstream) -> None:
    model = upstream.script("traced-limit", says("x" * 70_000, chunk=7000))
    answer = create(traced.port, {"model": model, "input": "hi", "stream": True})
    _, agent, chat = collector.await_trace("POST /v1/responses", 3, gateway_request_id=answer.headers["x-request-id"])
    code = answer.final["error"]["code"]
    assert [span.attributes["error.type"] for span in (agent, chat)] == [code, code]
    assert agent.failed
    assert agent.events == {
        "gateway.limit_breach": {"gateway.limit.key": "max_retained_bytes", "gateway.limit.bytes": 65536}
    }


def test_a_client_that_left_is_told_and_is_no_error(traced: Gateway, collector: Collector, upstream: Upstream) -> None:
    async def stall(request: Request, reply: Reply) -> None:
        await reply.head()
        await reply.send(says("Hello there", chunk=5).frames()[0])
        await asyncio.Event().wait()

    model = upstream.script("traced-leaver", stall)
    connection = open_create(traced.port, {"model": model, "input": "hi", "stream": True}, {"x-request-id": "leaver"})
    read_until(connection, b"response.created")
    connection.close()
    server, *below = collector.await_trace("POST /v1/responses", 3, gateway_request_id="leaver")
    assert server.attributes["http.response.status_code"] == 499
    assert [span.events for span in below] == [{"gateway.cancelled": {"gateway.cancelled.by": "client_left"}}] * 2
    assert not any(span.failed for span in (server, *below))


def test_a_refusal_of_the_inference_server_marks_the_call(
    traced: Gateway, collector: Collector, upstream: Upstream
) -> None:
    async def refuse(_: Request, reply: Reply) -> None:
        await reply.json({"error": {"message": "busy", "code": "too_busy", "type": "busy"}}, 429)

    answer = create(traced.port, {"model": upstream.script("traced-refusal", refuse), "input": "hi"})
    server, agent, chat = collector.await_trace(
        "POST /v1/responses", 3, gateway_request_id=answer.headers["x-request-id"]
    )
    assert (server.attributes["http.response.status_code"], server.failed) == (429, False)
    assert [(span.attributes["error.type"], span.failed) for span in (agent, chat)] == [("too_busy", True)] * 2


def test_what_a_caller_does_not_sample_is_not_told_but_logged(
    traced: Gateway, collector: Collector, upstream: Upstream
) -> None:
    model, trace_id = upstream.script("traced-unsampled", says("hi")), "3" * 32
    answer = create(traced.port, {"model": model, "input": "hi"}, context(trace_id, sampled=False))
    (call,) = upstream.calls(model)
    assert call.headers["traceparent"].startswith(f"00-{trace_id}-")
    assert int(call.headers["traceparent"][-2:], 16) & 1 == 0
    line = json.loads(traced.await_log(answer.headers["x-request-id"], "gateway.access"))
    assert line["trace_id"] == trace_id
    assert [span for span in collector.spans if span.trace_id == trace_id] == []


def test_words_that_are_no_text_do_not_keep_a_span_from_the_collector(
    traced: Gateway, collector: Collector, upstream: Upstream
) -> None:
    upstream.script("half \ud800", says("hi"))
    answer = create(traced.port, {"model": "half \ud800", "input": "hi"})
    assert answer.status == 200
    trace = collector.await_trace("POST /v1/responses", 3, gateway_request_id=answer.headers["x-request-id"])
    assert trace[2].name == "chat half ?"


def test_log_lines_carry_the_ids_of_the_trace(traced: Gateway, collector: Collector, upstream: Upstream) -> None:
    model = upstream.script("traced-logs", says("x" * 70_000, chunk=7000))
    answer = create(traced.port, {"model": model, "input": "hi"}, {"x-request-id": "logged"})
    server, agent, _ = collector.await_trace("POST /v1/responses", 3, gateway_request_id="logged")
    access = json.loads(traced.await_log("logged", "gateway.access"))
    failure = json.loads(traced.await_log("logged", "response failed"))
    assert answer.status == 502
    assert (access["trace_id"], access["span_id"]) == (server.trace_id, server.span_id)
    assert (failure["trace_id"], failure["span_id"]) == (agent.trace_id, agent.span_id)
    assert access["response_id"] == failure["response_id"] == agent.attributes["gen_ai.response.id"]


def test_no_secret_gets_into_logs_or_traces(upstream: Upstream, tmp_path: Path) -> None:
    async def tell(request: Request, reply: Reply) -> None:
        await reply.json({"error": {"message": f"bad key {request.headers['authorization']}"}}, 401)

    environment = {
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "GATEWAY_UPSTREAM__API_KEY": SECRETS["upstream"],
    }
    settings = {
        "storage.url": f"postgresql://me:{SECRETS['database']}@127.0.0.1:1/none",
        "telemetry.log_level": "debug",
    }
    credentials = {"Authorization": f"Bearer {SECRETS['caller']}", "Cookie": f"session={SECRETS['caller']}"}
    telling, model = upstream.script("secret-told", tell), upstream.script("secret-kept", says("hi"))
    with Gateway(tmp_path, upstream.url, settings, environment) as gateway:
        for stored in (False, True):
            for chosen in (model, telling):
                body = {"model": chosen, "input": "hi", "stream": True, "store": stored}
                create(gateway.port, body, credentials)
        with WebSocket(gateway.port, f"{RESPONSES}?api_key={SECRETS['caller']}", credentials) as socket:
            socket.create(telling, store=False)
            socket.events_until_terminal()
    for span in ('"POST /v1/responses"', '"invoke_agent"', f'"chat {model}"', '"response.create"'):
        assert span in gateway.log
    assert {name for name, secret in SECRETS.items() if secret in gateway.log} == set()
