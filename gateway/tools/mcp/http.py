"""Streamable HTTP within bounds: the connections and answers that the SDK's transport is given.

What a server sends is counted while it is read. A failed call fails its own request and never the session, so nothing
is raised to the SDK that would end its tasks: a call that cannot be made is answered here, with a status of our own.
"""

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpcore2
import httpx2
from mcp.client.streamable_http import streamable_http_client

from gateway.config.schema import McpConfig
from gateway.tools.addresses import AddressRefused, GuardedBackend
from gateway.tools.mcp.exchange import Exchange, ServerFault, current_exchange
from gateway.tools.mcp.session import Streams
from gateway.tools.mcp.targets import Endpoint

_NOT_DONE: Final = 502
_MOST_LISTENS: Final = 2
_SESSION_ID: Final = "mcp-session-id"


@asynccontextmanager
async def connect_http(endpoint: Endpoint, config: McpConfig) -> AsyncIterator[Streams]:
    """Yield the streams of a new session; nothing is sent before something is written."""
    backend = _PinnedBackend(allow_private=endpoint.private)
    # How many calls run at once is bounded where they are made.
    pool = httpcore2.AsyncConnectionPool(ssl_context=endpoint.tls, max_connections=None, network_backend=backend)
    timeout = httpx2.Timeout(config.call_timeout_seconds, connect=config.connect_timeout_seconds, read=None)
    headers = {**endpoint.headers, "accept-encoding": "identity"}
    transport = BoundedTransport(pool, config)
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, trust_env=False) as client,
        streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=config.max_message_bytes) as (
            reader,
            writer,
        ),
    ):
        yield Streams(reader, writer, lambda: transport.session_id, lambda: None)


class _PinnedBackend(GuardedBackend):
    """Connects to the address that a host had at the session's first connection, wherever its name leads later."""

    def __init__(self, *, allow_private: bool) -> None:
        super().__init__(allow_private=allow_private)
        self._pinned: dict[str, str] = {}

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect as the base does."""
        place = self._pinned.get(host, host)
        stream = await super().connect_tcp(place, port, timeout, local_address, socket_options)
        self._pinned[host] = str(stream.get_extra_info("server_addr")[0])
        return stream


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Makes HTTP calls and reads no more of their answers than it may.

    Attributes:
        session_id: the session that the server last told of.
    """

    def __init__(self, pool: httpcore2.AsyncConnectionPool, config: McpConfig) -> None:
        self._pool = pool
        self._config = config
        self._listens = 0
        self.session_id: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make a call; where there is no answer that may be read, the exchange knows why."""
        exchange = self._find_exchange(request)
        if exchange is None:
            return httpx2.Response(405)
        with exchange.scope() as scope:
            try:
                answer = await self._pool.handle_async_request(_build_request(request))
            except (OSError, *_FAULTS) as error:
                exchange.fail(_explain(error))
        if scope.cancelled_caught or exchange.fault is not None:
            return httpx2.Response(_NOT_DONE)
        return await self._accept(answer, exchange)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    def _find_exchange(self, request: httpx2.Request) -> Exchange | None:
        """Return what a call belongs to, or None where it may not be made."""
        exchange = current_exchange.get() or Exchange()
        if request.method == "GET":
            if "last-event-id" in request.headers:
                return None if exchange.ended else exchange
            # What the server wants to say unasked, such as questions to be declined.
            self._listens += 1
            return Exchange() if self._listens <= _MOST_LISTENS else None
        if exchange.ended:
            # The request was given up, and this tells the server so.
            timeout = {**request.extensions["timeout"], "read": self._config.connect_timeout_seconds}
            request.extensions = {**request.extensions, "timeout": timeout}
            return Exchange()
        return exchange

    async def _accept(self, answer: httpcore2.Response, exchange: Exchange) -> httpx2.Response:
        headers = httpx2.Headers(answer.headers)
        stream = _CountedStream(
            answer, exchange, self._config, events="event-stream" in headers.get("content-type", "")
        )
        fault = _examine(answer.status, headers)
        if fault is not None:
            await stream.aclose()
            exchange.fail(fault)
            return httpx2.Response(_NOT_DONE)
        if answer.status >= 400:
            exchange.status = answer.status
        self.session_id = headers.get(_SESSION_ID, self.session_id)
        return httpx2.Response(answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions)


class _CountedStream(httpx2.AsyncByteStream):
    """The body of an answer; of an event stream each event is counted, too."""

    def __init__(self, answer: httpcore2.Response, exchange: Exchange, config: McpConfig, *, events: bool) -> None:
        self._answer = answer
        self._exchange = exchange
        self._events = events
        self._message_bytes = config.max_message_bytes
        self._whole_bytes = config.max_stream_bytes if events else config.max_message_bytes
        self._read = 0
        self._event = 0
        self._tail = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = aiter(self._answer.stream)  # type: ignore[arg-type]
        while True:
            part: bytes | None = None
            with self._exchange.scope():
                try:
                    part = await anext(parts, None)
                    self._count(part or b"")
                except ServerFault as fault:
                    self._exchange.fail(fault)
                except (OSError, *_FAULTS):
                    self._exchange.fail(ServerFault("broke off its answer"))
            if self._exchange.ended:
                raise httpx2.StreamError("given up")
            if part is None:
                return
            yield part

    async def aclose(self) -> None:
        """Close the connection unless the body was read to its end."""
        await self._answer.aclose()

    def _count(self, part: bytes) -> None:
        self._read += len(part)
        if self._exchange.allowance is not None:
            self._exchange.counted = True
            self._exchange.allowance.take(len(part))
        if self._events:
            self._count_event(part)
        if max(self._event, 0 if self._events else self._read) > self._message_bytes:
            raise ServerFault(f"sent a message above {self._message_bytes} bytes", bound="mcp.max_message_bytes")
        if self._read > self._whole_bytes:
            raise ServerFault(f"sent more than {self._whole_bytes} bytes for one call", bound="mcp.max_stream_bytes")

    def _count_event(self, part: bytes) -> None:
        """Note how long the event at the end is; one that ends within a part cannot be longer than it."""
        joined = self._tail + part
        end = max(joined.rfind(b"\n\n"), joined.rfind(b"\n\r\n"), joined.rfind(b"\r\r"))
        self._event = self._event + len(part) if end < 0 else len(joined) - end - 2
        self._tail = joined[-3:] if end < 0 else joined[max(end + 2, len(joined) - 3) :]


_FAULTS: Final = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)


def _build_request(request: httpx2.Request) -> httpcore2.Request:
    assert isinstance(request.stream, httpx2.AsyncByteStream)
    url = httpcore2.URL(
        scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
    )
    return httpcore2.Request(
        method=request.method,
        url=url,
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


def _examine(status: int, headers: httpx2.Headers) -> ServerFault | None:
    if 300 <= status < 400:
        return ServerFault("redirects elsewhere, which is not followed; name the place itself")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return ServerFault("compressed its answer, although it was asked not to")
    return None


def _explain(error: Exception) -> ServerFault:
    if isinstance(error, AddressRefused):
        return ServerFault("has a private or local address, which this gateway does not call")
    if isinstance(error, httpcore2.ConnectTimeout):
        return ServerFault("could not be connected to in time", bound="mcp.connect_timeout_seconds")
    if isinstance(error, httpcore2.ConnectError | OSError):
        untrusted = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _list_causes(error))
        return ServerFault("shows no certificate that is trusted" if untrusted else "could not be connected to")
    return ServerFault("broke off the connection before it answered")


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
