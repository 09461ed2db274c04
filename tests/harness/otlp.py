"""A collector of traces: takes OTLP over HTTP and keeps every span, decoded."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

KINDS = {Span.SPAN_KIND_SERVER: "server", Span.SPAN_KIND_INTERNAL: "internal", Span.SPAN_KIND_CLIENT: "client"}


class Received:
    """One span as it arrived, ids in hexadecimal.

    Attributes:
        resource: attributes of what sent it.
        events: attributes by name of the event.
    """

    def __init__(self, span: Span, resource: dict[str, Any]) -> None:
        self.name = span.name
        self.kind = KINDS[span.kind]
        self.trace_id, self.span_id = span.trace_id.hex(), span.span_id.hex()
        self.parent = span.parent_span_id.hex()
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.attributes = _attributes(span.attributes)
        self.events = {event.name: _attributes(event.attributes) for event in span.events}
        self.failed = span.status.code == Status.STATUS_CODE_ERROR
        self.seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.resource = resource

    def __repr__(self) -> str:
        return f"{self.kind} {self.name} {self.attributes}"


class Collector:
    """The server; use it as a context manager."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._build_handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a gateway send its traces here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
        }

    def await_trace(self, root: str, spans: int, timeout: float = 10.0, **attributes: Any) -> list[Received]:
        """Return the trace whose root has this name and these attributes, once it has so many spans; parents first.

        Args:
            root: name of the span.
            spans: how many at least.
            timeout: seconds until it fails.
            attributes: of the root, with `_` for `.`.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                found = self._find(root, attributes)
                if len(found) >= spans:
                    return found
                left = deadline - time.monotonic()
                assert left > 0, f"no trace {root} {attributes} of {spans} spans among {self.spans}"
                self._changed.wait(left)

    def _find(self, root: str, attributes: dict[str, Any]) -> list[Received]:
        for top in self.spans:
            told = {name.replace(".", "_"): value for name, value in top.attributes.items()}
            if top.name == root and attributes.items() <= told.items():
                of_trace = [span for span in self.spans if span.trace_id == top.trace_id]
                return sorted(of_trace, key=lambda span: ("server", "internal", "client").index(span.kind))
        return []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            for of_resource in request.resource_spans:
                resource = _attributes(of_resource.resource.attributes)
                for scope in of_resource.scope_spans:
                    self.spans += [Received(span, resource) for span in scope.spans]
            self._changed.notify_all()

    def _build_handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
