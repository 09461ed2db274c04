"""What operators ask of several workers at once."""

import asyncio
import os
from collections.abc import Callable, Mapping

import msgspec

from gateway.config.schema import ServerConfig
from gateway.protocol.errors import Unavailable
from gateway.server.messages import Topic
from gateway.server.supervisor import Supervisor
from gateway.telemetry.merge import merge
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.sharing import SharedMetrics
from gateway.telemetry.status import Status
from gateway.transport.health import Check, Report

_PARENT = "parent"
_NO_ANSWER = Check("answers", healthy=False, detail="does not answer")


class Overview:
    """Answers for all workers.

    Args:
        supervisor: knows them.
        settings: returns the bounds in effect.
        metrics: those of the parent.
        shared: those of all.
    """

    def __init__(
        self, supervisor: Supervisor, settings: Callable[[], ServerConfig], metrics: Metrics, shared: SharedMetrics
    ) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._metrics = metrics
        self._shared = shared

    async def expose(self) -> bytes:
        """Return the metrics of all processes; of a worker that does not answer, as they were when it last did."""
        await self._ask("metrics")
        self._metrics.refresh()
        processes = {str(number): child.pid for number, child in self._supervisor.children.items()}
        return await asyncio.to_thread(self._shared.render, {_PARENT: os.getpid(), **processes})

    async def check(self) -> Report:
        """Return the checks of all workers; one worker that can serve is enough."""
        stopping = self._supervisor.stopping
        draining = Check("draining", not stopping, "shutting down" if stopping else "no")
        answers = await self._ask("readiness")
        reports = {
            number: Report(ready=False, checks=(_NO_ANSWER,))
            if body is None
            else msgspec.json.decode(body, type=Report)
            for number, body in answers.items()
        }
        able = sum(report.ready for report in reports.values())
        workers = Check("workers", able > 0, f"{able} of {self._settings().workers} can serve")
        checks = (
            Check(f"worker {number} {check.name}", check.healthy, check.detail)
            for number, report in reports.items()
            for check in report.checks
        )
        return Report(draining.healthy and workers.healthy, (draining, workers, *checks))

    async def read_status(self) -> Status:
        """Return what the workers that answer tell, as one.

        Raises:
            Unavailable: none does.
        """
        answers = await self._ask("status")
        documents = [msgspec.json.decode(body, type=Status) for body in answers.values() if body is not None]
        if not documents:
            raise Unavailable("No worker answers; ask again.")
        return merge(documents)

    async def _ask(self, about: Topic) -> Mapping[int, msgspec.Raw | None]:
        """Ask all workers that serve, at once."""
        children = [child for _, child in sorted(self._supervisor.children.items()) if child.serving]
        timeout = self._settings().worker_answer_seconds
        answers = await asyncio.gather(*(child.ask(about, timeout) for child in children))
        return {child.number: answer for child, answer in zip(children, answers, strict=True)}
