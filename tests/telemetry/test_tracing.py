import contextvars
from collections import Counter

import pytest
from harness.otlp import Collector
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind, StatusCode

from gateway.protocol.errors import Unavailable
from gateway.telemetry.exporters import TracingError
from gateway.telemetry.tracing import Span, Tracing, current_span

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
INCOMING = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01", "tracestate": "vendor=1", "baggage": "tenant=7"}


@pytest.fixture(autouse=True)
def no_otel_environment(monkeypatch):
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


def ignore(outcome, number):
    pass


def collect(exporter, **options):
    provider = TracerProvider(shutdown_on_exit=False, **options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider)


@pytest.fixture
def tracing(exporter):
    tracing = collect(exporter)
    yield tracing
    tracing.close()


@pytest.fixture(autouse=True)
def isolated():
    """What a test makes the span at hand is it in no other."""
    return contextvars.copy_context()


def finish(exporter):
    return {span.name: span for span in exporter.get_finished_spans()}


def test_without_an_exporter_nothing_is_made(isolated):
    def work():
        tracing = Tracing.from_environment({}, ignore)
        with (
            tracing.start_request("POST", {}) as request,
            tracing.start_agent() as agent,
            tracing.start_call("m") as call,
        ):
            assert call is agent is request
            assert (call.recording, call.headers, call.ids) == (False, {}, ("", ""))

    isolated.run(work)


def test_without_an_exporter_the_callers_context_is_passed_on(isolated):
    def work():
        tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "none"}, ignore)
        with tracing.start_request("POST", INCOMING), tracing.start_agent(), tracing.start_call("m") as call:
            return dict(call.headers), call.ids

    assert isolated.run(work) == (INCOMING, (TRACE_ID, ""))


@pytest.mark.parametrize("sent", ["", "rubbish", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE_ID}-\n"])
def test_a_malformed_context_has_no_ids(sent):
    assert Span({"traceparent": sent}).ids == ("", "")


def test_an_agent_below_the_request_and_a_call_below_the_agent(isolated, tracing, exporter):
    def work():
        with tracing.start_request("POST", INCOMING) as request:
            request.rename("POST /v1/responses")
            with tracing.start_agent() as agent:
                assert current_span() is agent
                with tracing.start_call("qwen") as call:
                    assert current_span() is call
                    call.annotate({"gen_ai.request.stream": True, "gen_ai.request.top_p": None})
                    headers = dict(call.headers)
                assert current_span() is agent
            assert current_span() is request
        return headers, call.ids

    headers, ids = isolated.run(work)
    client, agent, server = exporter.get_finished_spans()
    assert (server.name, server.kind) == ("POST /v1/responses", SpanKind.SERVER)
    assert (agent.name, agent.kind) == ("invoke_agent", SpanKind.INTERNAL)
    assert (client.name, client.kind) == ("chat qwen", SpanKind.CLIENT)
    assert f"{server.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert [agent.parent.span_id, client.parent.span_id] == [server.context.span_id, agent.context.span_id]
    assert ids == (TRACE_ID, f"{client.context.span_id:016x}")
    assert headers == {
        "traceparent": f"00-{TRACE_ID}-{client.context.span_id:016x}-01",
        "tracestate": "vendor=1",
        "baggage": "tenant=7",
    }
    assert dict(client.attributes) == {"gen_ai.request.stream": True}


def test_requests_without_context_are_traces_of_their_own(isolated, tracing, exporter):
    def work():
        for _ in range(2):
            with tracing.start_request("GET", {"baggage": "alone"}):
                pass

    isolated.run(work)
    one, other = exporter.get_finished_spans()
    assert one.parent is None
    assert one.context.trace_id != other.context.trace_id


def test_what_is_not_sampled_has_ids_and_no_spans(isolated, exporter):
    tracing = collect(exporter, sampler=ALWAYS_OFF)

    def work():
        with tracing.start_request("POST", {}) as request, tracing.start_agent(), tracing.start_call("m") as call:
            assert call is request
            assert not call.recording
            call.note("ignored", {})
            trace_id, span_id = call.ids
            assert call.headers == {
                "traceparent": f"00-{trace_id}-{span_id}-{int(call.headers['traceparent'][-2:]):02x}"
            }
            return int(call.headers["traceparent"][-2:], 16) & 1

    assert isolated.run(work) == 0
    assert exporter.get_finished_spans() == ()


def test_the_callers_decision_counts(isolated, exporter):
    tracing = collect(exporter, sampler=ParentBasedTraceIdRatio(0))

    def work():
        with tracing.start_request("GET", INCOMING):
            pass
        with tracing.start_request("GET", {"traceparent": INCOMING["traceparent"][:-1] + "0"}) as request:
            assert request.headers["traceparent"].startswith(f"00-{TRACE_ID}-")

    isolated.run(work)
    assert len(exporter.get_finished_spans()) == 1


def test_a_create_is_a_trace_of_its_own_with_a_link_to_its_connection(isolated, tracing, exporter):
    def work():
        connection = tracing.start_request("GET", {})
        connection.end()
        for carrier in ({}, INCOMING):
            with tracing.start_create(carrier, connection):
                pass

    isolated.run(work)
    connection, alone, continued = exporter.get_finished_spans()
    assert (alone.name, alone.kind, alone.parent) == ("response.create", SpanKind.SERVER, None)
    assert alone.context.trace_id != connection.context.trace_id
    assert f"{continued.context.trace_id:032x}" == TRACE_ID
    for create in (alone, continued):
        assert [link.context for link in create.links] == [connection.context]


def test_without_an_exporter_a_create_hands_on_its_context_or_that_of_its_connection(isolated):
    def work():
        tracing = Tracing()
        connection = tracing.start_request("GET", INCOMING)
        own = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}
        return [dict(tracing.start_create(carrier, connection).headers) for carrier in ({}, own)] == [INCOMING, own]

    assert isolated.run(work)


