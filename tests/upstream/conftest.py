"""Servers to talk to: the simulator, and a raw one whose every byte a test decides."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import pytest
import uvloop

from gateway.ports import UpstreamCall
from gateway.telemetry.metrics import Metrics
from gateway.upstream.client import HttpUpstream
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.settings import UpstreamSettings
from gateway.upstream.simulated import serve_simulator
from gateway.upstream.tls import open_context

# The gateway runs on uvloop, whose transports differ from asyncio's in small ways.
_ON_BOTH_LOOPS = frozenset(
    {"test_client", "test_connection", "test_hostile", "test_pool", "test_resilience", "test_tls"}
)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def pytest_asyncio_loop_factories(config, item):
    loops = {"asyncio": asyncio.new_event_loop}
    if item.module.__name__.rpartition(".")[2] in _ON_BOTH_LOOPS:
        loops["uvloop"] = uvloop.new_event_loop
    return loops


class RawServer:
    """A TCP server that counts connections and leaves the rest to its handler."""

    def __init__(self, handler: Handler) -> None:
        self.connections = 0
        self.requests: list[tuple[bytes, bytes]] = []
        self.url = ""
        self._handler = handler
        self._tasks: set[asyncio.Task] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._handler(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def read_request(self, reader: asyncio.StreamReader) -> bytes:
        """Read one request, remember it, return its head."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.requests.append((head, await reader.readexactly(length)))
        return head


def compose(status: str, body: bytes = b"", *headers: str) -> bytes:
    """Return an HTTP answer with a length."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def simulator():
    async with serve_simulator() as served:
        yield served


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Awaitable[HttpUpstream]]]:
    """Return a factory of started clients; probes stay out of the way unless a test asks for them."""
    async with AsyncExitStack() as stack:

        async def build(
            url: str,
            *,
            probing: bool = False,
            metrics: Metrics | None = None,
            clock: Callable[[], float] = time.monotonic,
            **settings,
        ) -> HttpUpstream:
            upstream = HttpUpstream(
                UpstreamSettings(url=url, **settings), now=lambda: 1_800_000_000.0, metrics=metrics, clock=clock
            )
            if not probing:
                upstream._monitor.watch = lambda: asyncio.sleep(3600)
            await upstream.start()
            stack.push_async_callback(upstream.close)
            return upstream

        yield build


@pytest.fixture
async def raw_server() -> AsyncIterator[Callable[..., Awaitable[RawServer]]]:
    """Return a factory of raw servers; the handler gets the server itself as well."""
    async with AsyncExitStack() as stack:

        async def build(handler) -> RawServer:
            server = RawServer(lambda reader, writer: handler(server, reader, writer))
            await server.start()
            stack.push_async_callback(server.close)
            return server

        yield build


@pytest.fixture
async def open_pool() -> AsyncIterator[Callable[..., ConnectionPool]]:
    """Return a factory of pools that are closed in the end."""
    pools: list[ConnectionPool] = []

    def build(url: str, **changes) -> ConnectionPool:
        sizes = {"buffer_bytes": 64 * 1024, "max_header_bytes": 64 * 1024}
        options = {"tls": open_context(url), "limit": 2, "keepalive": 4.0, "connect_timeout": 5.0, **sizes, **changes}
        pools.append(ConnectionPool(url, **options))
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()


@pytest.fixture
def answer():
    """Return a maker of HTTP answers."""
    return compose


@pytest.fixture
def call():
    """Return a maker of calls."""

    def build(body: bytes = b'{"model":"sim","input":"hi"}', *, stream: bool = False, **headers: str) -> UpstreamCall:
        return UpstreamCall(body=body, stream=stream, headers=headers)

    return build


@pytest.fixture
def read_all():
    """Return a reader that drains an exchange."""

    async def drain(exchange) -> bytes:
        body = b""
        while data := await exchange.read():
            body += data
        return body

    return drain


@pytest.fixture
def unused_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
