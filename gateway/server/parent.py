"""Several worker processes on one socket, and the parent that looks after them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
from msgspec import structs

from gateway import __version__
from gateway.app import StartError, SystemClock
from gateway.config import LoadedConfig
from gateway.config.addresses import split_bind
from gateway.config.changes import Reload, compare
from gateway.config.display import show_settings
from gateway.config.findings import NO_ORIGINS, Origin
from gateway.config.handover import pack
from gateway.config.schema import GatewayConfig
from gateway.reload import Reloader
from gateway.server.child import Child
from gateway.server.exits import EXIT_FAILED
from gateway.server.listeners import Listeners, bind_listeners
from gateway.server.messages import ReadAgain, Task
from gateway.server.overview import Overview
from gateway.server.process import describe, serve_admin
from gateway.server.serving import choose_loop
from gateway.server.signals import owned_signals
from gateway.server.supervisor import Supervisor, WorkerFailed
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.sharing import SharedMetrics, forget_gauges, share_metrics, shared_folder
from gateway.transport.admin import build_admin_app
from gateway.transport.hosts import HostPolicy

_OWN_NUMBER = 0


def supervise(
    config: GatewayConfig,
    *,
    file: Path | None,
    overrides: tuple[str, ...],
    load: Callable[[], LoadedConfig],
    announce: Callable[[str], None],
    report: Callable[[str], None],
    wait_upstream: float | None = None,
    origins: Mapping[str, Origin] = NO_ORIGINS,
) -> int:
    """Serve by `[server] workers` processes until a signal ends it; blocks.

    Args:
        config: the whole configuration.
        file: where the workers read it, as this process did.
        overrides: `section.key=value` each, likewise.
        load: reads it again, for a reload; raises ConfigError when it cannot be used.
        announce: gets one line with the addresses, once the workers accept connections.
        report: gets the reason when the start fails.
        wait_upstream: seconds to wait for a healthy inference server first, or None not to wait.
        origins: where the values of the configuration were written, by dotted path.

    Returns:
        The exit code: 0 after an orderly end of all workers; 1 when the start failed, a second signal cut work off, or
        workers could not be started any more.
    """
    try:
        with closing(bind_listeners(config)) as listeners, shared_folder() as folder:
            share_metrics(folder, _OWN_NUMBER)
            task = Task(
                version=__version__,
                number=0,
                control=-1,
                listener=-1,
                folder=str(folder),
                config=msgspec.Raw(),
                file=str(file) if file else None,
                overrides=overrides,
                wait_upstream=None,
            )
            with asyncio.Runner(loop_factory=choose_loop()) as runner:
                parent = _Parent(config, listeners, task)
                parent.origins = origins
                return runner.run(parent.run(load, lambda: announce(describe(config, listeners)), wait_upstream))
    except WorkerFailed as error:
        report(f"error: {error}")
        return error.code
    except StartError as error:
        report(f"error: {error}")
        return EXIT_FAILED


class _Parent:
    """The parent: it serves operators, and nobody else.

    Args:
        config: the configuration it starts with.
        listeners: the bound sockets.
        task: what workers are told, but for their number.

    Attributes:
        config: the configuration in effect.
        origins: where its values were written, by dotted path, as far as that is known.
    """

    def __init__(self, config: GatewayConfig, listeners: Listeners, task: Task) -> None:
        self.config = config
        self.origins: Mapping[str, Origin] = NO_ORIGINS
        self._listeners = listeners
        self._task = task
        folder = Path(task.folder)
        metrics = self._metrics = Metrics()
        self._supervisor = supervisor = Supervisor(
            self._hire, lambda: self.config.server, metrics, partial(forget_gauges, folder)
        )
        metrics.watch(metrics.workers, lambda: sum(child.serving for child in supervisor.children.values()))
        overview = Overview(supervisor, lambda: self.config.server, metrics, SharedMetrics(folder, _OWN_NUMBER))
        self._operators = HostPolicy(split_bind(config.admin.bind)[0], config.server.allowed_hosts)
        self._admin = build_admin_app(
            overview.expose,
            overview,
            self._operators,
            read_status=overview.read_status,
            read_config=lambda: show_settings(self.config, self.origins),
        )

    @property
    def draining(self) -> bool:
        """Whether the workers were told to stop."""
        return self._supervisor.stopping

    def reload(self, config: GatewayConfig) -> Reload:
        """Take what concerns the parent and have the workers read the same."""
        reload = compare(self.config, config)
        self.config = reload.config
        self._operators.reconfigure(self.config.server.allowed_hosts, ())
        self._supervisor.tell(ReadAgain())
        return reload

    async def run(
        self, load: Callable[[], LoadedConfig], announce: Callable[[], None], wait_upstream: float | None
    ) -> int:
        """Start the workers, keep them running and return the exit code.

        Raises:
            WorkerFailed: no worker can be started.
        """
        reloader = Reloader(self, load, self._metrics, SystemClock())
        with owned_signals(self._stop, reloader.request):
            async with reloader.running():
                await self._supervisor.open(wait_upstream)
                async with serve_admin(self._admin, lambda: self.config, self._listeners.admin):
                    if not self.draining:
                        announce()
                    return await self._supervisor.run()

    def _stop(self, reason: str) -> None:
        self._supervisor.stop(reason)
        # The port is free as soon as the last worker has closed it.
        self._listeners.public.close()

    async def _hire(self, number: int, wait_upstream: float | None) -> Child:
        config = msgspec.Raw(pack(self.config))
        task = structs.replace(self._task, number=number, config=config, wait_upstream=wait_upstream)
        return await Child.start(task, self._listeners.public)
