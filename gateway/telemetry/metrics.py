"""The metrics of one app, in a registry of its own."""

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from gateway import __version__
from gateway.telemetry import names
from gateway.telemetry.names import Metric


class DeliveryLoad:
    """What waits for clients over all responses; plain numbers, because they change with every batch.

    Attributes:
        batches: batches waiting.
        bytes: their bytes.
    """

    __slots__ = ("batches", "bytes")

    def __init__(self) -> None:
        self.batches = 0
        self.bytes = 0


class Metrics:
    """Every metric family, created once and held by attribute: a bump is one call, without a lookup by name.

    Families without labels are bumped directly, `metrics.stream_events_total.inc(12)`; the others through their
    labels, `metrics.responses_total.labels(transport="sse", status="completed").inc()`. A caller on a hot path
    keeps the child that `labels()` returns.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        self.requests_total = self._counter(names.REQUESTS)
        self.request_seconds = self._histogram(names.REQUEST_SECONDS)
        self.responses_total = self._counter(names.RESPONSES)
        self.active_responses = self._gauge(names.ACTIVE_RESPONSES)
        self.stream_events_total = self._counter(names.STREAM_EVENTS)
        self.ttft_seconds = self._histogram(names.TTFT_SECONDS)

        self.upstream_requests_total = self._counter(names.UPSTREAM_REQUESTS)
        self.upstream_ttfb_seconds = self._histogram(names.UPSTREAM_TTFB_SECONDS)

        self.limit_breaches_total = self._counter(names.LIMIT_BREACHES)
        self.retained_bytes = self._histogram(names.RETAINED_BYTES)
        self.stream_event_bytes = self._histogram(names.STREAM_EVENT_BYTES)
        self.upstream_line_bytes = self._histogram(names.UPSTREAM_LINE_BYTES)
        self.upstream_json_bytes = self._histogram(names.UPSTREAM_JSON_BYTES)

        self.delivery_load = DeliveryLoad()
        self._gauge(names.DELIVERY_QUEUE_BATCHES).set_function(lambda: self.delivery_load.batches)
        self._gauge(names.DELIVERY_QUEUE_BYTES).set_function(lambda: self.delivery_load.bytes)
        self.client_disconnects_total = self._counter(names.CLIENT_DISCONNECTS)
        self.unknown_events_total = self._counter(names.UNKNOWN_EVENTS)
        self.unsupported_tools_total = self._counter(names.UNSUPPORTED_TOOLS)

        self.storage_append_seconds = self._histogram(names.STORAGE_APPEND_SECONDS)
        self.storage_failures_total = self._counter(names.STORAGE_FAILURES)

        build_info = self._gauge(names.BUILD_INFO)
        build_info.labels(version=__version__, python=platform.python_version()).set(1)

    def render(self) -> bytes:
        """Return the Prometheus text exposition of everything in the registry."""
        return generate_latest(self.registry)

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)
