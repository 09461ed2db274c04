"""Every setting, once: type, default, bounds and description."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Struct, field

from gateway.config.kinds import (
    ApiKey,
    Bind,
    Count,
    CountOrZero,
    DatabaseUrl,
    Duration,
    DurationOrZero,
    FilePath,
    HeaderNames,
    Host,
    Hosts,
    HttpUrl,
    Names,
    Origins,
    Port,
    Share,
    Size,
    SizeOrZero,
    doc,
)
from gateway.config.secret import SecretUrl
from gateway.config.units import KIB, MIB

DEFAULT_UPSTREAM = "default"
_DEFAULT_DATABASE = "sqlite:///responses.db"

AllowedField = Literal[
    "request_id",
    "priority",
    "cache_salt",
    "kv_transfer_params",
    "ec_transfer_params",
    "previous_input_messages",
    "enable_response_messages",
]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every section."""


class ServerConfig(Section, frozen=True, kw_only=True):
    """The listener callers use, and how long it waits for them."""

    host: Annotated[
        Host,
        doc("Address to listen on. A loopback address keeps the gateway private to this machine."),
    ] = "127.0.0.1"
    port: Annotated[Port, doc("Port to listen on; 0 takes a free one.")] = 9000
    max_request_body_bytes: Annotated[
        Size, doc("Largest request body; a larger one is refused with 413.", live=True)
    ] = 10 * MIB
    request_body_timeout_seconds: Annotated[
        Duration, doc("A request body that takes longer to arrive is refused with 408.", live=True)
    ] = 60.0
    max_header_bytes: Annotated[
        Size, doc("Largest request head, URL included; a larger one is refused with 431.", live=True)
    ] = 64 * KIB
    header_timeout_seconds: Annotated[
        Duration,
        doc(
            "A request head that takes longer to arrive is refused with 408; a new connection must begin one in time.",
            live=True,
        ),
    ] = 10.0
    idle_connection_seconds: Annotated[
        Duration,
        doc(
            "A connection that is idle for so long after an answer is closed; proxies must give up earlier.", live=True
        ),
    ] = 75.0
    commit_after_seconds: Annotated[
        DurationOrZero,
        doc(
            "How long a stream waits for the inference server to accept before status 200 goes out; until then a "
            "refusal still keeps its own status. 0 does not wait.",
            live=True,
        ),
    ] = 10.0
    keepalive_seconds: Annotated[
        Duration,
        doc("A stream that was silent for so long gets a keep-alive, so that proxies hold it open.", live=True),
    ] = 15.0
    send_deadline_seconds: Annotated[
        Duration,
        doc("A client that takes not one byte for so long is disconnected and its inference aborted.", live=True),
    ] = 30.0
    drain_seconds: Annotated[
        DurationOrZero, doc("How long running requests may go on after SIGTERM before they are cut off.", live=True)
    ] = 30.0
    close_grace_seconds: Annotated[
        DurationOrZero,
        doc("How long clients may take their last bytes when the gateway stops, at the least.", live=True),
    ] = 2.0
    max_connections: Annotated[
        Count,
        doc("Client connections open at once; further ones are answered 503, /livez excepted, and closed.", live=True),
    ] = 4096
    max_concurrent_requests: Annotated[
        Count,
        doc(
            "Responses in the making at once, per process; further ones are refused with 503 and Retry-After.",
            live=True,
        ),
    ] = 1024
    delivery_max_batches: Annotated[
        Count, doc("Batches of events waiting for one client before its inference is paused.", live=True)
    ] = 256
    delivery_max_bytes: Annotated[
        Size,
        doc("Bytes of events waiting for one client before its inference is paused; one batch always fits.", live=True),
    ] = 4 * MIB
    socket_send_buffer_bytes: Annotated[
        Size, doc("Kernel send buffer of each client socket; bounds what a client that stopped reading holds there.")
    ] = 256 * KIB
    allowed_hosts: Annotated[
        Hosts,
        doc(
            "Names accepted in the Host header besides the loopback names and the bound address, without a port. When "
            "none is listed, a gateway on a loopback address accepts only those, and any other accepts every Host, "
            "which lets web pages in by DNS rebinding. There are no wildcards.",
            live=True,
            waits_for=("server.host", "admin.bind"),
        ),
    ] = ()
    allowed_origins: Annotated[
        Origins,
        doc(
            "Origins of web pages that may call the gateway, such as https://chat.example.com.",
            live=True,
            waits_for=("server.host", "admin.bind"),
        ),
    ] = ()
    openapi: Annotated[
        bool, doc("Whether to serve the description of the API, at /openapi.json for programs and at /docs for people.")
    ] = True


