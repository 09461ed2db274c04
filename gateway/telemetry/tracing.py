"""Traces, configured by the `OTEL_*` environment alone.

One SERVER span per request and one CLIENT span per inference call, never a span or an event per delta. Without a
configured exporter there is no provider: spans are one shared object that does nothing, and a caller's own trace
context is handed on to the inference server as it came.
"""

from collections.abc import Mapping
from contextvars import ContextVar, Token
from importlib.metadata import entry_points
from types import TracebackType
from typing import Self

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway import __version__
from gateway.telemetry import names

Attribute = str | int | float | bool

_EXPORTERS = "opentelemetry_traces_exporter"
_OTLP_BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_OTLP_PACKAGES = {
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
}
_propagator = TraceContextTextMapPropagator()
_incoming: ContextVar[Mapping[str, str] | None] = ContextVar("gateway_incoming_trace", default=None)


class TracingError(ValueError):
    """The `OTEL_*` environment asks for something that is not there."""


class Span:
    """One span, or nothing at all; ends when its `with` block does, marked with the error that left the block.

    Attributes:
        headers: trace context to send along with what this span covers.
    """

    __slots__ = ("_span", "_token", "headers")

    def __init__(
        self,
        span: trace.Span | None = None,
        headers: Mapping[str, str] | None = None,
        token: Token[otel_context.Context] | None = None,
    ) -> None:
        self._span = span
        self._token = token
        self.headers = headers or {}

    def annotate(self, name: str, value: Attribute) -> None:
        """Set one attribute, named in `telemetry.names`."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Give the span the name that is only known once the request is routed."""
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, error_type: str) -> None:
        """Mark the span as failed, by a stable error code or exception name."""
        if self._span is not None:
            self._span.set_attribute(names.ATTR_ERROR_TYPE, error_type)
            self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        """End the span; it is exported later, in the background."""
        if self._token is not None:
            otel_context.detach(self._token)
        if self._span is not None:
            self._span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.fail(kind.__name__)
        self.end()


_NOTHING = Span()


class Tracing:
    """Starts the spans of one app.

    Args:
        provider: where spans go, or None to make none.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer(names.SERVICE, __version__)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Build what the `OTEL_*` variables ask for; none of them set means no tracing.

        Raises:
            TracingError: an exporter is named whose package is not installed.
        """
        exporters = [_load_exporter(name) for name in _exporter_names(environ)]
        if not exporters:
            return cls()
        attributes: dict[str, Attribute] = {SERVICE_VERSION: __version__}
        if "OTEL_SERVICE_NAME" not in environ and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            attributes[SERVICE_NAME] = names.SERVICE
        provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
        for exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    def start_request(self, method: str, carrier: Mapping[str, str]) -> Span:
        """Start the SERVER span of a request and make it the parent of every call the request makes.

        Args:
            method: HTTP method, the span's name until the route is known.
            carrier: the caller's `traceparent` and `tracestate`, lower-case names, as far as sent.
        """
        if self._tracer is None:
            _incoming.set(carrier)
            return _NOTHING
        parent = _propagator.extract(carrier, context=otel_context.Context())
        span = self._tracer.start_span(
            method, context=parent, kind=SpanKind.SERVER, attributes={names.ATTR_HTTP_METHOD: method}
        )
        return Span(span, token=otel_context.attach(trace.set_span_in_context(span)))

    def start_call(self, model: str, attributes: Mapping[str, Attribute] | None = None) -> Span:
        """Start the CLIENT span of one inference call; its `headers` belong on that call.

        Args:
            model: the model asked for.
            attributes: more attributes, named in `telemetry.names`.
        """
        if self._tracer is None:
            incoming = _incoming.get()
            return Span(headers=incoming) if incoming else _NOTHING
        span = self._tracer.start_span(
            f"{names.CHAT_OPERATION} {model}",
            kind=SpanKind.CLIENT,
            attributes={
                names.ATTR_OPERATION: names.CHAT_OPERATION,
                names.ATTR_API_TYPE: "responses",
                names.ATTR_REQUEST_MODEL: model,
                **(attributes or {}),
            },
        )
        headers: dict[str, str] = {}
        _propagator.inject(headers, context=trace.set_span_in_context(span))
        return Span(span, headers)

    def close(self) -> None:
        """Export what is left and stop; blocks for at most the exporter's own timeout."""
        if self._provider is not None:
            self._provider.shutdown()


def _exporter_names(environ: Mapping[str, str]) -> list[str]:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    asked = environ.get("OTEL_TRACES_EXPORTER", "").strip() or ("otlp" if endpoint else "none")
    exporters = [name.strip() for name in asked.split(",") if name.strip() not in {"", "none"}]
    protocol = (
        environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if "otlp" in exporters and protocol not in _OTLP_BY_PROTOCOL:
        raise TracingError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; use {' or '.join(_OTLP_BY_PROTOCOL)}.")
    return [_OTLP_BY_PROTOCOL[protocol] if name == "otlp" else name for name in exporters]


def _load_exporter(name: str) -> SpanExporter:
    found = next(iter(entry_points(group=_EXPORTERS, name=name)), None)
    if found is None:
        known = ", ".join(sorted({"none", "otlp", *(entry.name for entry in entry_points(group=_EXPORTERS))}))
        mend = f"install {_OTLP_PACKAGES[name]}" if name in _OTLP_PACKAGES else f"use one of {known}"
        raise TracingError(f"No trace exporter {name!r} (OTEL_TRACES_EXPORTER): {mend}.")
    exporter: SpanExporter = found.load()()
    return exporter
