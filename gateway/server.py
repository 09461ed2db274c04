"""The process: its sockets, its signals and its end.

uvicorn serves; this module binds the sockets beforehand, owns the signals and drains before it lets uvicorn stop.
"""

import asyncio
import errno
import gc
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, Literal, NamedTuple

import uvicorn
from litestar.types import ASGIApp

from gateway import __version__
from gateway.app import Gateway, StartError, build_app
from gateway.config import LoadedConfig
from gateway.config.addresses import split_bind
from gateway.config.schema import GatewayConfig, ServerConfig
from gateway.reload import Reloader
from gateway.telemetry.names import LOGGER_SERVER
from gateway.transport.protocol import ConnectionProtocol
from gateway.transport.socket_protocol import SocketProtocol

EXIT_DONE = 0
EXIT_FAILED = 1

_BACKLOG = 2048
_CLOSING_INTERVAL_SECONDS = 0.05
# How long handlers of aborted connections get to end by themselves.
_ABORT_GRACE_SECONDS = 1.0
_WAIT_INTERVAL_SECONDS = 1.0
_logger = logging.getLogger(LOGGER_SERVER)


class Listeners(NamedTuple):
    """The bound sockets, not yet listening."""

    public: socket.socket
    admin: socket.socket | None

    def close(self) -> None:
        """Close both; closing twice is fine."""
        self.public.close()
        if self.admin is not None:
            self.admin.close()


class _Server(uvicorn.Server):
    """A uvicorn server without signals of its own, which ends by leaving its clients, not by cancelling handlers.

    Args:
        app: what is served.
        gateway: knows the bounds of connections, and their grace; a connection keeps those it began with.
        note_refusal: told of every answer to what is no request, as `ConnectionProtocol` tells it.
        upgrades: whether a request may become a WebSocket.
    """

    def __init__(
        self,
        app: ASGIApp,
        gateway: Gateway,
        note_refusal: Callable[[int], str] | None = None,
        *,
        upgrades: bool = False,
    ) -> None:
        self._gateway = gateway
        self._note_refusal = note_refusal
        super().__init__(_uvicorn_config(app, self._build_protocol, self._build_socket if upgrades else "none"))
        self._close_at: float | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def _settings(self) -> ServerConfig:
        return self._gateway.config.server

    def _build_protocol(self, *args: Any, **kwargs: Any) -> ConnectionProtocol:
        return ConnectionProtocol(*args, **kwargs, settings=self._settings, note_refusal=self._note_refusal)

    def _build_socket(self, *args: Any, **kwargs: Any) -> SocketProtocol:
        return SocketProtocol(
            *args,
            **kwargs,
            settings=self._gateway.config.websocket,
            close_grace_seconds=self._settings.close_grace_seconds,
            note_refusal=self._note_refusal,
        )

    def exit(self, close_at: float | None = None) -> None:
        """Stop accepting connections and end.

        Args:
            close_at: loop time at which connections that are still open are aborted; None grants the usual grace.
        """
        self._close_at = close_at
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener, let the last bytes leave, then abort the connections and with them their handlers."""
        now = asyncio.get_running_loop().time
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        connections = self.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        if self._close_at is None:
            self._close_at = now() + self._settings.close_grace_seconds
        while connections and now() < self._close_at:  # noqa: ASYNC110  # nobody tells when the last one is gone
            await asyncio.sleep(_CLOSING_INTERVAL_SECONDS)
        for connection in list(connections):
            connection.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_ABORT_GRACE_SECONDS)
            left = list(self.server_state.tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


class GatewayServer(_Server):
    """A uvicorn server that drains before it stops.

    The first signal makes the gateway unready and refuse new responses while the listener stays open and running
    responses go on. When none is left, or `drain_seconds` have passed, what still runs ends as failed, the listener
    closes, and clients get their grace to take the last bytes. A second signal goes there at once, a third one skips
    the grace.

    Args:
        gateway: what is served, and drained.
        announce: called once, when connections are accepted.

    Attributes:
        forced: a second signal has cut work off.
    """

    def __init__(self, gateway: Gateway, announce: Callable[[], None]) -> None:
        upgrades = gateway.config.websocket.enabled
        super().__init__(gateway.public, gateway, gateway.public.note_refusal, upgrades=upgrades)
        gateway.parts.metrics.client_connections.set_function(lambda: len(self.server_state.connections))
        self.forced = False
        self._announce = announce
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, then say so.

        Raises:
            StartError: another process, bound to the same address, began to listen first.
        """
        try:
            await super().startup(sockets)
        except OSError as error:
            raise StartError(f"the address cannot be listened on ({error.strerror}).") from error
        _settle_garbage_collection()
        self._announce()

    @contextmanager
    def owned_signals(self, hangup: Callable[[], None]) -> Iterator[None]:
        """Take SIGTERM, SIGINT and SIGHUP of the running loop, also a SIGHUP that was held back until now.

        Args:
            hangup: called at every SIGHUP.
        """
        loop = asyncio.get_running_loop()
        for caught in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(caught, self.stop, caught.name)
        loop.add_signal_handler(signal.SIGHUP, hangup)
        held = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(caught)

    def stop(self, reason: str) -> None:
        """Begin the drain or, when it runs already, cut it short."""
        if self._drain is None:
            seconds = self._settings.drain_seconds
            _logger.info("%s: draining for at most %g seconds", reason, seconds)
            self._gateway.begin_drain()
            self._drain = asyncio.get_running_loop().create_task(self._drain_then_exit(seconds))
            return
        self._drain.cancel()
        grace = 0.0 if self.forced else self._settings.close_grace_seconds
        self.forced = True
        self._cut_off(f"{reason} again")
        self.exit(asyncio.get_running_loop().time() + grace)

    async def _drain_then_exit(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        try:
            if not await self._gateway.drained(seconds):
                self._cut_off("[server] drain_seconds are over")
                # What it tells the callers has to reach them before their connections are closed.
                await self._gateway.drained(self._settings.close_grace_seconds)
        finally:
            self.exit(max(deadline, now() + self._settings.close_grace_seconds))

    def _cut_off(self, reason: str) -> None:
        _logger.warning("%s: cut off %d responses", reason, self._gateway.cut_off())


def serve(
    config: GatewayConfig,
    *,
    load: Callable[[], LoadedConfig],
    announce: Callable[[str], None],
    report: Callable[[str], None],
    wait_upstream: float | None = None,
    build: Callable[..., Gateway] = build_app,
) -> int:
    """Serve until a signal ends it; blocks.

    Args:
        config: the whole configuration.
        load: reads the configuration again, for a reload; raises ConfigError when it cannot be used.
        announce: gets one line with the addresses, once connections are accepted.
        report: gets lines about waiting, and the reason when the start fails.
        wait_upstream: seconds to wait for a healthy inference server first, or None not to wait.
        build: builds the gateway, as `build_app` does.

    Returns:
        The exit code: 0 after an orderly end, 1 when the start failed or a second signal cut work off.
    """
    try:
        gateway = build(config)
        with closing(bind_listeners(config)) as listeners:
            server = GatewayServer(gateway, lambda: announce(_describe(config, listeners)))
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(_run(server, Reloader(gateway, load), listeners, wait_upstream, report))
    except StartError as error:
        report(f"error: {error}")
        return EXIT_FAILED
    return EXIT_FAILED if server.forced else EXIT_DONE


def bind_listeners(config: GatewayConfig) -> Listeners:
    """Bind the public and, when enabled, the admin address.

    Raises:
        StartError: an address is in use, not ours to bind, or does not exist.
    """
    server = config.server
    public = _bind(server.host, server.port, "[server] host and port")
    # Accepted sockets inherit both options from the listening one.
    public.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, server.socket_send_buffer_bytes)
    public.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not config.admin.enabled:
        return Listeners(public, None)
    try:
        return Listeners(public, _bind(*split_bind(config.admin.bind), "[admin] bind"))
    except StartError:
        public.close()
        raise