class AdminConfig(Section, frozen=True, kw_only=True):
    """The listener for operators: metrics and status."""

    enabled: Annotated[bool, doc("Whether to open the admin listener.")] = True
    bind: Annotated[Bind, doc("Address and port of the admin listener.")] = "127.0.0.1:9901"
    allow_remote: Annotated[
        bool, doc("Permit an address that other machines reach. The admin listener asks nobody for a key.")
    ] = False


class UpstreamConfig(Section, frozen=True, kw_only=True):
    """The inference server; `[upstreams.<name>]` with the same keys describes several."""

    url: Annotated[HttpUrl, doc("Base URL; a trailing slash or /v1 is dropped.")] = "http://127.0.0.1:8000"
    api_key: Annotated[ApiKey, doc("Key sent to the inference server as a bearer token.", live=True)] = None
    api_key_file: Annotated[
        FilePath | None,
        doc("File that holds api_key, in the place of it; one trailing line break is dropped.", live=True),
    ] = None
    models: Annotated[Names, doc("Models served there; empty means every model.", live=True)] = ()
    aliases: Annotated[
        Mapping[str, str],
        doc('Names that callers may use, each with the model it stands for: { small = "qwen-0.6b" }.', live=True),
    ] = {}
    dialect: Annotated[
        Literal["auto", "vllm", "llamacpp", "generic"],
        doc("What kind of server it is; auto asks it. It decides which request fields the server would reject."),
    ] = "auto"
    connect_timeout_seconds: Annotated[Duration, doc("Limit for opening a connection.", live=True)] = 5.0
    connect_retries: Annotated[
        CountOrZero,
        doc(
            "Further attempts at a call for which no connection could be opened. A call of which a byte was sent is "
            "never repeated. 0 makes one attempt.",
            le=10,
        ),
    ] = 2
    connect_retry_budget: Annotated[
        Share,
        doc(
            "Share of the calls that may be such retries, so that an outage is not multiplied; one more a second, and "
            "at most ten saved up, are always allowed."
        ),
    ] = 0.2
    connect_retry_backoff_seconds: Annotated[
        DurationOrZero,
        doc("Longest wait before such a retry. It begins at 50 ms and doubles, less a random part.", le=60),
    ] = 0.5
    breaker_failures: Annotated[
        CountOrZero,
        doc(
            "Calls that fail in a row before the server is left alone: no connection, no answer in time, an answer "
            "broken off before its status, or 502, 503 or 504. 0 never does so."
        ),
    ] = 5
    breaker_open_seconds: Annotated[
        Duration, doc("How long it is left alone, callers being refused with 503, before one call is let through.")
    ] = 5.0
    ca_file: Annotated[
        FilePath | None,
        doc("PEM file of the certificate authorities trusted for an https url, in the place of the system's."),
    ] = None
    tls_verify: Annotated[
        bool, doc("Whether to check the server's certificate and host name. Turn it off for experiments only.")
    ] = True
    max_header_bytes: Annotated[
        Size, doc("Largest head of an answer, and most framing between two pieces of its body; more is a 502.")
    ] = 64 * KIB
    first_byte_timeout_seconds: Annotated[
        Duration, doc("Limit from the request to the status line; a busy server queues requests meanwhile.", live=True)
    ] = 600.0
    idle_timeout_seconds: Annotated[Duration, doc("Limit between two reads of an answer.", live=True)] = 300.0
    total_timeout_seconds: Annotated[Duration, doc("Limit for one whole call.", live=True)] = 3600.0
    max_connections: Annotated[Count, doc("Connections open at once.")] = 1024
    max_concurrent: Annotated[Count, doc("Calls running at once; further ones wait.", live=True)] = 1024
    max_concurrent_wait_seconds: Annotated[
        DurationOrZero,
        doc("How long a call waits for its turn before it is refused with 503 and Retry-After.", live=True),
    ] = 30.0
    health_interval_seconds: Annotated[Duration, doc("Time between two health probes.", live=True)] = 10.0
    probe_timeout_seconds: Annotated[Duration, doc("Limit for one health probe.", live=True)] = 5.0
    models_cache_seconds: Annotated[
        DurationOrZero, doc("How long the list of models is reused; 0 asks every time.", live=True)
    ] = 5.0
    allow_fields: Annotated[
        tuple[AllowedField, ...],
        doc(
            "Request fields with power over the inference server that callers may set; none is passed on unlisted.",
            live=True,
        ),
    ] = ()
    forward_headers: Annotated[HeaderNames, doc("Request headers of the caller that are passed on.", live=True)] = ()
    remote_images: Annotated[
        Literal["refuse", "forward"],
        doc(
            "What to do with http(s) image URLs, which the inference server would fetch; data URLs always pass.",
            live=True,
        ),
    ] = "refuse"
    cache_salt_per_principal: Annotated[
        bool,
        doc(
            "Give every caller a prefix cache of its own, so that timing tells nothing about others' prompts.",
            live=True,
        ),
    ] = False
    read_slice_bytes: Annotated[Size, doc("Bytes of one stream processed before the other streams get their turn.")] = (
        64 * KIB
    )


