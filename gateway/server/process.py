"""One process that serves: from the bound sockets to the exit code."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing, nullcontext

from litestar.types import ASGIApp

from gateway import __version__
from gateway.app import Gateway, StartError, build_app
from gateway.config import LoadedConfig, Origin
from gateway.config.findings import NO_ORIGINS
from gateway.config.schema import GatewayConfig
from gateway.reload import Reloader
from gateway.server.draining import GatewayServer
from gateway.server.exits import EXIT_DONE, EXIT_FAILED, bounded_end
from gateway.server.listeners import Listeners, bind_listeners, show_bound
from gateway.server.serving import LeavingServer, choose_loop
from gateway.server.signals import owned_signals

_WAIT_INTERVAL_SECONDS = 1.0


def serve(
    config: GatewayConfig,
    *,
    load: Callable[[], LoadedConfig],
    announce: Callable[[str], None],
    report: Callable[[str], None],
    wait_upstream: float | None = None,
    origins: Mapping[str, Origin] = NO_ORIGINS,
    build: Callable[..., Gateway] = build_app,
) -> int:
    """Serve until a signal ends it; blocks.

    Args:
        config: the whole configuration.
        load: reads the configuration again, for a reload; raises ConfigError when it cannot be used.
        announce: gets one line with the addresses, once connections are accepted.
        report: gets lines about waiting, and the reason when the start fails.
        wait_upstream: seconds to wait for a healthy inference server first, or None not to wait.
        origins: where the values of the configuration were written, by dotted path.
        build: builds the gateway, as `build_app` does.

    Returns:
        The exit code: 0 after an orderly end, 1 when the start failed or a second signal cut work off.
    """
    try:
        gateway = build(config)
        gateway.origins = origins
        with closing(bind_listeners(config)) as listeners:
            server = GatewayServer(gateway, lambda: announce(describe(config, listeners)))
            return run_loop(server, reloader_of(gateway, load), listeners, wait_upstream=wait_upstream, report=report)
    except StartError as error:
        report(f"error: {error}")
        return EXIT_FAILED


def reloader_of(gateway: Gateway, load: Callable[[], LoadedConfig]) -> Reloader:
    """Return what reloads a gateway; `load` is as for `serve`."""
    return Reloader(gateway, load, gateway.parts.metrics, gateway.parts.clock)


def run_loop(
    server: GatewayServer,
    reloader: Reloader,
    listeners: Listeners,
    *,
    wait_upstream: float | None,
    report: Callable[[str], None],
    beside: AbstractAsyncContextManager[None] | None = None,
) -> int:
    """Run the event loop until the server has stopped; returns the exit code, as `serve` does.

    Args:
        server: serves the gateway.
        reloader: reloads it at SIGHUP.
        listeners: the bound sockets.
        wait_upstream: as for `serve`.
        report: as for `serve`.
        beside: open for as long as the gateway is.

    Raises:
        StartError: the start failed.
    """
    with ExitStack() as end, asyncio.Runner(loop_factory=choose_loop()) as runner:
        runner.run(_run(server, reloader, listeners, wait_upstream, report, beside or nullcontext(), end))
    return EXIT_FAILED if server.forced else EXIT_DONE


async def _run(
    server: GatewayServer,
    reloader: Reloader,
    listeners: Listeners,
    wait_upstream: float | None,
    report: Callable[[str], None],
    beside: AbstractAsyncContextManager[None],
    end: ExitStack,
) -> None:
    gateway = server.gateway
    with owned_signals(server.stop, reloader.request):
        async with beside, gateway.lifespan(), reloader.running():
            try:
                if wait_upstream is not None:
                    await _wait_for_upstream(server, gateway, wait_upstream, report)
                if server.should_exit:
                    return
                async with serve_admin(gateway.admin, lambda: gateway.config, listeners.admin):
                    await server.serve(sockets=[listeners.public])
            finally:
                end.enter_context(bounded_end(server.settings.end_seconds))


@asynccontextmanager
async def serve_admin(
    app: ASGIApp, config: Callable[[], GatewayConfig], listener: socket.socket | None
) -> AsyncIterator[None]:
    """Serve the admin app from before the block until it ends; does nothing without a listener."""
    if listener is None:
        yield
        return
    server = LeavingServer(app, config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    listening = asyncio.create_task(server.listening.wait())
    try:
        # Where it cannot begin, the end of the block tells why.
        await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        listening.cancel()
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


def describe(config: GatewayConfig, listeners: Listeners) -> str:
    """Return the line that says what serves, where, and from what."""
    upstreams = ", ".join(upstream.url for upstream in config.upstream_map().values())
    scheme = "http" if config.server.tls_cert_file is None else "https"
    line = f"Responses Gateway {__version__} on {scheme}://{show_bound(listeners.public)}"
    details = [f"upstream {upstreams}", f"database {config.storage.url.redacted}"]
    if config.server.workers > 1:
        details.append(f"{config.server.workers} workers")
    if listeners.admin is not None:
        details.append(f"admin http://{show_bound(listeners.admin)}")
    return f"{line} ({', '.join(details)})"
