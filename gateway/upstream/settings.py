"""What one inference server needs to be told about, in seconds and bytes."""

from msgspec import Struct


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """How to reach one inference server.

    Attributes:
        url: base address without a trailing slash and without `/v1`.
        api_key: sent as a bearer token to this server alone, or None.
        api: `responses` or `chat_completions`.
        dialect: `vllm`, `llamacpp` or `generic`; `auto` asks the server.
        connect_timeout: seconds for a free slot in the pool and the TCP and TLS handshake together.
        connect_retries: further attempts at a call for which no connection could be opened.
        retry_share: such retries earned by one call.
        longest_retry_wait: upper bound of the seconds before a retry.
        breaker_failures: failures in a row after which the server is left alone; 0 never does so.
        breaker_open: seconds it is left alone.
        ca_file: PEM file of the authorities trusted for https, in the place of the system's.
        tls_verify: whether to check the server's certificate and host name.
        first_byte_timeout: seconds from the start of a call to the end of the answer's head, the upload included.
        idle_timeout: seconds a reader may wait for the next byte of a body.
        total_timeout: seconds for a whole call.
        max_connections: inference connections open at once; probes have a small pool of their own.
        keepalive: seconds an idle connection may be used again; below the 5 seconds after which the known servers
            close theirs, so that a request never meets a closing connection.
        health_interval: seconds between probes.
        probe_timeout: seconds for one probe or model list.
        models_cache: seconds a model list stays fresh.
        max_header_bytes: largest head of an answer, and most framing between two pieces of its body.
        read_slice_bytes: most bytes one read returns, and half of what waits unread.
        max_json_bytes: largest answer to a probe or model list, and largest chat answer in one piece.
        max_line_bytes: longest line of a chat stream.
    """

    url: str = "http://127.0.0.1:8000"
    api_key: str | None = None
    api: str = "responses"
    dialect: str = "auto"
    connect_timeout: float = 5.0
    connect_retries: int = 2
    retry_share: float = 0.2
    longest_retry_wait: float = 0.5
    breaker_failures: int = 5
    breaker_open: float = 5.0
    ca_file: str | None = None
    tls_verify: bool = True
    first_byte_timeout: float = 600.0
    idle_timeout: float = 300.0
    total_timeout: float = 3600.0
    max_connections: int = 1024
    keepalive: float = 4.0
    health_interval: float = 10.0
    probe_timeout: float = 5.0
    models_cache: float = 5.0
    max_header_bytes: int = 64 * 1024
    read_slice_bytes: int = 64 * 1024
    max_json_bytes: int = 16 * 1024 * 1024
    max_line_bytes: int = 16 * 1024 * 1024

    def __repr__(self) -> str:
        return (
            f"UpstreamSettings(url={self.url!r}, dialect={self.dialect!r}, api_key={'set' if self.api_key else None})"
        )