def test_an_error_marks_the_span(isolated, tracing, exporter):
    def work():
        with pytest.raises(KeyError), tracing.start_request("GET", {}):
            raise KeyError
        with pytest.raises(Unavailable), tracing.start_request("GET", {}):
            raise Unavailable("words of a caller", code="busy")

    isolated.run(work)
    spans = exporter.get_finished_spans()
    assert [span.attributes["error.type"] for span in spans] == ["KeyError", "busy"]
    assert {(span.status.status_code, span.status.description) for span in spans} == {(StatusCode.ERROR, None)}
    assert [span.events for span in spans] == [(), ()]


def test_a_span_ends_once(isolated, tracing, exporter):
    def work():
        with tracing.start_request("GET", {}) as span:
            span.end()
            assert not span.recording
            span.annotate({"late": 1})

    isolated.run(work)
    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes) == {}


def test_the_exporter_comes_from_the_environment(isolated):
    tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "console"}, ignore)

    def work():
        with tracing.start_request("GET", {}), tracing.start_call("m") as call:
            assert call.headers["traceparent"]

    isolated.run(work)
    assert tracing._provider.resource.attributes["service.name"] == "responses-gateway"
    tracing.close()


def test_a_service_name_of_the_environment_wins(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "console", "OTEL_SERVICE_NAME": "mine"}, ignore)
    assert tracing._provider.resource.attributes["service.name"] == "mine"
    tracing.close()


@pytest.mark.parametrize(("reachable", "outcome"), [(True, "exported"), (False, "failed")])
def test_what_becomes_of_spans_is_counted(isolated, monkeypatch, reachable, outcome):
    counted = Counter()
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        endpoint = collector.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] if reachable else "http://127.0.0.1:1"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        tracing = Tracing.from_environment(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, lambda what, n: counted.update({what: n})
        )

        def work():
            with tracing.start_request("GET", {}), tracing.start_agent():
                pass

        isolated.run(work)
        tracing.close()
    assert counted == {"recorded": 2, outcome: 2}


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "nonsense"}, "'nonsense'"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
            "http/protobuf or grpc",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "sometimes"},
            "'sometimes'.*parentbased_traceidratio",
        ),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "traceidratio"}, "SAMPLER_ARG is ''"),
        (
            {
                "OTEL_TRACES_EXPORTER": "console",
                "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": "1 %",
            },
            "SAMPLER_ARG is '1 %'; .* between 0 and 1",
        ),
    ],
)
def test_what_is_not_there_is_named(environ, words):
    with pytest.raises(TracingError, match=words):
        Tracing.from_environment(environ, ignore)


def test_a_disabled_sdk_makes_nothing():
    tracing = Tracing.from_environment({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "nonsense"}, ignore)
    assert tracing._provider is None
