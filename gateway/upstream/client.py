"""The inference server behind HTTP."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gateway import __version__
from gateway.ports import Dialect, UpstreamCall, UpstreamExchange, UpstreamHealth
from gateway.protocol.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from gateway.upstream.connection import Connection, write_head
from gateway.upstream.control import ControlClient
from gateway.upstream.exchange import HttpExchange
from gateway.upstream.health import HealthMonitor
from gateway.upstream.models import ModelList
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.refusals import MAX_ERROR_BODY_BYTES, read_refusal, redact
from gateway.upstream.settings import UpstreamSettings
from gateway.upstream.tasks import end_task

_CONTROL_CONNECTIONS = 4
_TARGET = "/v1/responses"
# The client frames the message and names the host itself; a forwarded copy could contradict it.
_FRAMING_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "expect", "upgrade"}
)


class HttpUpstream:
    """One inference server; see `ports.Upstream`.

    A call is sent once: when its connection breaks an inference may have begun, and only the caller can know whether
    two are wanted.

    Args:
        settings: how to reach the server.
        name: the upstream's name in logs.
        now: Unix seconds.
    """

    def __init__(
        self, settings: UpstreamSettings, *, name: str = "default", now: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._name = name
        self._now = now
        host = self._open_pool(1).host_header
        self._headers = {
            "Host": host,
            "User-Agent": f"responses-gateway/{__version__}",
            "Accept-Encoding": "identity",
        }
        if settings.api_key:
            self._headers["Authorization"] = f"Bearer {settings.api_key}"
        self._pool: ConnectionPool | None = None
        self._watch: asyncio.Task[None] | None = None
        self._control = ControlClient(
            lambda: self._open_pool(_CONTROL_CONNECTIONS),
            self._headers,
            timeout=settings.probe_timeout,
            max_bytes=settings.max_json_bytes,
        )
        self._monitor = HealthMonitor(
            self._control, dialect=settings.dialect, interval=settings.health_interval, now=now, name=name
        )
        self._models = ModelList(self._control, fresh_seconds=settings.models_cache, now=now, secret=settings.api_key)

    @property
    def dialect(self) -> Dialect:
        """The dialect in use; generic until the server is recognised."""
        return self._monitor.dialect

    @property
    def health(self) -> UpstreamHealth:
        """The last known health, without asking."""
        return self._monitor.health

    async def start(self) -> None:
        """Open the pools and begin to probe; does not wait for the server."""
        self._pool = self._open_pool(self._settings.max_connections)
        self._control.start()
        self._watch = asyncio.create_task(self._monitor.watch(), name=f"upstream-{self._name}-health")

    async def close(self) -> None:
        """Stop probing and close every connection. Idempotent."""
        if self._watch is not None:
            await end_task(self._watch)
            self._watch = None
        await self._models.close()
        await self._control.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def probe(self) -> UpstreamHealth:
        """Ask for the health now and remember it. Never raises."""
        return await self._monitor.probe()

    async def models(self) -> dict[str, Any]:
        """Return the model list, a few seconds old at most.

        Raises:
            UpstreamError: as `open`.
        """
        return await self._models.get()

    def redact(self, text: str) -> str:
        """Return a text of the server's without the gateway's own key in it."""
        return str(redact(text, self._settings.api_key))

    async def open(self, call: UpstreamCall) -> UpstreamExchange:
        """Send the call and return once the server answered 200.

        Raises:
            UpstreamRefused: any other status.
            UpstreamUnavailable: no connection, or it broke before the status line.
            UpstreamTimeout: no connection or no status line in time.
            UpstreamError: the answer is not HTTP, or compressed although that was declined.
        """
        settings = self._settings
        pool = self._pool
        if pool is None:
            raise UpstreamUnavailable("The client of the inference server is not started.")
        deadline = asyncio.get_running_loop().time() + settings.total_timeout
        patience = min(settings.first_byte_timeout, settings.total_timeout)
        try:
            async with asyncio.timeout(patience):
                connection = await self._send(pool, call)
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"The inference server did not begin to answer within {patience:g} seconds."
            ) from error
        exchange = HttpExchange(connection, pool, idle=settings.idle_timeout, deadline=deadline)
        status, headers = connection.status, connection.headers
        if status == 200 and headers.get("content-encoding", "").strip().lower() in {"", "identity"}:
            return exchange
        try:
            if status == 200:
                raise UpstreamError("The inference server compressed its answer although that was declined.")
            body = await exchange.read_whole(MAX_ERROR_BODY_BYTES)
            raise read_refusal(status, headers, body, now=self._now(), secret=settings.api_key)
        finally:
            await exchange.close()

    async def _send(self, pool: ConnectionPool, call: UpstreamCall) -> Connection:
        head = self._compose_head(pool, call)
        connection = await pool.acquire()
        try:
            await connection.send(head, call.body)
            await connection.wait_for_headers()
        except BaseException:
            pool.release(connection)
            raise
        return connection

    def _compose_head(self, pool: ConnectionPool, call: UpstreamCall) -> bytes:
        own = {name.lower() for name in self._headers} | _FRAMING_HEADERS
        extra = {name: value for name, value in call.headers.items() if name.lower() not in own}
        return write_head(
            "POST",
            pool.base_path + _TARGET,
            {
                **self._headers,
                **extra,
                "Accept": "text/event-stream" if call.stream else "application/json",
                "Content-Type": "application/json",
                "Content-Length": str(len(call.body)),
            },
        )

    def _open_pool(self, connections: int) -> ConnectionPool:
        settings = self._settings
        return ConnectionPool(
            settings.url,
            limit=connections,
            keepalive=settings.keepalive,
            connect_timeout=settings.connect_timeout,
            buffer_bytes=settings.read_slice_bytes,
        )
