"""A whole gateway in a thread of this process, where all it does inside can be watched: statements, metrics, logs."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from sqlalchemy import Engine, event

from gateway.app.gateway import Gateway
from gateway.app.parts import build_parts
from gateway.config.schema import GatewayConfig
from gateway.ports import Tools
from gateway.server.listeners import bind_listeners
from gateway.server.serving import LeavingServer
from gateway.telemetry.metrics import Metrics
from gateway.tools.gate import Gate
from gateway.tools.registry import ToolRegistry

T = TypeVar("T")
_SECONDS = 20.0


class EmbeddedGateway:
    """A gateway on a free port of its own; use it as a context manager.

    Args:
        config: its configuration; port 0, without an admin listener.
        tools: run by the gateway instead of those of the configuration.
    """

    def __init__(self, config: GatewayConfig, tools: Tools | None = None) -> None:
        self.port = 0
        self._config = config
        self._tools = tools
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="embedded-gateway", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_SECONDS)
        if self._failure:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.exit, 0.0)
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive()

    def counters(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return every counter, and how many observations every histogram has."""

        async def read() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
            return {
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in self.gateway.parts.metrics.registry.collect()
                for sample in family.samples
                if sample.name.startswith("gateway_") and sample.name.endswith(("_total", "_count"))
            }

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result(_SECONDS)

    def do(self, act: Callable[[], T]) -> T:
        """Do something on the gateway's event loop."""

        async def run() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_SECONDS)

    def sample(self, name: str, **labels: str) -> float:
        """Return one sample of the metrics, 0 when it was never touched."""
        registry = self.gateway.parts.metrics.registry
        return self.do(lambda: registry.get_sample_value(f"gateway_{name}", labels)) or 0.0

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:
            self._failure = failure
            self._ready.set()
            raise

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        metrics = Metrics()
        tools = None if self._tools is None else ToolRegistry([self._tools], Gate(self._config.tools, metrics))
        self.gateway = gateway = Gateway(build_parts(self._config, tools=tools, metrics=metrics))
        listeners = bind_listeners(self._config)
        self.port = listeners.public.getsockname()[1]
        self._server = LeavingServer(gateway.public, lambda: gateway.config, gateway.public.note_refusal, upgrades=True)
        async with gateway.lifespan():
            listeners.public.listen()
            self._loop.call_soon(self._ready.set)
            await self._server.serve(sockets=[listeners.public])


@contextmanager
def recorded_statements() -> Iterator[list[str]]:
    """Note the text of every statement that a reader or the writer of a store executes meanwhile."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread().name.startswith("store-"):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@contextmanager
def recorded_logs(show: Callable[[logging.LogRecord], str]) -> Iterator[list[str]]:
    """Note every record of the gateway's loggers meanwhile, as `show` shows it."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(show(record))

    logger, handler = logging.getLogger("gateway"), Handler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