async def _run(
    server: GatewayServer,
    reloader: Reloader,
    listeners: Listeners,
    wait_upstream: float | None,
    report: Callable[[str], None],
) -> None:
    gateway = reloader.gateway
    with server.owned_signals(reloader.request):
        async with gateway.lifespan(), reloader.running():
            if wait_upstream is not None:
                await _wait_for_upstream(server, gateway, wait_upstream, report)
            if server.should_exit:
                return
            async with _admin_server(gateway, listeners.admin):
                await server.serve(sockets=[listeners.public])


@asynccontextmanager
async def _admin_server(gateway: Gateway, listener: socket.socket | None) -> AsyncIterator[None]:
    if listener is None:
        yield
        return
    server = _Server(gateway.admin, gateway)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.exit()
        await serving


async def _wait_for_upstream(
    server: GatewayServer, gateway: Gateway, seconds: float, report: Callable[[str], None]
) -> None:
    deadline = time.monotonic() + seconds
    shown = ""
    while not server.should_exit:
        health = [(name, await upstream.probe()) for name, upstream in gateway.parts.upstreams.items()]
        if any(probed.healthy for _, probed in health):
            return
        detail = "; ".join(f"{name}: {probed.detail}" for name, probed in health)
        if time.monotonic() >= deadline:
            raise StartError(f"no inference server became healthy within {seconds:g} seconds ({detail})")
        if detail != shown:
            report(f"Waiting for the inference server ({detail})")
            shown = detail
        await asyncio.sleep(min(_WAIT_INTERVAL_SECONDS, max(0.0, deadline - time.monotonic())))


def _uvicorn_config(
    app: ASGIApp,
    build_protocol: Callable[..., ConnectionProtocol],
    build_socket: Callable[..., SocketProtocol] | Literal["none"],
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=build_protocol,  # type: ignore[arg-type]  # uvicorn only calls it
        loop="auto",
        ws=build_socket,  # type: ignore[arg-type]  # likewise
        lifespan="off",  # the gateway is opened around the server, so that its errors arrive here as they are
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        reset_contextvars=True,
        backlog=_BACKLOG,
    )


def _bind(host: str, port: int, key: str) -> socket.socket:
    address = _show_address(host, port)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartError(f"{host} is no address of this machine ({error.strerror}); change {key}.") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(target)
    except OSError as error:
        bound.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
        raise StartError(f"address {address} {reason}; stop what listens there or change {key}.") from error
    return bound


def _show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _describe(config: GatewayConfig, listeners: Listeners) -> str:
    upstreams = ", ".join(upstream.url for upstream in config.upstream_map().values())
    line = f"Responses Gateway {__version__} on http://{_show_bound(listeners.public)}"
    details = [f"upstream {upstreams}", f"database {config.storage.url.redacted}"]
    if listeners.admin is not None:
        details.append(f"admin http://{_show_bound(listeners.admin)}")
    return f"{line} ({', '.join(details)})"


def _show_bound(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return _show_address(host, port)


def _settle_garbage_collection() -> None:
    """Take what was built at start out of the collector's sight, and let it look less often.

    A response leaves no reference cycles behind, so frequent passes over the live objects of other responses find
    nothing; a full pass every few hundred thousand allocations bounds what a stray cycle can hold.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
