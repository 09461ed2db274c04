"""The keys of the two listeners."""

from typing import Annotated

from gateway.config.certificates import TlsVersion
from gateway.config.kinds import Bind, Count, Duration, DurationOrZero, FilePath, Host, Hosts, Origins, Port, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import KIB, MIB


class ServerConfig(Section, frozen=True, kw_only=True):
    """The listener callers use, and how long it waits for them."""

    host: Annotated[
        Host,
        doc("Address to listen on. A loopback address keeps the gateway private to this machine."),
    ] = "127.0.0.1"
    port: Annotated[Port, doc("Port to listen on; 0 takes a free one.")] = 9000
    tls_cert_file: Annotated[
        FilePath | None,
        doc(
            "PEM file of the certificate to serve HTTPS and WSS with, followed by those that lead to its authority; "
            "without one the listener speaks plain HTTP. Every reload reads it again, for new connections.",
            live=True,
        ),
    ] = None
    tls_key_file: Annotated[
        FilePath | None, doc("PEM file of the certificate's private key, without a passphrase.", live=True)
    ] = None
    tls_min_version: Annotated[TlsVersion, doc("Oldest version of TLS that a client may speak.", live=True)] = "1.2"
    workers: Annotated[
        Count,
        doc(
            "Processes that serve, so that more than one core is used; more than one process needs PostgreSQL. Each "
            "counts its own load, so together they take several times as much.",
            le=256,
        ),
    ] = 1
    worker_start_seconds: Annotated[
        Duration,
        doc(
            "A worker that takes longer until it serves, a migration included, is killed and started again.",
            live=True,
            le=86_400,
        ),
    ] = 300.0
    worker_start_attempts: Annotated[
        Count,
        doc(
            "When a worker has failed to start so often in a row and no other serves, the gateway gives up and ends.",
            live=True,
        ),
    ] = 5
    worker_restart_seconds: Annotated[
        Duration,
        doc(
            "Longest pause before a worker that ended is started again; the first is half a second, and each is twice "
            "the one before until a worker has served for longer than this.",
            live=True,
            le=86_400,
        ),
    ] = 30.0
    worker_answer_seconds: Annotated[
        Duration,
        doc("How long the admin listener waits for what a worker has to say about itself.", live=True, le=3600),
    ] = 5.0
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
    end_seconds: Annotated[
        Duration,
        doc(
            "How long the process may take for its end when its connections are closed: what waits is written to the "
            "database and traces are sent. After that it ends without, with code 1.",
            live=True,
        ),
    ] = 30.0
    max_connections: Annotated[
        Count,
        doc(
            "Client connections open at once; further ones are answered 503, /livez excepted, and closed.",
            live=True,
            per_process=True,
        ),
    ] = 4096
    max_concurrent_requests: Annotated[
        Count,
        doc(
            "Responses in the making at once; further ones are refused with 503 and Retry-After.",
            live=True,
            per_process=True,
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
            "which lets web pages in by DNS rebinding. Off loopback a Host that is an IP address always passes, as "
            "probes and scrapers send it. There are no wildcards.",
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
