"""The keys of an inference server."""

from collections.abc import Mapping
from typing import Annotated, Literal

from gateway.config.kinds import (
    ApiKey,
    Count,
    CountOrZero,
    Duration,
    DurationOrZero,
    FilePath,
    HeaderNames,
    HttpUrl,
    Names,
    Paths,
    Share,
    Size,
    doc,
)
from gateway.config.schema.section import Section
from gateway.config.units import KIB

AllowedField = Literal[
    "request_id",
    "priority",
    "cache_salt",
    "kv_transfer_params",
    "ec_transfer_params",
    "previous_input_messages",
    "enable_response_messages",
]


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
    api: Annotated[
        Literal["responses", "chat_completions"],
        doc(
            "What the server speaks. With chat_completions each request is put into the form of /v1/chat/completions, "
            "and its answer back into that of /v1/responses."
        ),
    ] = "responses"
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
            live=True,
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
        doc("Longest wait before such a retry. It begins at 50 ms and doubles, less a random part.", live=True, le=60),
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
    max_connections: Annotated[Count, doc("Connections open at once.", per_process=True)] = 1024
    max_concurrent: Annotated[Count, doc("Calls running at once; further ones wait.", live=True, per_process=True)] = (
        1024
    )
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
    passthrough: Annotated[
        Paths,
        doc(
            'Further paths of the server that callers may POST to, such as ["/v1/chat/completions", "/v1/embeddings"]; '
            "request and answer are passed on to the byte. Everything else is 404."
        ),
    ] = ()
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
        16 * KIB
    )
