"""The metrics of one app, in a registry of its own."""

import asyncio
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as PrometheusFamily

from gateway import __version__
from gateway.protocol.response import Usage
from gateway.telemetry import names
from gateway.telemetry.histogram import Histogram, Tally
from gateway.telemetry.last_errors import LastErrors
from gateway.telemetry.loads import BackgroundLoad, CallLoad, DeliveryLoad, Level, SocketLoad, StorageLoad, ToolLoad
from gateway.telemetry.names import Metric

_End: TypeAlias = tuple[float, int, int | None]
# Of one metric, which are settled alone: of all at once, the event loop would feel it.
_DEFERRED_TOGETHER = 256
_Family = TypeVar("_Family", bound=MetricWrapperBase)


class Metrics:
    """Every metric family, created once and held by attribute: a bump is one call, without a lookup by name.

    Families without labels are bumped directly, `metrics.stream_events_total.inc(12)`; the others through their
    labels in order, `metrics.responses_total.labels("sse", "completed").inc()`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._deferred: defaultdict[Counter | Histogram, list[float]] = defaultdict(list)
        self._ends: defaultdict[tuple[str, str], list[_End]] = defaultdict(list)
        self._watched: dict[Gauge, Callable[[], float]] = {}
        self.registry.register(_BeforeAll(self.refresh))
        ProcessCollector(registry=self.registry)

        self.requests_total = self._counter(names.REQUESTS)
        self.request_seconds = self._histogram(names.REQUEST_SECONDS)
        self.request_body_bytes = self._histogram(names.REQUEST_BODY_BYTES)
        self.response_errors_total = self._counter(names.RESPONSE_ERRORS)
        self.responses_total = self._counter(names.RESPONSES)
        self.response_seconds = self._histogram(names.RESPONSE_SECONDS)
        self.rejections_total = self._counter(names.REJECTIONS)
        self.active_responses = self._level(names.ACTIVE_RESPONSES, names.ACTIVE_RESPONSES_HIGH, Level())
        self.client_connections = self._level(names.CLIENT_CONNECTIONS, names.CLIENT_CONNECTIONS_HIGH, Level())
        self.watch(self._gauge(names.TASKS), _count_tasks)
        self.stream_events_total = self._counter(names.STREAM_EVENTS)
        self.ttft_seconds = self._histogram(names.TTFT_SECONDS)
        self.inter_token_seconds = self._histogram(names.INTER_TOKEN_SECONDS)
        self.inter_token_tally = Tally(self.inter_token_seconds)
        self.tokens_total = self._counter(names.TOKENS)

        self.upstream_healthy = self._gauge(names.UPSTREAM_HEALTHY)
        self.upstream_requests_total = self._counter(names.UPSTREAM_REQUESTS)
        self.upstream_ttfb_seconds = self._histogram(names.UPSTREAM_TTFB_SECONDS)
        self.calls: dict[str, CallLoad] = {}
        self._calls_running = self._gauge(names.UPSTREAM_CALLS_RUNNING), self._gauge(names.UPSTREAM_CALLS_RUNNING_HIGH)
        self._calls_waiting = self._gauge(names.UPSTREAM_CALLS_WAITING), self._gauge(names.UPSTREAM_CALLS_WAITING_HIGH)

        self.upstream_connect_retries_total = self._counter(names.UPSTREAM_CONNECT_RETRIES)
        self.upstream_breaker_state = self._gauge(names.UPSTREAM_BREAKER_STATE)

        self.last_errors = LastErrors()

        self.coalescing_rests_total = self._counter(names.COALESCING_RESTS)
        self.delivery_load = load = DeliveryLoad()
        self._level(names.DELIVERY_QUEUE_BATCHES, names.DELIVERY_QUEUE_BATCHES_HIGH, load.batches)
        self._level(names.DELIVERY_QUEUE_BYTES, names.DELIVERY_QUEUE_BYTES_HIGH, load.bytes)
        self.client_disconnects_total = self._counter(names.CLIENT_DISCONNECTS)
        self.unknown_events_total = self._counter(names.UNKNOWN_EVENTS)
        self.unsupported_tools_total = self._counter(names.UNSUPPORTED_TOOLS)

        self.mcp_sessions = self._level(names.MCP_SESSIONS, names.MCP_SESSIONS_HIGH, Level())
        self.mcp_faults_total = self._counter(names.MCP_FAULTS)
        self.mcp_tools_left_out_total = self._counter(names.MCP_TOOLS_LEFT_OUT)

        self._declare_limits()
        self._declare_sockets()
        self._declare_storage()
        self._declare_compaction()
        self._declare_tokens()
        self._declare_tools()

        self.web_search_queries_total = self._counter(names.WEB_SEARCH_QUERIES)
        self.api_keys = self._gauge(names.API_KEYS)
        self.api_key_reads_total = self._counter(names.API_KEY_READS)
        self._declare_process()

    def _declare_process(self) -> None:
        self._declare_background()
        self._trace_spans_total = self._counter(names.TRACE_SPANS)
        self.config_reloads_total = self._counter(names.CONFIG_RELOADS)
        self.config_last_reload_timestamp_seconds = self._gauge(names.CONFIG_LAST_RELOAD)
        self.workers = self._gauge(names.WORKERS)
        self.worker_ends_total = self._counter(names.WORKER_ENDS)
        build_info = self._gauge(names.BUILD_INFO)
        build_info.labels(version=__version__, python=platform.python_version()).set(1)

    def _declare_limits(self) -> None:
        self.limit_breaches_total = self._counter(names.LIMIT_BREACHES)
        self.limit_bytes = self._gauge(names.LIMIT_BYTES)
        self.retained_bytes = self._histogram(names.RETAINED_BYTES)
        self.stream_event_bytes = self._histogram(names.STREAM_EVENT_BYTES)
        self.upstream_line_bytes = self._histogram(names.UPSTREAM_LINE_BYTES)
        self.upstream_json_bytes = self._histogram(names.UPSTREAM_JSON_BYTES)

    def _declare_sockets(self) -> None:
        self.socket_load = load = SocketLoad()
        self._level(names.WEBSOCKETS, names.WEBSOCKETS_HIGH, load.connections)
        self._level(names.WEBSOCKET_RUNNING, names.WEBSOCKET_RUNNING_HIGH, load.running)
        self._level(names.WEBSOCKET_WAITING, names.WEBSOCKET_WAITING_HIGH, load.waiting)
        self._level(names.WEBSOCKET_OUTSTANDING_BYTES, names.WEBSOCKET_OUTSTANDING_BYTES_HIGH, load.outstanding_bytes)
        self._level(names.WEBSOCKET_SESSION_BYTES, names.WEBSOCKET_SESSION_BYTES_HIGH, load.session_bytes)
        self.websocket_message_bytes = self._histogram(names.WEBSOCKET_MESSAGE_BYTES)
        self.websocket_errors_total = self._counter(names.WEBSOCKET_ERRORS)
        self.websocket_closes_total = self._counter(names.WEBSOCKET_CLOSES)
        self.checkpoints_total = self._counter(names.WEBSOCKET_CHECKPOINTS)
        self.session_lookups_total = self._counter(names.WEBSOCKET_LOOKUPS)
        self.controls_total = self._counter(names.WEBSOCKET_CONTROLS)
        self._level(names.WEBSOCKET_CONTROLS_WAITING, names.WEBSOCKET_CONTROLS_WAITING_HIGH, load.controls)
        self._level(names.WEBSOCKET_CONTROL_BYTES, names.WEBSOCKET_CONTROL_BYTES_HIGH, load.control_bytes)

    def _declare_background(self) -> None:
        self.background_load = load = BackgroundLoad()
        self._level(names.BACKGROUND_QUEUED, names.BACKGROUND_QUEUED_HIGH, load.queued)
        self._level(names.BACKGROUND_RUNNING, names.BACKGROUND_RUNNING_HIGH, load.running)
        self.background_recovered_total = self._counter(names.BACKGROUND_RECOVERED)
        self.background_event_bytes_total = self._counter(names.BACKGROUND_EVENT_BYTES)
        self.background_readers = self._level(names.BACKGROUND_READERS, names.BACKGROUND_READERS_HIGH, Level())

    def _declare_tokens(self) -> None:
        self.oidc_tokens_total = self._counter(names.OIDC_TOKENS)
        self.oidc_remembered_tokens = self._gauge(names.OIDC_REMEMBERED_TOKENS)
        self.oidc_fetches_total = self._counter(names.OIDC_FETCHES)
        self.oidc_keys_fetched_timestamp_seconds = self._gauge(names.OIDC_KEYS_FETCHED)

    def _declare_tools(self) -> None:
        self.tool_load = load = ToolLoad()
        self._level(names.TOOL_WORK_RUNNING, names.TOOL_WORK_RUNNING_HIGH, load.running)
        self._level(names.TOOL_WORK_WAITING, names.TOOL_WORK_WAITING_HIGH, load.waiting)
        self.tool_calls_total = self._counter(names.TOOL_CALLS)
        self.tool_call_seconds = self._histogram(names.TOOL_CALL_SECONDS)
        self.tool_output_bytes = self._histogram(names.TOOL_OUTPUT_BYTES)
        self.tool_listings_total = self._counter(names.TOOL_LISTINGS)
        self.agents_active = self._level(names.AGENTS_ACTIVE, names.AGENTS_ACTIVE_HIGH, Level())
        self.agents_spawned_total = self._counter(names.AGENTS_SPAWNED)
        self.agent_actions_total = self._counter(names.AGENT_ACTIONS)
        self.agent_rounds = self._histogram(names.AGENT_ROUNDS)
        self.tool_rounds = self._histogram(names.TOOL_ROUNDS)

    def _declare_compaction(self) -> None:
        self.compactions_total = self._counter(names.COMPACTIONS)
        self.compaction_seconds = self._histogram(names.COMPACTION_SECONDS)

    def _declare_storage(self) -> None:
        self.storage_load = load = StorageLoad()
        self._level(names.STORAGE_QUEUE_ENTRIES, names.STORAGE_QUEUE_ENTRIES_HIGH, load.entries)
        self._level(names.STORAGE_QUEUE_BYTES, names.STORAGE_QUEUE_BYTES_HIGH, load.bytes)
        self.storage_append_seconds = self._histogram(names.STORAGE_APPEND_SECONDS)
        self.storage_failures_total = self._counter(names.STORAGE_FAILURES)
        self.storage_reads_total = self._counter(names.STORAGE_READS)
        self.storage_read_seconds = self._histogram(names.STORAGE_READ_SECONDS)
        self.storage_deletions_total = self._counter(names.STORAGE_DELETIONS)
        self.usage_lost_responses_total = self._counter(names.USAGE_LOST)
        self.usage_failures_total = self._counter(names.USAGE_FAILURES)

        self.history_cache_lookups_total = self._counter(names.HISTORY_CACHE_LOOKUPS)
        self.history_cache_bytes = self._gauge(names.HISTORY_CACHE_BYTES)
        self.history_cache_evictions_total = self._counter(names.HISTORY_CACHE_EVICTIONS)

        self.retention_removed_responses_total = self._counter(names.RETENTION_REMOVED)
        self.retention_sweep_seconds = self._histogram(names.RETENTION_SWEEP_SECONDS)
        self.retention_last_sweep_timestamp_seconds = self._gauge(names.RETENTION_LAST_SWEEP)
        self.retention_failures_total = self._counter(names.RETENTION_FAILURES)

    def defer(self, metric: Counter | Histogram, amount: float = 1) -> None:
        """Bump a metric a little later, together with others: a bump here and there costs several times as much.

        Whoever reads the registry sees it. For the event loop's thread alone.

        Args:
            metric: a family without labels, or a child.
            amount: what to bump it by, or what it is to observe.
        """
        amounts = self._deferred[metric]
        amounts.append(amount)
        if len(amounts) >= _DEFERRED_TOGETHER:
            _bump(metric, self._deferred.pop(metric))

    def count_response(
        self, transport: str, status: str, seconds: float, retained: int, largest_event: int | None
    ) -> None:
        """Count a response that has ended, a little later as well.

        Args:
            transport: that of its caller.
            status: how it ended.
            seconds: how long it took.
            retained: bytes that it kept.
            largest_event: bytes of its largest event; None where it told none.
        """
        ends = self._ends[transport, status]
        ends.append((seconds, retained, largest_event))
        if len(ends) >= _DEFERRED_TOGETHER:
            self._count_ends(transport, status, self._ends.pop((transport, status)))

    def note_failure(self, route: str, status: int, code: str, bound: str | None) -> None:
        """Remember a failure, as `LastErrors.note`, and count it if a bound was met.

        Args:
            route: the route's template or the transport.
            status: the HTTP status, or the one it would be.
            code: of the error.
            bound: key of the configuration that was met.
        """
        self.last_errors.note(route, status, code)
        self.note_rejection(bound)

    def note_rejection(self, bound: str | None) -> None:
        """Count that something was refused because of a bound, if there was one."""
        if bound is not None:
            self.rejections_total.labels(bound).inc()

    def count_spans(self, outcome: str, number: int) -> None:
        """Count spans by what became of them; for any thread."""
        self._trace_spans_total.labels(outcome).inc(number)

    def count_usage(self, model: str, usage: Usage | None) -> None:
        """Count the tokens of one inference call, if it told them.

        Args:
            model: never a caller's own word.
            usage: its tokens.
        """
        if usage is None:
            return
        for kind, amount in (
            ("input", usage.input_tokens),
            ("cached", usage.input_tokens_details.cached_tokens),
            ("output", usage.output_tokens),
            ("reasoning", usage.output_tokens_details.reasoning_tokens),
        ):
            if amount:
                self.defer(self.tokens_total.labels(model, kind), amount)

    def watch_calls(self, upstream: str, load: CallLoad) -> None:
        """Show the calls of an inference server under its name from now on."""
        self.calls[upstream] = load
        self._show(load.running, *self._calls_running, upstream)
        self._show(load.waiting, *self._calls_waiting, upstream)

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
        deferred, self._deferred = self._deferred, defaultdict(list)
        for metric, amounts in deferred.items():
            _bump(metric, amounts)
        ended, self._ends = self._ends, defaultdict(list)
        for (transport, status), ends in ended.items():
            self._count_ends(transport, status, ends)
        self.inter_token_tally.settle()

    def _count_ends(self, transport: str, status: str, ends: Sequence[_End]) -> None:
        seconds, retained, largest = zip(*ends, strict=True)
        self.responses_total.labels(transport, status).inc(len(ends))
        self.response_seconds.labels(transport, status).observe_all(seconds)
        self.retained_bytes.observe_all(retained)
        if sizes := [size for size in largest if size is not None]:
            self.stream_event_bytes.observe_all(sizes)

    def _counter(self, metric: Metric) -> Counter:
        return _remember_children(Counter(metric.name, metric.help, metric.labels, registry=self.registry))

    def _gauge(self, metric: Metric) -> Gauge:
        mode: Any = f"live{metric.across}"
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry, multiprocess_mode=mode)

    def _level(self, now: Metric, high: Metric, level: Level) -> Level:
        """Show a number, and the most it has been; returns the number."""
        self._show(level, self._gauge(now), self._gauge(high))
        return level

    def _show(self, level: Level, now: Gauge, high: Gauge, *labels: str) -> None:
        self.watch(now, lambda: level.now, *labels)
        self.watch(high, lambda: level.high, *labels)

    def _histogram(self, metric: Metric) -> Histogram:
        return _remember_children(
            Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)
        )


def _bump(metric: Counter | Histogram, amounts: Sequence[float]) -> None:
    if isinstance(metric, Histogram):
        metric.observe_all(amounts)
    else:
        metric.inc(sum(amounts))


class _BeforeAll:
    """A collector without metrics, the first of its registry: it lets something happen before each reading."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def collect(self) -> Iterable[PrometheusFamily]:
        """Act, and add nothing."""
        self._act()
        return ()


def read_values(numbers: Counter | Gauge) -> dict[tuple[str, ...], int]:
    """Return what this process counted or holds, as whole numbers, by the values of the labels."""
    samples = (sample for family in numbers.collect() for sample in family.samples)
    return {tuple(sample.labels.values()): int(sample.value) for sample in samples if "_created" not in sample.name}


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
