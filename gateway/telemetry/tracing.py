"""Traces, configured by the `OTEL_*` environment alone.

A request, or a create of a WebSocket, is one trace: its SERVER span, an INTERNAL span for each agent that runs, and a
CLIENT span for each inference call; never a span or an event per delta. Whether a trace is recorded is decided once, at
its root. What is not recorded costs an id and no more, and without an exporter there is not even that: the caller's own
trace context is handed on to the inference server as it came.
"""

import re
from asyncio import CancelledError
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self, TypeAlias

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway import __version__
from gateway.protocol.errors import GatewayError
from gateway.telemetry import names
from gateway.telemetry.exporters import SpanCount, build_provider

Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
Carrier: TypeAlias = Mapping[str, str]
"""A caller's trace context: `traceparent`, `tracestate` and `baggage`, as far as sent."""

_LONGEST_MODEL = 128
_TRACEPARENT = "traceparent"
_BAGGAGE = "baggage"
_TRACE_ID = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_ROOT = otel_context.Context()
_propagator = TraceContextTextMapPropagator()


class Span:
    """One span, or what stands for it when nothing is recorded; ends with its `with` block.

    Args:
        carrier: what the caller sent.
        context: ids of the span; None without tracing.
        recorded: the span itself, if it is recorded.

    Attributes:
        recording: whether anything said about it is kept; if not, nobody need find out what to say.
    """

    __slots__ = ("_carrier", "_context", "_headers", "_recorded", "_token", "recording")

    def __init__(
        self, carrier: Carrier, context: SpanContext | None = None, recorded: trace.Span | None = None
    ) -> None:
        self._carrier = carrier
        self._context = context
        self._recorded = recorded
        self.recording = recorded is not None
        self._headers: Mapping[str, str] | None = carrier if context is None else None
        self._token: Token[Span] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Trace context to send along with what this span covers."""
        if self._headers is None:
            self._headers = self._inject()
        return self._headers

    @property
    def ids(self) -> tuple[str, str]:
        """Ids of trace and span in hexadecimal, empty where there is none; without tracing, the caller's trace."""
        if self._context is not None:
            return f"{self._context.trace_id:032x}", f"{self._context.span_id:016x}"
        found = _TRACE_ID.fullmatch(self._carrier.get(_TRACEPARENT, "")) if self._carrier else None
        return (found[1] if found else ""), ""

    @property
    def link(self) -> Link | None:
        """What another trace points to this span by."""
        return None if self._context is None else Link(self._context)

    def annotate(self, attributes: Mapping[str, Attribute | None]) -> None:
        """Set attributes, named in `telemetry.names`; those that are None are left out."""
        if self._recorded is not None:
            self._recorded.set_attributes(
                {name: _mend_value(value) for name, value in attributes.items() if value is not None}
            )

    def note(self, event: str, attributes: Mapping[str, Attribute]) -> None:
        """Add an event, named in `telemetry.names`."""
        if self._recorded is not None:
            self._recorded.add_event(event, attributes)

    def rename(self, name: str) -> None:
        """Give the span the name that is only known once the request is routed."""
        if self._recorded is not None:
            self._recorded.update_name(name)

    def fail(self, error_type: str) -> None:
        """Mark the span as failed, by a stable error code or exception name."""
        if self._recorded is not None:
            self._recorded.set_attribute(names.ATTR_ERROR_TYPE, _mend(error_type))
            self._recorded.set_status(StatusCode.ERROR)

    def start_child(self, tracer: trace.Tracer, name: str, kind: SpanKind) -> "Span":
        """Start a span below this one, which is recorded; it is the span at hand until it ends."""
        assert self._recorded is not None
        recorded = tracer.start_span(_mend(name), context=trace.set_span_in_context(self._recorded, _ROOT), kind=kind)
        child = Span(self._carrier, recorded.get_span_context(), recorded)
        child._token = _current.set(child)
        return child

    def end(self) -> None:
        """End the span; it is exported later, in the background. Idempotent."""
        if self._recorded is None:
            return
        if self._token is not None:
            _current.reset(self._token)
        self._recorded.end()
        self._recorded = None
        self.recording = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._recorded is None:
            return
        if isinstance(error, CancelledError):
            self.note(names.EVENT_CANCELLED, {names.ATTR_CANCELLED_BY: names.CANCELLED_BY_CLIENT})
        elif kind is not None:
            self.fail(error.code if isinstance(error, GatewayError) else kind.__name__)
        self.end()

    def _inject(self) -> Mapping[str, str]:
        context = self._context
        assert context is not None
        headers = {_TRACEPARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
        if context.trace_state:
            headers["tracestate"] = context.trace_state.to_header()
        if _BAGGAGE in self._carrier:
            headers[_BAGGAGE] = self._carrier[_BAGGAGE]
        return headers


_NOTHING = Span({})
_current: ContextVar[Span] = ContextVar("gateway_span", default=_NOTHING)


def current_span() -> Span:
    """Return the span of what this task works for."""
    return _current.get()


def _mend(text: str) -> str:
    """Return a text that is UTF-8, as exporters want all of a batch to be; callers' words may hold half a pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _mend_value(value: Attribute) -> Attribute:
    if isinstance(value, tuple):
        return tuple(map(_mend, value))
    return _mend(value) if isinstance(value, str) else value


class Tracing:
    """Starts the spans of one app.

    Args:
        provider: where spans go, or None to make none.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer(names.SERVICE, __version__)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], count: SpanCount) -> Self:
        """Build what the `OTEL_*` variables ask for; none of them set means no tracing.

        Args:
            environ: the variables.
            count: as for `build_provider`.

        Raises:
            TracingError: an exporter is named whose package is not installed, or a sampler that there is not.
        """
        return cls(build_provider(environ, count))

    def start_request(self, method: str, carrier: Carrier, *, recorded: bool = True) -> Span:
        """Start the SERVER span of a request; every span this task and its children start is below it.

        Args:
            method: HTTP method, the span's name until the route is known.
            carrier: the caller's trace context.
            recorded: False for a request that is to be in no trace.
        """
        if not recorded:
            _current.set(_NOTHING)
            return _NOTHING
        return self._start_root(method, carrier)

    def start_create(self, carrier: Carrier, connection: Span) -> Span:
        """Start the SERVER span of one create of a WebSocket: a trace of its own, linked to the span of its connection.

        Args:
            carrier: the trace context in the create.
            connection: the span of the upgrade.
        """
        if self._tracer is None:
            # A caller who says nothing about this create has said something about all of them.
            _current.set(Span(carrier) if carrier else connection)
            return _current.get()
        return self._start_root(names.SPAN_CREATE, carrier, connection.link)

    def start_background(self, carrier: Carrier) -> Span:
        """Start the span of a response that is made on its own: a trace of its own, linked to what asked for it.

        Args:
            carrier: the trace context of what asked for it; without tracing, it is passed on.
        """
        link = None
        if self._tracer is not None and _TRACEPARENT in carrier:
            asked = trace.get_current_span(_propagator.extract(carrier, context=_ROOT)).get_span_context()
            link, carrier = Link(asked), {}
        return self._start_root(names.SPAN_BACKGROUND, carrier, link, SpanKind.INTERNAL)

    def start_agent(self) -> Span:
        """Start the INTERNAL span of one agent's run."""
        return self._start_below(names.AGENT_OPERATION, SpanKind.INTERNAL)

    def start_call(self, model: str) -> Span:
        """Start the CLIENT span of one inference call; its `headers` belong on that call.

        Args:
            model: the model asked for.
        """
        current = _current.get()
        # Not even the name is put together for nothing.
        if not current.recording:
            return current
        return self._start_below(f"{names.CHAT_OPERATION} {model[:_LONGEST_MODEL]}", SpanKind.CLIENT)

    def start_tool(self, name: str) -> Span:
        """Start the CLIENT span of one call of a tool that the gateway runs; its `headers` are handed on to the tool.

        Args:
            name: the tool's.
        """
        return self._start_below(f"{names.TOOL_OPERATION} {name[:_LONGEST_MODEL]}", SpanKind.CLIENT)

    def start_listing(self, label: str) -> Span:
        """Start the CLIENT span of asking one server for its tools; its `headers` are handed on to the server.

        Args:
            label: the server's.
        """
        return self._start_below(f"{names.LISTING_OPERATION} {label[:_LONGEST_MODEL]}", SpanKind.CLIENT)

    def start_relay(self, path: str) -> Span:
        """Start the CLIENT span of one call that is passed on; its `headers` belong on that call.

        Args:
            path: where it goes.
        """
        return self._start_below(f"POST {path}", SpanKind.CLIENT)

    def close(self) -> None:
        """Export what is left and stop; blocks for at most the exporter's own timeout."""
        if self._provider is not None:
            self._provider.shutdown()

    def _start_root(
        self, name: str, carrier: Carrier, link: Link | None = None, kind: SpanKind = SpanKind.SERVER
    ) -> Span:
        if self._tracer is None:
            span = Span(carrier) if carrier else _NOTHING
        else:
            parent = _propagator.extract(carrier, context=_ROOT) if _TRACEPARENT in carrier else _ROOT
            links = () if link is None else (link,)
            made = self._tracer.start_span(name, context=parent, kind=kind, links=links)
            span = Span(carrier, made.get_span_context(), made if made.is_recording() else None)
        _current.set(span)
        return span

    def _start_below(self, name: str, kind: SpanKind) -> Span:
        """Start a span below the one at hand; what is not recorded has nothing below it, and stands for all of it."""
        current = _current.get()
        if self._tracer is None or not current.recording:
            return current
        return current.start_child(self._tracer, name, kind)