class ResponsesConfig(Section, frozen=True, kw_only=True):
    """Limits of one response, each independent of the others, and how requests are read."""

    max_retained_bytes: Annotated[
        Size,
        doc(
            "Logical output kept for one response over all its rounds and tool results: the UTF-8 bytes of its strings "
            "and 32 bytes for each JSON value. It is an account, not resident memory.",
            env="AGENTIC_MAX_RETAINED_RESPONSE_BYTES",
            live=True,
        ),
    ] = 8 * MIB
    max_upstream_json_bytes: Annotated[
        Size, doc("One JSON body from the inference server.", env="AGENTIC_MAX_UPSTREAM_JSON_BYTES", live=True)
    ] = 16 * MIB
    max_upstream_sse_line_bytes: Annotated[
        Size,
        doc(
            "One line of an event stream from the inference server.",
            env="AGENTIC_MAX_UPSTREAM_SSE_LINE_BYTES",
            live=True,
        ),
    ] = 16 * MIB
    max_stream_event_bytes: Annotated[
        Size,
        doc(
            "One event sent to a client, as serialized. The last event of a stream repeats the whole response.",
            env="AGENTIC_MAX_STREAM_EVENT_BYTES",
            live=True,
        ),
    ] = 1 * MIB
    strict_parameters: Annotated[
        bool, doc("Refuse unknown request fields with 400 instead of passing them to the inference server.", live=True)
    ] = False
    reasoning_summary: Annotated[
        Literal["off", "instead", "both"],
        doc(
            "Show reasoning text as summary events too, for clients that read only those: `both` besides the text, "
            "`instead` of it when the request asked for a summary.",
            live=True,
        ),
    ] = "off"
    max_json_depth: Annotated[
        Count, doc("Nesting of a request body; deeper is refused with 400.", le=900, live=True)
    ] = 100
    max_tools: Annotated[Count, doc("Tools in one request; more are refused with 400.", live=True)] = 1024
    max_input_items: Annotated[Count, doc("Input items in one request; more are refused with 400.", live=True)] = 10_000


class EngineConfig(Section, frozen=True, kw_only=True):
    """How long one response may go on."""

    run_deadline_seconds: Annotated[Duration, doc("Time for one response; then it ends as failed.", live=True)] = 3600.0


