"""Keeps worker processes running, and stops them."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping

from gateway.app import StartError
from gateway.config.schema import ServerConfig
from gateway.server.child import Child
from gateway.server.exits import EXIT_DONE, EXIT_FAILED
from gateway.server.messages import Order, Stop
from gateway.telemetry import names
from gateway.telemetry.metrics import Metrics

_FIRST_PAUSE_SECONDS = 0.5
# What a worker may take for its end beyond the times it is granted by configuration.
_KILL_MARGIN_SECONDS = 10.0
_logger = logging.getLogger(names.LOGGER_SERVER)


class WorkerFailed(StartError):
    """No worker can be started; the text says why.

    Attributes:
        code: exit code of the worker that told.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


class Supervisor:
    """Keeps as many workers running as it is told.

    One that ends is started again after a pause, which doubles from time to time until it has served for a while.
    When none serves and one has failed to start for `worker_start_attempts` times in a row, it gives up.

    Args:
        hire: starts the worker of a number; gets the seconds to wait for an inference server first.
        settings: returns the bounds in effect.
        metrics: what is counted.
        note_end: told the number of a worker that has ended, before another takes its place.
    """

    def __init__(
        self,
        hire: Callable[[int, float | None], Awaitable[Child]],
        settings: Callable[[], ServerConfig],
        metrics: Metrics,
        note_end: Callable[[int], None],
    ) -> None:
        self._hire = hire
        self._settings = settings
        self._metrics = metrics
        self._note_end = note_end
        self._children: dict[int, Child] = {}
        self._stops = 0
        self._stopping = asyncio.Event()
        self._stop_reason = ""
        self._failure: WorkerFailed | None = None
        self._code = EXIT_DONE
        self._killing: asyncio.TimerHandle | None = None

    @property
    def children(self) -> Mapping[int, Child]:
        """The workers that have not ended, by number."""
        return self._children

    @property
    def stopping(self) -> bool:
        """Whether the workers were told to stop."""
        return self._stopping.is_set()

    async def open(self, wait_upstream: float | None) -> None:
        """Start the first worker and, as soon as it serves, the others; return when all serve or have failed to.

        So what is wrong for all of them is said once, and the database is migrated by one.

        Args:
            wait_upstream: seconds the first one waits for a healthy inference server, or None not to wait.

        Raises:
            WorkerFailed: the first worker cannot start.
        """
        try:
            first = await self._start(1, wait_upstream)
        except OSError as error:
            raise WorkerFailed(f"no process can be started ({error.strerror}).", EXIT_FAILED) from error
        if not await self._has_started(first, wait_upstream) and not self.stopping:
            raise WorkerFailed(_explain(first), max(first.code or 0, EXIT_FAILED))
        others = [await self._start_after(0, number) for number in range(2, self._settings().workers + 1)]
        await asyncio.gather(*(self._has_started(other) for other in others if other))

    async def run(self) -> int:
        """Keep the workers running until they were told to stop and have ended.

        Returns:
            The exit code: 0 after an orderly end of all of them.

        Raises:
            WorkerFailed: no worker can be started any more.
        """
        async with asyncio.TaskGroup() as keeping:
            for child in tuple(self._children.values()):
                keeping.create_task(self._keep(child))
        if self._killing is not None:
            self._killing.cancel()
        if self._failure is not None:
            raise self._failure
        return self._code

    def stop(self, reason: str) -> None:
        """Have all workers drain or, when they do already, cut it short."""
        self._stops += 1
        self._stop_reason = reason
        log = _logger.info if self._stops == 1 else _logger.warning
        log("%s%s: stopping %d workers", reason, " again" if self._stops > 1 else "", len(self._children))
        self._stopping.set()
        if self._stops > 1:
            self._code = EXIT_FAILED
        self.tell(Stop(self._stops, reason))
        settings = self._settings()
        bound = settings.close_grace_seconds * 2 + (settings.drain_seconds if self._stops == 1 else 0)
        if self._killing is not None:
            self._killing.cancel()
        self._killing = asyncio.get_running_loop().call_later(bound + _KILL_MARGIN_SECONDS, self._kill)

    def tell(self, order: Order) -> None:
        """Tell all workers something."""
        for child in self._children.values():
            child.tell(order)

    async def _start(self, number: int, wait_upstream: float | None = None) -> Child:
        child = await self._hire(number, wait_upstream)
        self._children[number] = child
        if self._stops:
            child.tell(Stop(self._stops, self._stop_reason))
        return child

    async def _start_after(self, pause: float, number: int) -> Child | None:
        """Start a worker after a pause, and after another one while there is no room; None when everything stops."""
        while not await self._rest(pause):
            try:
                return await self._start(number)
            except OSError as error:
                _logger.error("worker %d: no process can be started (%s)", number, error.strerror)  # noqa: TRY400
                pause = self._settings().worker_restart_seconds
        return None

    async def _has_started(self, child: Child, wait_upstream: float | None = None) -> bool:
        started = await child.started(self._settings().worker_start_seconds + (wait_upstream or 0))
        if started:
            _logger.info("worker %d serves", child.number, extra=_describe(child))
        return started

    async def _keep(self, child: Child) -> None:
        """Wait for the end of a worker and start it again, over and over."""
        pause, failures = _FIRST_PAUSE_SECONDS, 0
        while True:
            code = await child.ended()
            del self._children[child.number]
            self._note_end(child.number)
            if self.stopping:
                self._code = self._code if code == 0 else EXIT_FAILED
                return
            served = child.served_seconds
            failures = failures + 1 if served is None else 0
            if failures >= self._settings().worker_start_attempts and not self._serves():
                self._give_up(child, failures)
                return
            longest = self._settings().worker_restart_seconds
            pause = min(_FIRST_PAUSE_SECONDS if (served or 0) > longest else pause, longest)
            self._note_restart(child, pause)
            if (successor := await self._start_after(pause, child.number)) is None:
                return
            pause *= 2
            child = successor
            await self._has_started(child)

    def _note_restart(self, child: Child, pause: float) -> None:
        started = child.served_seconds is not None
        reason = "start" if not started else "signal" if (child.code or 0) < 0 else "exit"
        self._metrics.worker_ends_total.labels(reason=reason).inc()
        told = f"ended: {_explain(child)}" if started else f"could not start: {_explain(child)}"
        _logger.error("worker %d %s; it is started again in %g s", child.number, told, pause, extra=_describe(child))

    async def _rest(self, seconds: float) -> bool:
        """Wait so long, or until everything stops; tells whether it does."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    def _serves(self) -> bool:
        return any(child.serving for child in self._children.values())

    def _give_up(self, child: Child, failures: int) -> None:
        reason = f"worker {child.number} could not be started {failures} times in a row, the last time because: "
        self._failure = WorkerFailed(reason + _explain(child), EXIT_FAILED)
        self._stopping.set()
        self.tell(Stop(1, "no worker can be started"))

    def _kill(self) -> None:
        for child in self._children.values():
            _logger.error("worker %d did not end in time and is killed", child.number, extra=_describe(child))
            child.kill()


def _explain(child: Child) -> str:
    if child.failure:
        return child.failure
    code = child.code or 0
    return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended by itself with exit code {code}"


def _describe(child: Child) -> dict[str, int]:
    return {names.FIELD_WORKER: child.number, names.FIELD_PID: child.pid}
