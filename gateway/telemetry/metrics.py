"""The metrics of one app, in a registry of its own."""

import asyncio
import platform
from bisect import bisect_left
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as PrometheusFamily

from gateway import __version__
from gateway.telemetry import names
from gateway.telemetry.names import Metric

_DEFERRED_TOGETHER = 512
_Family = TypeVar("_Family", bound=MetricWrapperBase)


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


class SocketLoad:
    """What the WebSockets of a process hold; plain numbers, changed on the event loop alone.

    Attributes:
        connections: sockets open.
        running: creates that run.
        waiting: creates that wait.
        outstanding_bytes: frames of both.
        session_bytes: histories in memory.
    """

    __slots__ = ("connections", "outstanding_bytes", "running", "session_bytes", "waiting")

    def __init__(self) -> None:
        self.connections = 0
        self.running = 0
        self.waiting = 0
        self.outstanding_bytes = 0
        self.session_bytes = 0


class StorageLoad:
    """What waits to be written to the database; changed on the event loop alone.

    Attributes:
        entries: responses and deletions that wait or are being committed.
        bytes: their bytes.
    """

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries = 0
        self.bytes = 0


class CallLoad(Protocol):
    """The calls of one inference server."""

    @property
    def taken(self) -> int:
        """Calls that run."""
        ...

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn."""
        ...


class Metrics:
    """Every metric family, created once and held by attribute: a bump is one call, without a lookup by name.

    Families without labels are bumped directly, `metrics.stream_events_total.inc(12)`; the others through their
    labels in order, `metrics.responses_total.labels("sse", "completed").inc()`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._deferred: deque[tuple[Callable[[float], None], float]] = deque()
        self._watched: dict[Gauge, Callable[[], float]] = {}
        self.registry.register(_BeforeAll(self.refresh))
        ProcessCollector(registry=self.registry)

        self.requests_total = self._counter(names.REQUESTS)
        self.request_seconds = self._histogram(names.REQUEST_SECONDS)
        self.request_body_bytes = self._histogram(names.REQUEST_BODY_BYTES)
        self.response_errors_total = self._counter(names.RESPONSE_ERRORS)
        self.responses_total = self._counter(names.RESPONSES)
        self.active_responses = self._gauge(names.ACTIVE_RESPONSES)
        self.client_connections = self._gauge(names.CLIENT_CONNECTIONS)
        self.watch(self._gauge(names.TASKS), _count_tasks)
        self.stream_events_total = self._counter(names.STREAM_EVENTS)
        self.ttft_seconds = self._histogram(names.TTFT_SECONDS)

        self.upstream_requests_total = self._counter(names.UPSTREAM_REQUESTS)
        self.upstream_ttfb_seconds = self._histogram(names.UPSTREAM_TTFB_SECONDS)
        self._upstream_calls_running = self._gauge(names.UPSTREAM_CALLS_RUNNING)
        self._upstream_calls_waiting = self._gauge(names.UPSTREAM_CALLS_WAITING)

        self.upstream_connect_retries_total = self._counter(names.UPSTREAM_CONNECT_RETRIES)
        self.upstream_breaker_state = self._gauge(names.UPSTREAM_BREAKER_STATE)

        self.limit_breaches_total = self._counter(names.LIMIT_BREACHES)
        self.retained_bytes = self._histogram(names.RETAINED_BYTES)
        self.stream_event_bytes = self._histogram(names.STREAM_EVENT_BYTES)
        self.upstream_line_bytes = self._histogram(names.UPSTREAM_LINE_BYTES)
        self.upstream_json_bytes = self._histogram(names.UPSTREAM_JSON_BYTES)

        self.coalescing_rests_total = self._counter(names.COALESCING_RESTS)
        self.delivery_load = DeliveryLoad()
        self.watch(self._gauge(names.DELIVERY_QUEUE_BATCHES), lambda: self.delivery_load.batches)
        self.watch(self._gauge(names.DELIVERY_QUEUE_BYTES), lambda: self.delivery_load.bytes)
        self.client_disconnects_total = self._counter(names.CLIENT_DISCONNECTS)
        self.unknown_events_total = self._counter(names.UNKNOWN_EVENTS)
        self.unsupported_tools_total = self._counter(names.UNSUPPORTED_TOOLS)

        self._declare_sockets()
        self._declare_storage()

        self.config_reloads_total = self._counter(names.CONFIG_RELOADS)
        self.config_last_reload_timestamp_seconds = self._gauge(names.CONFIG_LAST_RELOAD)

        build_info = self._gauge(names.BUILD_INFO)
        build_info.labels(version=__version__, python=platform.python_version()).set(1)

    def _declare_sockets(self) -> None:
        self.socket_load = SocketLoad()
        self.watch(self._gauge(names.WEBSOCKETS), lambda: self.socket_load.connections)
        self.watch(self._gauge(names.WEBSOCKET_RUNNING), lambda: self.socket_load.running)
        self.watch(self._gauge(names.WEBSOCKET_WAITING), lambda: self.socket_load.waiting)
        self.watch(self._gauge(names.WEBSOCKET_OUTSTANDING_BYTES), lambda: self.socket_load.outstanding_bytes)
        self.watch(self._gauge(names.WEBSOCKET_SESSION_BYTES), lambda: self.socket_load.session_bytes)
        self.websocket_message_bytes = self._histogram(names.WEBSOCKET_MESSAGE_BYTES)
        self.websocket_errors_total = self._counter(names.WEBSOCKET_ERRORS)
        self.websocket_closes_total = self._counter(names.WEBSOCKET_CLOSES)
        self.checkpoints_total = self._counter(names.WEBSOCKET_CHECKPOINTS)
        self.session_lookups_total = self._counter(names.WEBSOCKET_LOOKUPS)

    def _declare_storage(self) -> None:
        self.storage_load = StorageLoad()
        self.watch(self._gauge(names.STORAGE_QUEUE_ENTRIES), lambda: self.storage_load.entries)
        self.watch(self._gauge(names.STORAGE_QUEUE_BYTES), lambda: self.storage_load.bytes)
        self.storage_append_seconds = self._histogram(names.STORAGE_APPEND_SECONDS)
        self.storage_failures_total = self._counter(names.STORAGE_FAILURES)
        self.storage_reads_total = self._counter(names.STORAGE_READS)
        self.storage_deletions_total = self._counter(names.STORAGE_DELETIONS)

        self.history_cache_lookups_total = self._counter(names.HISTORY_CACHE_LOOKUPS)
        self.history_cache_bytes = self._gauge(names.HISTORY_CACHE_BYTES)
        self.history_cache_evictions_total = self._counter(names.HISTORY_CACHE_EVICTIONS)

        self.retention_removed_responses_total = self._counter(names.RETENTION_REMOVED)
        self.retention_sweep_seconds = self._histogram(names.RETENTION_SWEEP_SECONDS)
        self.retention_last_sweep_timestamp_seconds = self._gauge(names.RETENTION_LAST_SWEEP)
        self.retention_failures_total = self._counter(names.RETENTION_FAILURES)

    def defer(self, bump: Callable[[float], None], amount: float = 1) -> None:
        """Bump a metric a little later, together with others: a bump here and there costs several times as much.

        Whoever reads the registry sees it. For the event loop's thread alone.

        Args:
            bump: `inc` or `observe` of a family without labels, or of a child.
            amount: what to bump it by.
        """
        self._deferred.append((bump, amount))
        if len(self._deferred) >= _DEFERRED_TOGETHER:
            self._settle()

    def watch_calls(self, upstream: str, load: CallLoad) -> None:
        """Show the calls of an inference server under its name from now on."""
        self.watch(self._upstream_calls_running, lambda: load.taken, upstream)
        self.watch(self._upstream_calls_waiting, lambda: load.waiting, upstream)

    def watch(self, gauge: Gauge, read: Callable[[], float], *labels: str) -> None:
        """Show what a function returns whenever the metrics are read; of several for one gauge, the last."""
        self._watched[gauge.labels(*labels) if labels else gauge] = read

    def refresh(self) -> None:
        """Bring everything up to date that is not kept so at every moment; whoever reads the registry does."""
        self._settle()
        for gauge, read in self._watched.items():
            gauge.set(read())

    def render(self) -> bytes:
        """Return the Prometheus text exposition of everything in the registry."""
        return generate_latest(self.registry)

    def _settle(self) -> None:
        together: dict[Callable[[float], None], list[float]] = {}
        while self._deferred:
            bump, amount = self._deferred.popleft()
            together.setdefault(bump, []).append(amount)
        for bump, amounts in together.items():
            family = getattr(bump, "__self__", None)
            if isinstance(family, _Histogram):
                family.observe_all(amounts)
            else:
                bump(sum(amounts))

    def _counter(self, metric: Metric) -> Counter:
        return _remember_children(Counter(metric.name, metric.help, metric.labels, registry=self.registry))

    def _gauge(self, metric: Metric) -> Gauge:
        mode: Any = f"live{metric.across}"
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry, multiprocess_mode=mode)

    def _histogram(self, metric: Metric) -> Histogram:
        return _remember_children(
            _Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)
        )


class _Histogram(Histogram):
    """A histogram that takes many values at once: one by one, each costs a walk along the buckets and two locks."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Observe the values, in any order."""
        self._sum.inc(sum(amounts))
        for bucket, count in Counts(bisect_left(self._upper_bounds, amount) for amount in amounts).items():
            self._buckets[bucket].inc(count)


class _BeforeAll:
    """A collector without metrics, the first of its registry: it lets something happen before each reading."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def collect(self) -> Iterable[PrometheusFamily]:
        """Act, and add nothing."""
        self._act()
        return ()


def _remember_children(family: _Family) -> _Family:
    """Make looking up a child by its labels cheap; the family keeps its children for ever anyway."""
    family.labels = cache(family.labels)  # type: ignore[method-assign]
    return family


def _count_tasks() -> int:
    """Count the tasks of the event loop that shows the metrics; none where they are shown outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
