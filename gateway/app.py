"""The composition root: the only place where the parts meet."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Struct

from gateway.config.addresses import split_bind
from gateway.config.certificates import CertificateFileError
from gateway.config.changes import Reload, compare
from gateway.config.schema import GatewayConfig, ServerConfig, StorageConfig, UpstreamConfig
from gateway.engine.service import Engine
from gateway.ports import Clock, Ids, Store, Upstream
from gateway.protocol.errors import NotFound
from gateway.protocol.ids import UuidIds
from gateway.storage.cache import CachedStore
from gateway.storage.faults import StorageNotReady
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_SERVER
from gateway.telemetry.tracing import Tracing, TracingError
from gateway.transport.admin import build_admin_app
from gateway.transport.auth import HostPolicy
from gateway.transport.edge import Edge
from gateway.transport.framework import LeanLitestar
from gateway.transport.health import Readiness
from gateway.transport.http import ResponsesEndpoint
from gateway.transport.openapi.docs import DOCS_ROUTES, ApiDocs
from gateway.transport.routes import RESPONSES_PATH, ROUTES, build_responses_route
from gateway.transport.websocket import WebSocketEndpoint
from gateway.transport.wire_errors import respond_with_error
from gateway.upstream.client import HttpUpstream
from gateway.upstream.settings import UpstreamSettings

_logger = logging.getLogger(LOGGER_SERVER)


class StartError(Exception):
    """The gateway cannot start as it is configured; the text says what to do."""


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class Parts(Struct, frozen=True, kw_only=True):
    """Everything a running gateway consists of.

    Attributes:
        config: the configuration the other parts were made from.
        store: durable responses.
        upstreams: inference servers by name.
        engine: makes responses.
        endpoint: serves `POST /v1/responses`.
        sockets: serves WebSockets at the same path.
        readiness: knows whether new requests can be served.
        metrics: what is counted.
        tracing: starts spans.
        clock: tells the time.
        ids: mints ids.
        reconfigure: what takes another configuration, in this order.
    """

    config: GatewayConfig
    store: Store
    upstreams: Mapping[str, Upstream]
    engine: Engine
    endpoint: ASGIApp
    sockets: WebSocketEndpoint
    readiness: Readiness
    metrics: Metrics
    tracing: Tracing
    clock: Clock
    ids: Ids
    reconfigure: Sequence[Callable[[GatewayConfig], None]] = ()


class Gateway:
    """An assembled gateway.

    Args:
        parts: what it consists of.

    Attributes:
        parts: what it consists of.
        config: the configuration in effect; requests that are being served may still keep to an earlier one.
        draining: whether it has begun to stop.
        public: the app callers reach.
        admin: the app of the admin listener.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.config = parts.config
        self.draining = False
        server = parts.config.server
        self._callers = HostPolicy(server.host, server.allowed_hosts, server.allowed_origins)
        self._warn_of_any_host()
        self._routes = _build_litestar(parts, server)
        self.public = Edge(
            self._serve,
            policy=self._callers,
            metrics=parts.metrics,
            tracing=parts.tracing,
            clock=parts.clock,
            ids=parts.ids,
        )
        admin_host, _ = split_bind(parts.config.admin.bind)
        self._operators = HostPolicy(admin_host, server.allowed_hosts)
        self.admin: ASGIApp = build_admin_app(parts.metrics, parts.readiness, self._operators)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Open the store and the upstreams, and close them in the end. Does not wait for the inference servers.

        Raises:
            StartError: the store cannot be used as it is configured.
        """
        async with AsyncExitStack() as closing:
            closing.push_async_callback(asyncio.to_thread, self.parts.tracing.close)
            closing.push_async_callback(self.parts.store.close)
            try:
                await self.parts.store.start()
            except StorageNotReady as error:
                raise StartError(str(error)) from error
            for upstream in self.parts.upstreams.values():
                closing.push_async_callback(upstream.close)
                await upstream.start()
            yield

    def reload(self, config: GatewayConfig) -> Reload:
        """Put another configuration into effect as far as that needs no restart.

        All of it comes into effect at once; requests that are being served keep the settings they began with.

        Args:
            config: what was read, checked.

        Returns:
            What was applied, and what has to wait for a restart.
        """
        reload = compare(self.config, config)
        if reload.applied:
            self._reconfigure(reload.config)
        return reload

    def begin_drain(self) -> None:
        """Report not ready and refuse new responses; what runs goes on."""
        self.draining = True
        self.parts.readiness.begin_drain()
        self.parts.engine.begin_drain()
        self.parts.sockets.begin_drain()

    async def drained(self, timeout: float) -> bool:
        """Wait until no response is being made and none waits for its client; tell whether that came true in time.

        Args:
            timeout: longest wait in seconds.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        return await self.parts.engine.drained(timeout) and await self.parts.sockets.drained(deadline - now())

    def cut_off(self) -> int:
        """End every running response as failed, which its caller is told; returns how many there were."""
        return self.parts.engine.cut_off()

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == ScopeType.WEBSOCKET:
            if scope["path"] != RESPONSES_PATH:
                raise NotFound(
                    f"There is no WebSocket at this path; it is at {RESPONSES_PATH}.", code="route_not_found"
                )
            scope["path_template"] = RESPONSES_PATH
            return self.parts.sockets(scope, receive, send)
        # The hot path spares itself Litestar's layers, which only pages of other origins need.
        if (
            scope["path"] == RESPONSES_PATH
            and scope["type"] == ScopeType.HTTP
            and scope["method"] == "POST"
            and not self.config.server.allowed_origins
        ):
            scope["path_template"] = RESPONSES_PATH
            return self.parts.endpoint(scope, receive, send)
        return self._routes(scope, receive, send)

    def _reconfigure(self, config: GatewayConfig) -> None:
        server, before = config.server, self.config
        # Litestar takes origins at its making only.
        moved = server.allowed_origins != before.server.allowed_origins
        routes = _build_litestar(self.parts, server) if moved else self._routes
        for reconfigure in self.parts.reconfigure:
            reconfigure(config)
        self._routes = routes
        self._callers.reconfigure(server.allowed_hosts, server.allowed_origins)
        self._operators.reconfigure(server.allowed_hosts, ())
        if server.allowed_hosts != before.server.allowed_hosts:
            self._warn_of_any_host()
        self.config = config

    def _warn_of_any_host(self) -> None:
        if self._callers.accepts_any_host:
            _logger.warning(
                "any Host header is accepted; name the hosts of %s in [server] allowed_hosts", self.config.server.host
            )


