"""An assembled gateway: its two apps, its life and its changes of configuration."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.app.access import build_proxies
from gateway.app.certificate import ServedCertificate
from gateway.app.errors import StartError
from gateway.app.parts import Parts, build_parts
from gateway.app.routing import build_litestar
from gateway.app.status import take_status
from gateway.config.addresses import is_loopback, split_bind
from gateway.config.changes import Reload, compare
from gateway.config.display import show_settings
from gateway.config.findings import NO_ORIGINS, Origin
from gateway.config.schema import GatewayConfig
from gateway.protocol.errors import NotFound
from gateway.storage.faults import StorageNotReady
from gateway.telemetry.names import LOGGER_SERVER
from gateway.telemetry.status import Status
from gateway.transport.admin import build_admin_app
from gateway.transport.capture import Capture
from gateway.transport.edge import Edge
from gateway.transport.hosts import HostPolicy
from gateway.transport.paths import RESPONSES_PATH

_logger = logging.getLogger(LOGGER_SERVER)


class Gateway:
    """An assembled gateway.

    Args:
        parts: what it consists of.

    Raises:
        StartError: the certificate of the public listener cannot be used.

    Attributes:
        parts: what it consists of.
        config: the configuration in effect; requests that are being served may still keep to an earlier one.
        origins: where its values were written, by dotted path, as far as that is known.
        draining: whether it has begun to stop.
        public: the app callers reach.
        admin: the app of the admin listener.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.config = parts.config
        self.origins: Mapping[str, Origin] = NO_ORIGINS
        self.draining = False
        self._started = parts.clock.now()
        server = parts.config.server
        self._certificate = ServedCertificate(server)
        self._capture = Capture(parts.config.telemetry, parts.clock.now)
        self._callers = HostPolicy(server.host, server.allowed_hosts, server.allowed_origins)
        self._warn_of_any_host()
        if parts.config.auth.mode == "none" and not is_loopback(server.host):
            _logger.warning("whoever reaches %s is served without a key ([auth] mode is none)", server.host)
        self._routes = build_litestar(parts, server)
        self.public = Edge(
            self._serve,
            policy=self._callers,
            authenticator=parts.authenticator,
            proxies=build_proxies(parts.config.auth),
            metrics=parts.metrics,
            tracing=parts.tracing,
            clock=parts.clock,
            ids=parts.ids,
        )
        admin_host, _ = split_bind(parts.config.admin.bind)
        self._operators = HostPolicy(admin_host, server.allowed_hosts)
        self.admin: ASGIApp = build_admin_app(
            self._expose,
            parts.readiness,
            self._operators,
            read_status=self.read_status,
            read_config=lambda: show_settings(self.config, self.origins),
        )

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What a new connection of a caller is encrypted with, None for a plain one."""
        return self._certificate.context

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Open the store and the upstreams, and close them in the end. Does not wait for the inference servers.

        Raises:
            StartError: the store cannot be used as it is configured.
        """
        async with AsyncExitStack() as closing:
            # What a worker has counted outlives it.
            closing.callback(self.parts.metrics.refresh)
            closing.push_async_callback(asyncio.to_thread, self.parts.tracing.close)
            closing.push_async_callback(self.parts.store.close)
            try:
                await self.parts.store.start()
            except StorageNotReady as error:
                raise StartError(str(error)) from error
            closing.push_async_callback(self.parts.engine.usage.close)
            await self.parts.engine.usage.start()
            closing.push_async_callback(self.parts.authenticator.close)
            await self.parts.authenticator.start()
            closing.push_async_callback(self.parts.tools.close)
            for upstream in self.parts.upstreams.values():
                closing.push_async_callback(upstream.close)
                await upstream.start()
            closing.push_async_callback(self.parts.background.close)
            await self.parts.background.start()
            yield

    def reload(self, config: GatewayConfig) -> Reload:
        """Put another configuration into effect as far as that needs no restart.

        All of it comes into effect at once; requests that are being served keep the settings they began with.

        Args:
            config: what was read, checked.

        Returns:
            What was applied, and what has to wait for a restart.
        """
        self.parts.authenticator.refresh()
        reload = compare(self.config, config)
        if reload.applied:
            self._reconfigure(reload.config)
        self._certificate.refresh(self.config.server)
        return reload

    async def read_status(self) -> Status:
        """Return what the process tells of itself now. Takes as long as the store's bounded probe."""
        return await take_status(self.parts, self.config, started=self._started, draining=self.draining)

    def begin_drain(self) -> None:
        """Report not ready and refuse new responses; what runs goes on."""
        self.draining = True
        self.parts.readiness.begin_drain()
        self.parts.engine.begin_drain()
        self.parts.background.begin_drain()
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
        # First: what others can make is not for the engine to end.
        self.parts.background.cut_off()
        return self.parts.engine.cut_off() + self.parts.relay.cut_off() + self.parts.standalone.cut_off()

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if self._capture.active and self._capture.wants(scope):
            return self._capture.serve(self._serve, scope, receive, send)
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

    async def _expose(self) -> bytes:
        return self.parts.metrics.render()

    def _reconfigure(self, config: GatewayConfig) -> None:
        server, before = config.server, self.config
        # Litestar takes origins at its making only.
        moved = server.allowed_origins != before.server.allowed_origins
        routes = build_litestar(self.parts, server) if moved else self._routes
        for reconfigure in self.parts.reconfigure:
            reconfigure(config)
        self._routes = routes
        self._callers.reconfigure(server.allowed_hosts, server.allowed_origins)
        self._operators.reconfigure(server.allowed_hosts, ())
        self._capture.reconfigure(config.telemetry)
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
