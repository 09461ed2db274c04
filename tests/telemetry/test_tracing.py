import contextvars

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.telemetry.tracing import Tracing, TracingError

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
INCOMING = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}


@pytest.fixture(autouse=True)
def no_otel_environment(monkeypatch):
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    yield tracing
    tracing.close()


def isolated(function):
    return contextvars.copy_context().run(function)


def test_without_an_exporter_nothing_is_made():
    tracing = Tracing.from_environment({})
    with tracing.start_request("POST", {}) as request, tracing.start_call("model") as call:
        assert call is request
        assert call.headers == {}


def test_without_an_exporter_the_callers_context_is_passed_on():
    def work():
        tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "none"})
        with tracing.start_request("POST", INCOMING), tracing.start_call("model") as call:
            return dict(call.headers)

    assert isolated(work) == INCOMING


def test_one_server_span_with_a_client_span_below(tracing, exporter):
    with tracing.start_request("POST", INCOMING) as request:
        request.rename("POST /v1/responses")
        with tracing.start_call("qwen", {"gen_ai.request.stream": True}) as call:
            headers = dict(call.headers)
    client, server = exporter.get_finished_spans()
    assert (server.name, server.kind) == ("POST /v1/responses", SpanKind.SERVER)
    assert (client.name, client.kind) == ("chat qwen", SpanKind.CLIENT)
    assert f"{server.context.trace_id:032x}" == TRACE_ID
    assert f"{server.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert client.parent.span_id == server.context.span_id
    assert headers["traceparent"] == f"00-{TRACE_ID}-{client.context.span_id:016x}-01"
    assert headers["tracestate"] == "vendor=1"
    assert client.attributes["gen_ai.request.stream"] is True


def test_requests_without_context_are_traces_of_their_own(tracing, exporter):
    for _ in range(2):
        with tracing.start_request("GET", {}):
            pass
    one, other = exporter.get_finished_spans()
    assert one.parent is None
    assert one.context.trace_id != other.context.trace_id


def test_an_error_marks_the_span(tracing, exporter):
    with pytest.raises(KeyError), tracing.start_call("model"):
        raise KeyError
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "KeyError"


def test_the_exporter_comes_from_the_environment():
    tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "console"})
    with tracing.start_call("model") as call:
        assert call.headers["traceparent"]
    assert tracing._provider.resource.attributes["service.name"] == "responses-gateway"
    tracing.close()


def test_a_service_name_of_the_environment_wins(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "console", "OTEL_SERVICE_NAME": "mine"})
    assert tracing._provider.resource.attributes["service.name"] == "mine"
    tracing.close()


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "nonsense"}, "'nonsense'"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
            "http/protobuf or grpc",
        ),
    ],
)
def test_an_exporter_that_is_not_there_is_named(environ, words):
    with pytest.raises(TracingError, match=words):
        Tracing.from_environment(environ)


def test_a_disabled_sdk_makes_nothing():
    tracing = Tracing.from_environment({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "nonsense"})
    with tracing.start_call("model") as call:
        assert call.headers == {}
