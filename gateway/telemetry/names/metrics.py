"""Names of metrics."""

from typing import Literal

from msgspec import Struct

# Times of tokens use the engine's own buckets, so that both can share a panel.
_TTFT_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_INTER_TOKEN_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_STORAGE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_SWEEP_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
_BYTES = tuple(float(1024 * 4**power) for power in range(9))  # 1 KiB to 64 MiB


class Metric(Struct, frozen=True):
    """One metric family as it is exposed.

    Attributes:
        name: family name; a counter's samples are named exactly so, `_total` included.
        kind: Prometheus type.
        help: one sentence for the exposition and the reference page.
        labels: label names, in order.
        buckets: upper bounds of a histogram, in the unit of its name.
        across: what stands for several processes that show the same gauge.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    across: Literal["sum", "max", "min"] = "sum"


def high_water(gauge: Metric) -> Metric:
    """Return the metric of the most that a gauge has shown."""
    help = f"Most that `{gauge.name}` has been since the process began."
    return Metric(f"{gauge.name}_high_water", "gauge", help, gauge.labels)


REQUESTS = Metric(
    "gateway_requests_total", "counter", "HTTP requests answered, by route template.", ("route", "method", "status")
)
REQUEST_SECONDS = Metric(
    "gateway_request_seconds",
    "histogram",
    "Time from the request's headers to the last byte of its answer.",
    ("route",),
    _REQUEST_SECONDS,
)
REQUEST_BODY_BYTES = Metric(
    "gateway_request_body_bytes",
    "histogram",
    "Size of the body of one request for a response, if it was taken.",
    (),
    _BYTES,
)
RESPONSE_ERRORS = Metric(
    "gateway_response_errors_total",
    "counter",
    "Requests for a response that were answered with an error, by its code; whatever came from upstream is `upstream`.",
    ("code",),
)
RESPONSES = Metric(
    "gateway_responses_total",
    "counter",
    "Responses that reached an end, by transport and final status; refused by the inference server is `failed` too.",
    ("transport", "status"),
)
RESPONSE_SECONDS = Metric(
    "gateway_response_seconds",
    "histogram",
    "Time from a request that was read and checked to the end of its response, by transport and final status.",
    ("transport", "status"),
    _REQUEST_SECONDS,
)
REJECTIONS = Metric(
    "gateway_rejections_total",
    "counter",
    "Requests, creates and connections refused, or given up, because a bound was met, by its key.",
    ("key",),
)
ACTIVE_RESPONSES = Metric(
    "gateway_active_responses",
    "gauge",
    "Requests for a response being served now, from their headers to the last byte.",
)
ACTIVE_RESPONSES_HIGH = high_water(ACTIVE_RESPONSES)
CLIENT_CONNECTIONS = Metric("gateway_client_connections", "gauge", "Client connections open now.")
CLIENT_CONNECTIONS_HIGH = high_water(CLIENT_CONNECTIONS)
TASKS = Metric(
    "gateway_tasks",
    "gauge",
    "Tasks of the event loop; follows the requests being served, a rise without them is a leak.",
)
STREAM_EVENTS = Metric(
    "gateway_stream_events_total", "counter", "Events of streams, counted when they are handed over for sending."
)
TTFT_SECONDS = Metric(
    "gateway_time_to_first_token_seconds",
    "histogram",
    "Time from a request that was read and checked to the first output delta of its stream.",
    (),
    _TTFT_SECONDS,
)
INTER_TOKEN_SECONDS = Metric(
    "gateway_inter_token_seconds",
    "histogram",
    "Time between the output events of a stream after its first delta; those that arrived together share their wait.",
    (),
    _INTER_TOKEN_SECONDS,
)
TOKENS = Metric(
    "gateway_tokens_total",
    "counter",
    "Tokens as the inference servers count them: `input`, the `cached` among them, `output`, the `reasoning` among "
    "them. The model is `other` unless the configuration or the server's list has its name.",
    ("model", "kind"),
)
UPSTREAM_HEALTHY = Metric(
    "gateway_upstream_healthy",
    "gauge",
    "Whether the inference server passed its last probe: 1 or 0, and 0 before the first.",
    ("upstream",),
    across="min",
)
UPSTREAM_REQUESTS = Metric(
    "gateway_upstream_requests_total",
    "counter",
    "Inference calls, by HTTP status or `unavailable`, `timeout`, `cancelled`; `breaker_open` was refused unsent.",
    ("status",),
)
UPSTREAM_TTFB_SECONDS = Metric(
    "gateway_upstream_time_to_first_byte_seconds",
    "histogram",
    "Time from an inference call to its status line, or to its failure without one.",
    (),
    _TTFT_SECONDS,
)
UPSTREAM_CALLS_RUNNING = Metric(
    "gateway_upstream_calls_running",
    "gauge",
    "Inference calls of one inference server that run now, bounded by its `max_concurrent`.",
    ("upstream",),
)
UPSTREAM_CALLS_RUNNING_HIGH = high_water(UPSTREAM_CALLS_RUNNING)
UPSTREAM_CALLS_WAITING = Metric(
    "gateway_upstream_calls_waiting",
    "gauge",
    "Inference calls that wait for their turn because `max_concurrent` of them run.",
    ("upstream",),
)
UPSTREAM_CALLS_WAITING_HIGH = high_water(UPSTREAM_CALLS_WAITING)
UPSTREAM_CONNECT_RETRIES = Metric(
    "gateway_upstream_connect_retries_total",
    "counter",
    "Further attempts at calls for which no connection could be opened.",
    ("upstream",),
)
UPSTREAM_BREAKER_STATE = Metric(
    "gateway_upstream_breaker_state",
    "gauge",
    "Circuit breaker: 0 closed, 1 half-open (one call at a time is tried), 2 open (calls are refused).",
    ("upstream",),
    across="max",
)
LIMIT_BREACHES = Metric(
    "gateway_limit_breaches_total",
    "counter",
    "Responses ended by a limit of `[responses]`, `max_tree_bytes` of agents or a WebSocket's memory, by its key.",
    ("resource",),
)
LIMIT_BYTES = Metric(
    "gateway_limit_bytes",
    "gauge",
    "Limits in effect, by their key, for the histograms of what they bound.",
    ("key",),
    across="max",
)
RETAINED_BYTES = Metric(
    "gateway_retained_bytes", "histogram", "Logical output retained by one response at its end.", (), _BYTES
)
STREAM_EVENT_BYTES = Metric("gateway_stream_event_bytes", "histogram", "Largest event of one response.", (), _BYTES)
UPSTREAM_LINE_BYTES = Metric(
    "gateway_upstream_line_bytes",
    "histogram",
    "Longest data line of the event stream of one inference call that came to its end.",
    (),
    _BYTES,
)
UPSTREAM_JSON_BYTES = Metric(
    "gateway_upstream_json_bytes", "histogram", "Size of one inference call's JSON body.", (), _BYTES
)
COALESCING_RESTS = Metric(
    "gateway_coalescing_rests_total",
    "counter",
    "Rests of the event loop that let the events of many streams arrive together.",
)
DELIVERY_QUEUE_BATCHES = Metric(
    "gateway_delivery_queue_batches", "gauge", "Batches made for clients and not yet sent, over all responses."
)
DELIVERY_QUEUE_BATCHES_HIGH = high_water(DELIVERY_QUEUE_BATCHES)
DELIVERY_QUEUE_BYTES = Metric(
    "gateway_delivery_queue_bytes", "gauge", "Bytes made for clients and not yet sent, over all responses."
)
DELIVERY_QUEUE_BYTES_HIGH = high_water(DELIVERY_QUEUE_BYTES)
CLIENT_DISCONNECTS = Metric(
    "gateway_client_disconnects_total", "counter", "Clients that left, or stopped reading, before their answer ended."
)
UNKNOWN_EVENTS = Metric(
    "gateway_unknown_events_total", "counter", "Events of the inference server the gateway does not know."
)
UNSUPPORTED_TOOLS = Metric(
    "gateway_unsupported_tools_total", "counter", "Hosted tools left out of a request because they cannot be run."
)
WEBSOCKETS = Metric("gateway_websocket_connections", "gauge", "WebSockets open now.")
WEBSOCKETS_HIGH = high_water(WEBSOCKETS)
WEBSOCKET_RUNNING = Metric("gateway_websocket_creates_running", "gauge", "Creates of WebSockets that run now.")
WEBSOCKET_RUNNING_HIGH = high_water(WEBSOCKET_RUNNING)
WEBSOCKET_WAITING = Metric(
    "gateway_websocket_creates_waiting", "gauge", "Creates of WebSockets that wait for their lane or for a free place."
)
WEBSOCKET_WAITING_HIGH = high_water(WEBSOCKET_WAITING)
WEBSOCKET_OUTSTANDING_BYTES = Metric(
    "gateway_websocket_outstanding_bytes", "gauge", "Bytes of the creates of WebSockets that wait or run."
)
WEBSOCKET_OUTSTANDING_BYTES_HIGH = high_water(WEBSOCKET_OUTSTANDING_BYTES)
WEBSOCKET_MESSAGE_BYTES = Metric(
    "gateway_websocket_message_bytes", "histogram", "Size of one message of a WebSocket client.", (), _BYTES
)
WEBSOCKET_ERRORS = Metric(
    "gateway_websocket_errors_total",
    "counter",
    "Error frames sent on WebSockets, by code; whatever came from upstream is `upstream`.",
    ("code",),
)
WEBSOCKET_CLOSES = Metric(
    "gateway_websocket_closes_total",
    "counter",
    "WebSockets that ended, by close code and by who ended them; 1006 without Close, `other` for a client's own codes.",
    ("code", "by"),
)
WEBSOCKET_SESSION_BYTES = Metric(
    "gateway_websocket_session_bytes", "gauge", "Histories kept in memory for WebSockets, as JSON."
)
WEBSOCKET_SESSION_BYTES_HIGH = high_water(WEBSOCKET_SESSION_BYTES)
WEBSOCKET_CHECKPOINTS = Metric(
    "gateway_websocket_checkpoints_total",
    "counter",
    "Histories of WebSockets by what became of them: `kept` in memory, `too_large` for it, or `evicted` by a failure.",
    ("outcome",),
)
WEBSOCKET_LOOKUPS = Metric(
    "gateway_websocket_parent_lookups_total",
    "counter",
    "Continuations on WebSockets: `hit` in the memory of the connection, or `miss`, which asks the database.",
    ("outcome",),
)
STORAGE_QUEUE_ENTRIES = Metric(
    "gateway_storage_queue_entries", "gauge", "Responses and deletions waiting for a commit, or in one."
)
STORAGE_QUEUE_ENTRIES_HIGH = high_water(STORAGE_QUEUE_ENTRIES)
STORAGE_QUEUE_BYTES = Metric("gateway_storage_queue_bytes", "gauge", "Bytes waiting for a commit, or in one.")
STORAGE_QUEUE_BYTES_HIGH = high_water(STORAGE_QUEUE_BYTES)
STORAGE_APPEND_SECONDS = Metric(
    "gateway_storage_append_seconds",
    "histogram",
    "Time from handing a response to storage to its commit, when there was one.",
    (),
    _STORAGE_SECONDS,
)
STORAGE_FAILURES = Metric("gateway_storage_failures_total", "counter", "Responses that could not be stored.")
STORAGE_READS = Metric(
    "gateway_storage_reads_total",
    "counter",
    "Questions to the database: `history`, `liveness` of a response whose history is in memory, `response`, `items`, "
    "`conversation`, `conversation_items`, `conversation_item`, `stored_bytes` of a principal, `background_*` of "
    "background responses, of which `background_orphans` is asked again and again, or `probe` for readiness checks and "
    "checks before an inference.",
    ("query",),
)
STORAGE_READ_SECONDS = Metric(
    "gateway_storage_read_seconds",
    "histogram",
    "Time of a question that the database answered, waiting for a reader included.",
    ("query",),
    _STORAGE_SECONDS,
)
HISTORY_CACHE_LOOKUPS = Metric(
    "gateway_history_cache_lookups_total",
    "counter",
    "Histories asked for: `hit`, `revalidated` after asking whether the response still exists, `gone` when it did "
    "not, `miss` when the history was read.",
    ("outcome",),
)
HISTORY_CACHE_BYTES = Metric("gateway_history_cache_bytes", "gauge", "Memory accounted to histories.")
HISTORY_CACHE_EVICTIONS = Metric(
    "gateway_history_cache_evictions_total", "counter", "Histories dropped from memory to make room."
)
STORAGE_DELETIONS = Metric(
    "gateway_storage_deletions_total", "counter", "Responses deleted by callers through this process."
)
RETENTION_REMOVED = Metric(
    "gateway_retention_removed_responses_total", "counter", "Old and deleted responses this process removed for good."
)
RETENTION_SWEEP_SECONDS = Metric(
    "gateway_retention_sweep_seconds",
    "histogram",
    "Time of one sweep that came to its end, pauses between its transactions included.",
    (),
    _SWEEP_SECONDS,
)
RETENTION_LAST_SWEEP = Metric(
    "gateway_retention_last_sweep_timestamp_seconds",
    "gauge",
    "Unix time at which the last sweep came to its end, 0 before the first.",
    across="max",
)
RETENTION_FAILURES = Metric("gateway_retention_failures_total", "counter", "Sweeps that the database broke off.")
OIDC_TOKENS = Metric(
    "gateway_oidc_tokens_total",
    "counter",
    "Tokens checked, those remembered aside: `accepted`, `refused`, or `unavailable` when the issuer gave no keys.",
    ("outcome",),
)
OIDC_REMEMBERED_TOKENS = Metric(
    "gateway_oidc_remembered_tokens", "gauge", "Checked tokens in memory, bounded by `remembered_tokens`."
)
OIDC_FETCHES = Metric(
    "gateway_oidc_key_fetches_total",
    "counter",
    "Times the issuer was asked for its keys: `fetched` or `failed`.",
    ("outcome",),
)
OIDC_KEYS_FETCHED = Metric(
    "gateway_oidc_keys_fetched_timestamp_seconds",
    "gauge",
    "Unix time at which the issuer's keys were last fetched, 0 before the first.",
    across="min",
)
TRACE_SPANS = Metric(
    "gateway_trace_spans_total",
    "counter",
    "Spans that were `recorded`, and by exporter those `exported` or `failed`; the rest was dropped, or still waits.",
    ("outcome",),
)
CONFIG_RELOADS = Metric(
    "gateway_config_reloads_total",
    "counter",
    "Reloads by outcome: `applied`, `unchanged`, `restart_needed` by some key, `failed`, or `ignored` in a drain.",
    ("outcome",),
)
CONFIG_LAST_RELOAD = Metric(
    "gateway_config_last_reload_timestamp_seconds",
    "gauge",
    "Unix time at which the configuration was last read without a fault, the start included.",
    across="min",
)
WORKERS = Metric("gateway_workers", "gauge", "Worker processes that serve now; 0 where one process does everything.")
WORKER_ENDS = Metric(
    "gateway_worker_ends_total",
    "counter",
    "Worker processes that ended and were to be started again: before they served (`start`), by a `signal`, by an"
    " `exit`.",
    ("reason",),
)
WEB_SEARCH_QUERIES = Metric(
    "gateway_web_search_queries_total",
    "counter",
    "Queries put to the search provider: `answered`, `refused` with 401 or 403, `busy` with 429 or 503, `failed`,"
    " `timeout`, `too_large`, `invalid` or `unreachable`.",
    ("outcome",),
)
API_KEYS = Metric(
    "gateway_api_keys", "gauge", "Keys of callers that are known and not revoked, as last read.", across="max"
)
API_KEY_READS = Metric(
    "gateway_api_key_reads_total",
    "counter",
    "Looks at where the keys of callers are kept: `read`, or `failed`, after which those known before go on.",
    ("outcome",),
)
BUILD_INFO = Metric(
    "gateway_build_info", "gauge", "Always 1; names the running version.", ("version", "python"), across="max"
)