def build_app(config: GatewayConfig) -> Gateway:
    """Build a gateway from its configuration.

    Args:
        config: the whole configuration.

    Raises:
        StartError: a part cannot be built as it is configured.
    """
    return Gateway(build_parts(config))


def build_parts(
    config: GatewayConfig,
    *,
    store: Store | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
    engine: Engine | None = None,
    endpoint: ASGIApp | None = None,
    metrics: Metrics | None = None,
    tracing: Tracing | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Parts:
    """Build every part that is not given from the configuration.

    Raises:
        StartError: a part cannot be built as it is configured.
    """
    metrics = metrics or Metrics()
    try:
        store = store or _build_store(config.storage, metrics)
        tracing = tracing or Tracing.from_environment(os.environ)
    except (StorageNotReady, TracingError) as error:
        raise StartError(str(error)) from error
    reconfigure: list[Callable[[GatewayConfig], None]] = []
    if upstreams is None:
        upstreams = servers = _build_upstreams(config, metrics)
        reconfigure.append(lambda changed: _reconfigure_upstreams(servers, changed))
    clock = clock or SystemClock()
    ids = ids or UuidIds()
    if engine is None:
        engine = Engine(
            config, store=store, upstreams=upstreams, metrics=metrics, tracing=tracing, clock=clock, ids=ids
        )
        # It builds before it takes, so it goes first: what fails changes nothing.
        reconfigure.insert(0, engine.reconfigure)
    if endpoint is None:
        endpoint = served = ResponsesEndpoint(engine, config, metrics)
        reconfigure.append(served.reconfigure)
    sockets = WebSocketEndpoint(engine, config, metrics)
    reconfigure.append(sockets.reconfigure)
    return Parts(
        config=config,
        store=store,
        upstreams=upstreams,
        engine=engine,
        endpoint=endpoint,
        sockets=sockets,
        readiness=Readiness(store, upstreams),
        metrics=metrics,
        tracing=tracing,
        clock=clock,
        ids=ids,
        reconfigure=reconfigure,
    )


def _build_litestar(parts: Parts, server: ServerConfig) -> Litestar:
    docs = ApiDocs()
    return LeanLitestar(
        route_handlers=[
            build_responses_route(parts.endpoint, websockets=parts.config.websocket.enabled),
            *ROUTES,
            *(DOCS_ROUTES if parts.config.server.openapi else ()),
        ],
        dependencies={
            "docs": Provide(lambda: docs, sync_to_thread=False),
            "engine": Provide(lambda: parts.engine, sync_to_thread=False),
            "readiness": Provide(lambda: parts.readiness, sync_to_thread=False),
        },
        cors_config=_cors_config(server.allowed_origins),
        exception_handlers={Exception: respond_with_error},
        request_max_body_size=server.max_request_body_bytes,
        openapi_config=None,
        logging_config=None,
    )


def _cors_config(origins: Sequence[str]) -> CORSConfig | None:
    """Let the listed pages read answers; without any, the hot path is spared the layer."""
    if not origins:
        return None
    return CORSConfig(allow_origins=list(origins), expose_headers=["x-request-id", "retry-after", "x-should-retry"])


def _build_store(storage: StorageConfig, metrics: Metrics) -> Store:
    store = SqlStore(_store_settings(storage), metrics)
    if not storage.history_cache_bytes:
        return store
    return CachedStore(
        store,
        max_bytes=storage.history_cache_bytes,
        revalidate_seconds=storage.history_revalidate_seconds,
        history_max_responses=storage.history_max_responses,
        history_max_bytes=storage.history_max_bytes,
        metrics=metrics,
    )


def _store_settings(storage: StorageConfig) -> StoreSettings:
    return StoreSettings(
        url=database_url(storage.url.reveal()),
        auto_migrate=storage.auto_migrate,
        sqlite_synchronous=storage.sqlite_synchronous,
        busy_timeout_seconds=storage.busy_timeout_seconds,
        statement_timeout_seconds=storage.statement_timeout_seconds,
        probe_timeout_seconds=storage.probe_timeout_seconds,
        verify_after_seconds=storage.verify_after_seconds,
        readers=storage.readers,
        reader_max_entries=storage.reader_max_entries,
        writer_max_entries=storage.writer_max_entries,
        writer_max_bytes=storage.writer_max_bytes,
        writer_batch_entries=storage.writer_batch_entries,
        history_max_responses=storage.history_max_responses,
        history_max_bytes=storage.history_max_bytes,
        retention_seconds=storage.retention_seconds,
        retention_interval_seconds=storage.retention_interval_seconds,
        retention_batch_responses=storage.retention_batch_responses,
    )


def _build_upstreams(config: GatewayConfig, metrics: Metrics) -> dict[str, HttpUpstream]:
    upstreams: dict[str, HttpUpstream] = {}
    for name, upstream in config.upstream_map().items():
        try:
            upstreams[name] = HttpUpstream(_upstream_settings(upstream, config), name=name, metrics=metrics)
        except CertificateFileError as error:
            raise StartError(f"ca_file of upstream '{name}': {error}") from error
    return upstreams


def _reconfigure_upstreams(upstreams: Mapping[str, HttpUpstream], config: GatewayConfig) -> None:
    configs = config.upstream_map()
    settings = {name: _upstream_settings(configs[name], config) for name in upstreams}
    for name, upstream in upstreams.items():
        upstream.reconfigure(settings[name])


def _upstream_settings(upstream: UpstreamConfig, config: GatewayConfig) -> UpstreamSettings:
    return UpstreamSettings(
        url=upstream.url,
        api_key=None if upstream.api_key is None else upstream.api_key.reveal(),
        dialect=upstream.dialect,
        connect_timeout=upstream.connect_timeout_seconds,
        connect_retries=upstream.connect_retries,
        retry_share=upstream.connect_retry_budget,
        longest_retry_wait=upstream.connect_retry_backoff_seconds,
        breaker_failures=upstream.breaker_failures,
        breaker_open=upstream.breaker_open_seconds,
        ca_file=upstream.ca_file,
        tls_verify=upstream.tls_verify,
        first_byte_timeout=upstream.first_byte_timeout_seconds,
        idle_timeout=upstream.idle_timeout_seconds,
        total_timeout=upstream.total_timeout_seconds,
        max_connections=upstream.max_connections,
        health_interval=upstream.health_interval_seconds,
        probe_timeout=upstream.probe_timeout_seconds,
        models_cache=upstream.models_cache_seconds,
        max_header_bytes=upstream.max_header_bytes,
        read_slice_bytes=upstream.read_slice_bytes,
        max_json_bytes=config.responses.max_upstream_json_bytes,
    )