class StorageConfig(Section, frozen=True, kw_only=True):
    """Where responses are kept."""

    url: Annotated[
        DatabaseUrl,
        doc(
            "sqlite:///PATH (four slashes for an absolute path) or postgresql://USER:PASSWORD@HOST/DATABASE. "
            "The password is never shown.",
            extra_json_schema={"default": _DEFAULT_DATABASE},
        ),
    ] = field(default_factory=lambda: SecretUrl(_DEFAULT_DATABASE))
    url_file: Annotated[
        FilePath | None, doc("File that holds url, in the place of it; one trailing line break is dropped.")
    ] = None
    auto_migrate: Annotated[
        Literal["auto", "always", "never"],
        doc("Whether `gateway serve` migrates the database; auto does so for SQLite and not for PostgreSQL."),
    ] = "auto"
    sqlite_synchronous: Annotated[
        Literal["NORMAL", "FULL"],
        doc("NORMAL may lose the newest responses when the power fails, FULL does not and is slower."),
    ] = "NORMAL"
    busy_timeout_seconds: Annotated[
        DurationOrZero, doc("How long to wait for a connection, or for another process that holds the lock.", le=86_400)
    ] = 5.0
    readers: Annotated[Count, doc("Connections, and threads, that read.", le=1024)] = 4
    reader_max_entries: Annotated[
        Count, doc("Reads waiting or running at once; beyond that requests that need one fail with 503.")
    ] = 1024
    writer_max_entries: Annotated[
        Count, doc("Responses waiting to be written; beyond that new ones fail with 503.")
    ] = 1024
    writer_max_bytes: Annotated[
        Size, doc("Bytes of responses waiting to be written; beyond that new ones fail with 503, but one always fits.")
    ] = 256 * MIB
    writer_batch_entries: Annotated[Count, doc("Responses committed together.")] = 256
    statement_timeout_seconds: Annotated[Duration, doc("A statement that runs longer is given up.", le=86_400)] = 30.0
    probe_timeout_seconds: Annotated[
        Duration, doc("How long a readiness check, or the check before an inference, waits for the database.", le=3600)
    ] = 5.0
    verify_after_seconds: Annotated[
        DurationOrZero,
        doc(
            "When the database has taken no write for so long, one is tried before the next inference whose response "
            "is to be stored or continues a stored one; 0 tries each time.",
            le=3600,
        ),
    ] = 1.0
    history_max_responses: Annotated[
        Count, doc("Responses that one chain of previous_response_id may have; a longer one is refused.")
    ] = 10_000
    history_max_bytes: Annotated[
        Size, doc("Items that one chain of previous_response_id may have, as serialized; a larger one is refused.")
    ] = 64 * MIB
    history_cache_bytes: Annotated[
        SizeOrZero, doc("Memory for the histories of chains that go on, per process; 0 reads each from the database.")
    ] = 32 * MIB
    history_revalidate_seconds: Annotated[
        DurationOrZero,
        doc(
            "A history in memory is used for so long before the database is asked whether its response still exists, "
            "so this is how late a deletion by another process may be noticed; 0 asks every time.",
            le=86_400,
        ),
    ] = 5.0
    retention_seconds: Annotated[
        DurationOrZero,
        doc(
            "Responses are removed this long after the newest one that continues from the same first response; "
            "0 keeps them for ever.",
            le=36_500 * 86_400,
        ),
    ] = 30 * 86_400.0
    retention_interval_seconds: Annotated[
        Duration,
        doc(
            "How often to look for responses to remove. Deleted ones are kept that long, for what is being made "
            "from them.",
            le=30 * 86_400,
        ),
    ] = 3600.0
    retention_batch_responses: Annotated[Count, doc("Responses removed in one transaction.", le=10_000)] = 200


class TelemetryConfig(Section, frozen=True, kw_only=True):
    """Logs. Traces follow the standard OTEL_* variables."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], doc("Least severe level that is logged.", live=True)
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"], doc("auto writes for people on a terminal and JSON lines elsewhere.")
    ] = "auto"


class GatewayConfig(Section, frozen=True, kw_only=True):
    """The whole configuration."""

    server: ServerConfig = field(default_factory=ServerConfig)
    admin: AdminConfig = field(default_factory=AdminConfig)
    upstream: UpstreamConfig | None = None
    upstreams: Mapping[str, UpstreamConfig] = {}
    responses: ResponsesConfig = field(default_factory=ResponsesConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    def upstream_map(self) -> dict[str, UpstreamConfig]:
        """Return the inference servers by name; `[upstream]`, or none at all, is one named `default`."""
        return dict(self.upstreams) or {DEFAULT_UPSTREAM: self.upstream or UpstreamConfig()}
