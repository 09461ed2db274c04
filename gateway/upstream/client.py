"""The inference server behind HTTP."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
from multidict import CIMultiDict

from gateway import __version__
from gateway.ports import Dialect, UpstreamCall, UpstreamHealth
from gateway.protocol.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from gateway.upstream.control import ControlClient
from gateway.upstream.exchange import HttpExchange
from gateway.upstream.health import HealthMonitor
from gateway.upstream.models import ModelList
from gateway.upstream.refusals import MAX_ERROR_BODY_BYTES, read_refusal
from gateway.upstream.settings import UpstreamSettings
from gateway.upstream.upload import JsonUpload

_log = logging.getLogger("gateway.upstream")

_CONTROL_CONNECTIONS = 4
# The client frames the message and names the host itself; a forwarded copy could contradict it.
_FRAMING_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "expect", "upgrade"}
)


class HttpUpstream:
    """One inference server; see `ports.Upstream`.

    A call is sent once. It is sent a second time only when the pooled connection turned out closed before a byte of
    the call had left: after that an inference may have begun, and only the caller can know whether two are wanted.

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
        self._headers = {"Accept-Encoding": "identity", "User-Agent": f"responses-gateway/{__version__}"}
        if settings.api_key:
            self._headers["Authorization"] = f"Bearer {settings.api_key}"
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=settings.connect_timeout, sock_connect=settings.connect_timeout
        )
        self._session: aiohttp.ClientSession | None = None
        self._watch: asyncio.Task[None] | None = None
        self._control = ControlClient(
            lambda: self._open_session(_CONTROL_CONNECTIONS),
            settings.url,
            timeout=settings.probe_timeout,
            max_bytes=settings.max_json_bytes,
        )
        self._monitor = HealthMonitor(
            self._control, dialect=settings.dialect, interval=settings.health_interval, now=now, name=name
        )
        self._models = ModelList(self._control, fresh_seconds=settings.models_cache, now=now)

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
        self._session = self._open_session(self._settings.max_connections)
        self._control.start()
        self._watch = asyncio.create_task(self._monitor.watch(), name=f"upstream-{self._name}-health")

    async def close(self) -> None:
        """Stop probing and close every connection. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        await self._models.close()
        await self._control.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def probe(self) -> UpstreamHealth:
        """Ask for the health now and remember it. Never raises."""
        return await self._monitor.probe()

    async def models(self) -> dict[str, Any]:
        """Return the model list, a few seconds old at most.

        Raises:
            UpstreamError: as `open`.
        """
        return await self._models.get()

    async def open(self, call: UpstreamCall) -> HttpExchange:
        """Send the call and return once the server answered 200.

        Raises:
            UpstreamRefused: any other status.
            UpstreamUnavailable: no connection, or it broke before the status line.
            UpstreamTimeout: no connection or no status line in time.
            UpstreamError: the answer is not HTTP, or compressed although that was declined.
        """
        settings = self._settings
        deadline = asyncio.get_running_loop().time() + settings.total_timeout
        patience = min(settings.first_byte_timeout, settings.total_timeout)
        try:
            async with asyncio.timeout(patience):
                response = await self._send(call)
        except aiohttp.ServerTimeoutError as error:
            message = f"No connection to the inference server within {settings.connect_timeout:g} seconds."
            raise UpstreamTimeout(message) from error
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"The inference server did not begin to answer within {patience:g} seconds."
            ) from error
        except aiohttp.ClientError as error:
            # Only the kind: the error itself carries the request's headers, and with them the key.
            _log.warning("upstream %s failed before it answered: %s", self._name, type(error).__name__)
            raise _translate(error) from error
        exchange = HttpExchange(
            response, slice_bytes=settings.read_slice_bytes, idle=settings.idle_timeout, deadline=deadline
        )
        if response.status == 200 and response.headers.get("Content-Encoding", "identity") == "identity":
            return exchange
        try:
            if response.status == 200:
                raise UpstreamError("The inference server compressed its answer although that was declined.")
            body = await exchange.read_whole(MAX_ERROR_BODY_BYTES)
            raise read_refusal(response.status, response.headers, body, now=self._now())
        finally:
            await exchange.close()

    async def _send(self, call: UpstreamCall) -> aiohttp.ClientResponse:
        upload = JsonUpload(call.body)
        try:
            return await self._post(call, upload)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if upload.begun or isinstance(error, aiohttp.ClientConnectorError):
                raise
        return await self._post(call, JsonUpload(call.body))

    async def _post(self, call: UpstreamCall, upload: JsonUpload) -> aiohttp.ClientResponse:
        if self._session is None:
            raise UpstreamUnavailable("The client of the inference server is not started.")
        try:
            return await self._session.post(
                f"{self._settings.url}/v1/responses",
                data=upload,
                headers=self._compose_headers(call.headers, stream=call.stream),
                timeout=self._timeout,
                allow_redirects=False,
            )
        except BaseException:
            upload.abort()
            raise

    def _open_session(self, connections: int) -> aiohttp.ClientSession:
        settings = self._settings
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=settings.keepalive),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            auto_decompress=False,
            trust_env=False,
            read_bufsize=settings.read_slice_bytes,
        )

    def _compose_headers(self, extra: Mapping[str, str], *, stream: bool) -> CIMultiDict[str]:
        headers = CIMultiDict({name: value for name, value in extra.items() if name.lower() not in _FRAMING_HEADERS})
        headers.update(self._headers)
        headers["Accept"] = "text/event-stream" if stream else "application/json"
        headers["Content-Type"] = "application/json"
        return headers


def _translate(error: aiohttp.ClientError) -> UpstreamError:
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamUnavailable("The inference server cannot be reached.")
    if isinstance(error, aiohttp.ClientConnectionError):
        return UpstreamUnavailable("The inference server closed the connection before it answered.")
    return UpstreamError("The inference server's answer is not HTTP.")
