"""The reload: the configuration is read again and, as far as that needs no restart, put into effect."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

from gateway.config import ConfigError, LoadedConfig, Origin
from gateway.config.changes import Change, Reload
from gateway.config.schema import GatewayConfig
from gateway.ports import Clock
from gateway.telemetry import names
from gateway.telemetry.audit import note_action
from gateway.telemetry.metrics import Metrics

_logger = logging.getLogger(names.LOGGER_SERVER)


class Reloadable(Protocol):
    """What takes another configuration while it runs.

    Attributes:
        origins: where the values in effect were written, by dotted path.
    """

    origins: Mapping[str, Origin]

    @property
    def config(self) -> GatewayConfig:
        """The configuration in effect."""
        ...

    @property
    def draining(self) -> bool:
        """Whether it has begun to stop."""
        ...

    def reload(self, config: GatewayConfig) -> Reload:
        """Put another configuration into effect as far as that needs no restart."""
        ...


class Reloader:
    """Reloads on request, one reading at a time. Every reload leaves one log record and one count.

    One that somebody asked for leaves a record in the audit log besides.

    Args:
        target: gets what was read.
        load: reads the sources again and checks them; blocks, and raises ConfigError when they cannot be used.
        metrics: what is counted.
        clock: tells when the configuration was read.
    """

    def __init__(self, target: Reloadable, load: Callable[[], LoadedConfig], metrics: Metrics, clock: Clock) -> None:
        self._target = target
        self._load = load
        self._metrics = metrics
        self._clock = clock
        self._wanted = asyncio.Event()
        self._actor = ""
        self._note_reading()

    def request(self, actor: str = "") -> None:
        """Ask for a reload; those asked for while one is running become one more.

        Args:
            actor: who asks, empty where another process was asked and has told this one.
        """
        self._actor = actor or self._actor
        self._wanted.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests, also those made before, until the block ends."""
        task = asyncio.create_task(self._serve(), name="reload")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _serve(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            actor, self._actor = self._actor, ""
            try:
                outcome = await self._reload()
            # A fault in a reload must not take later ones away.
            except Exception:
                _logger.exception("reload: failed unexpectedly")
                outcome = "failed"
            self._metrics.config_reloads_total.labels(outcome=outcome).inc()
            if actor:
                note_action("config reload", actor=actor, object=f"process {os.getpid()}", outcome=outcome)

    async def _reload(self) -> str:
        if self._is_too_late():
            return "ignored"
        try:
            loaded = await asyncio.to_thread(self._load)
        except ConfigError as error:
            # The traceback would tell nothing.
            _logger.error(  # noqa: TRY400
                "reload: the configuration cannot be used; nothing was changed",
                extra=_drop_empty(
                    {
                        names.FIELD_PROBLEMS: [str(finding) for finding in error.problems],
                        names.FIELD_WARNINGS: [str(finding) for finding in error.warnings],
                    }
                ),
            )
            return "failed"
        if self._is_too_late():
            return "ignored"
        self._note_reading()
        return self._apply(loaded)

    def _apply(self, loaded: LoadedConfig) -> str:
        before = self._target.config.telemetry.log_level
        reload = self._target.reload(loaded.config)
        waiting = {change.path for change in reload.pending}
        read = {path: origin for path, origin in loaded.origins.items() if path not in waiting}
        self._target.origins = {**self._target.origins, **read}
        with _changing_level(before, reload.config.telemetry.log_level):
            return self._report(reload, loaded)

    def _report(self, reload: Reload, loaded: LoadedConfig) -> str:
        if not reload.applied and not reload.pending:
            _logger.info("reload: nothing has changed")
            return "unchanged"
        _logger.log(
            logging.WARNING if reload.pending else logging.INFO,
            "reload: %d applied, %d waiting for a restart",
            len(reload.applied),
            len(reload.pending),
            extra=_drop_empty(
                {
                    names.FIELD_APPLIED: _list_changes(reload.applied),
                    names.FIELD_RESTART_NEEDED: _list_changes(reload.pending),
                    names.FIELD_WARNINGS: [str(finding) for finding in loaded.warnings],
                }
            ),
        )
        return "restart_needed" if reload.pending else "applied"

    def _is_too_late(self) -> bool:
        if self._target.draining:
            _logger.warning("reload: ignored, because the gateway is shutting down")
        return self._target.draining

    def _note_reading(self) -> None:
        self._metrics.config_last_reload_timestamp_seconds.set(self._clock.now())


@contextmanager
def _changing_level(before: str, after: str) -> Iterator[None]:
    """Change the level of the log, but let nothing be lost inside that either of the two would show."""
    root = logging.getLogger()
    if before != after:
        root.setLevel(min(before.upper(), after.upper(), key=logging.getLevelNamesMapping().__getitem__))
    yield
    if before != after:
        root.setLevel(after.upper())


def _drop_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _list_changes(changes: Iterable[Change]) -> dict[str, str]:
    return {change.path: f"{change.old} -> {change.new}" for change in changes}
