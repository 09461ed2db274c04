"""One background response: made by an ordinary run, or brought to its end without one."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from msgspec import Struct, structs

from gateway.config.schema import BackgroundConfig
from gateway.engine.admission import Place
from gateway.engine.event_log import ClaimLostError, EventLog
from gateway.engine.failures import log_failure
from gateway.engine.plan import Caller, Plan
from gateway.engine.service import Engine
from gateway.ports import BackgroundRuns, Claim, Clock, EventBatch, RunEnd, RunHandover, RunStart, UnfinishedRun
from gateway.protocol import codec, recorded
from gateway.protocol.errors import ConversationLocked, GatewayError, Unavailable
from gateway.protocol.response import EncodedResponse, ResponseError
from gateway.telemetry.logs import response_id_var
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import TRANSPORT_BACKGROUND
from gateway.telemetry.tracing import Tracing

_TRACEPARENT = "traceparent"


class Job:
    """A background response of this process.

    Args:
        claim: the right to make it.
        plan: what is made; None where it has to be read from the database.
        trace: `traceparent` of the request.
        place: what counts it.

    Attributes:
        headers: to send to the inference server.
        task: what makes it, once it is made.
        begun: the task runs; one that was cancelled before could not release anything.
        log: where its events go, once it is made.
        cancelled: its owner wants it to end.
        recovered: it was taken over.
        context: of the request, for what is logged.
    """

    __slots__ = (
        "begun",
        "cancelled",
        "claim",
        "context",
        "headers",
        "log",
        "place",
        "plan",
        "recovered",
        "task",
        "trace",
    )

    def __init__(
        self, claim: Claim, *, plan: Plan | None = None, trace: str | None = None, place: Place | None = None
    ) -> None:
        self.claim = claim
        self.plan = plan
        self.headers = plan.caller.headers if plan is not None else {}
        self.trace = trace
        self.place = place
        self.recovered = plan is None
        self.context = copy_context()
        self.begun = self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.log: EventLog | None = None

    @property
    def response_id(self) -> str:
        """The id of the response."""
        return self.claim.response_id

    def drop_plan(self) -> None:
        """Forget what can be read from the database again, but not what nobody else may get meanwhile."""
        if self.plan is not None and self.plan.lineage.hold is None:
            self.plan = None

    async def release(self) -> None:
        """Give up what it holds besides the claim."""
        if self.plan is not None:
            await self.plan.abandon()

    def cancel(self) -> None:
        """End it as its owner wishes, at once if it is being made; said again, it changes nothing."""
        if not self.cancelled:
            self.cancelled = True
            if self.task is not None and self.begun:
                self.task.cancel()

    def give_up(self) -> None:
        """End it without a word: it is somebody else's."""
        if self.task is not None:
            self.task.cancel()


class BackgroundParts(Struct, frozen=True, kw_only=True):
    """What background responses are made with.

    Attributes:
        engine: makes responses.
        runs: the database.
        clock: the time.
        metrics: what is counted.
        tracing: a span for each.
    """

    engine: Engine
    runs: BackgroundRuns
    clock: Clock
    metrics: Metrics
    tracing: Tracing


class Maker:
    """Makes responses under their claims, so that each has one end whatever happens.

    Args:
        parts: what with.
        settings: returns the bounds in effect.
        noted: told of a response whenever more of it can be read.
    """

    def __init__(
        self, parts: BackgroundParts, settings: Callable[[], BackgroundConfig], noted: Callable[[str], None]
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._noted = noted

    async def make(self, job: Job) -> None:
        """Make a response, and store how it ended.

        Cancelled by its owner it ends as that; cancelled otherwise it is left for others to take over.

        Raises:
            StorageUnavailable: the database does not answer; the response is left for whoever takes it over.
        """
        job.begun = True
        response_id_var.set(job.response_id)
        carrier = {_TRACEPARENT: job.trace} if job.trace else {}
        with self._parts.tracing.start_background(carrier):
            try:
                plan = job.plan = job.plan or await self._plan_again(job)
                if plan is not None:
                    await (self._end_cancelled(job) if job.cancelled else self._run(job, plan))
            except ClaimLostError:
                # It has ended, or is somebody else's.
                return
            except asyncio.CancelledError:
                if not job.cancelled:
                    await self._parts.runs.hand_over(RunHandover(claims=[job.claim]))
                    raise
                await self._end_cancelled(job)
            finally:
                await job.release()

    # ------------------------------------------------------------ an ordinary run

    async def _run(self, job: Job, plan: Plan) -> None:
        parts = self._parts
        begun = EncodedResponse(structs.replace(plan.turn.response, status="in_progress"))
        give_up_at = plan.turn.response.created_at + self._settings().lifetime_seconds
        job.log = log = EventLog(
            job.claim,
            plan,
            parts.runs,
            parts.engine.committer,
            self._settings(),
            streams=plan.request.stream,
            next_number=plan.turn.next_number,
            give_up_at=give_up_at,
            clock=parts.clock,
            metrics=parts.metrics,
            noted=lambda: self._noted(job.response_id),
            lost=job.give_up,
        )
        if not await parts.runs.start(RunStart(claim=job.claim, snapshot=begun.empty)):
            return
        left = max(0.0, give_up_at - parts.clock.now())
        loop = asyncio.get_running_loop()
        timer = loop.call_later(left, parts.engine.runs.cut_off_response, job.response_id, _too_old(self._settings()))
        try:
            await parts.engine.stream(structs.replace(plan, keeper=log), log)
        except asyncio.CancelledError:
            if not job.cancelled:
                raise
            await log.cancel()
            self._count_cancelled()
        finally:
            timer.cancel()
            log.close()

    # ------------------------------------------------------------ without a run

    async def _plan_again(self, job: Job) -> Plan | None:
        """Return what is made, from what the database has of it; None if it has ended instead."""
        run = await self._parts.runs.load(job.claim)
        if run is None:
            return None
        job.trace = run.trace
        if job.place is None:
            job.place = self._parts.engine.hold(run.principal)
        settings = self._settings()
        if run.cancelled or job.cancelled:
            self._count_recovered(job, "cancelled")
            await self._end(run, "cancelled", None)
            self._count_cancelled()
        elif (error := self._judge(run, settings)) is not None:
            self._count_recovered(job, "failed")
            await self._end(run, "failed", error)
        else:
            self._count_recovered(job, "restarted")
            try:
                return await self._prepare(job, run)
            except (Unavailable, ConversationLocked):
                # Its process may still seem to hold the conversation.
                raise
            except GatewayError as error:
                await self._end(run, "failed", error)
        return None

    def _judge(self, run: UnfinishedRun, settings: BackgroundConfig) -> GatewayError | None:
        """Return why a response cannot be begun, or begun again."""
        if self._parts.clock.now() >= run.created_at + settings.lifetime_seconds:
            return _too_old(settings)
        if run.told:
            return GatewayError("The process that made the response ended, after it had told a part of it.")
        if run.starts >= settings.max_attempts:
            return GatewayError(
                f"The process that made the response ended, {run.starts} times ([background] max_attempts).",
                bound="background.max_attempts",
            )
        return None

    async def _prepare(self, job: Job, run: UnfinishedRun) -> Plan:
        engine = self._parts.engine
        request, route = engine.read(run.request)
        caller = Caller(principal=run.principal, transport=TRANSPORT_BACKGROUND, headers=job.headers)
        plan = await engine.prepare(caller, request, route)
        turn = plan.turn
        turn.response = structs.replace(turn.response, id=job.response_id, created_at=run.created_at)
        turn.enqueue()
        turn.rewind(run.next_number)
        return plan

    async def _end_cancelled(self, job: Job) -> None:
        """End a response as its owner wished, before it was begun."""
        run = await self._parts.runs.load(job.claim)
        if run is not None:
            await self._end(run, "cancelled", None)
            self._count_cancelled()

    async def _end(self, run: UnfinishedRun, status: str, error: GatewayError | None) -> None:
        """Store the end of a response that nobody makes."""
        if error is not None:
            log_failure(error)
            self._parts.metrics.responses_total.labels(TRANSPORT_BACKGROUND, status).inc()
        fields: dict[str, Any] = codec.decode(run.snapshot, max_depth=None)
        fields["status"] = status
        fields["error"] = None if error is None else ResponseError(code=error.code, message=error.message)
        snapshot = codec.encode(fields)
        batch = None
        if run.streams:
            last = recorded.encode_terminal(status, run.next_number, snapshot)
            batch = EventBatch(first=run.next_number, count=1, data=last)
        now = int(self._parts.clock.now())
        end = RunEnd(claim=run.claim, status=status, snapshot=snapshot, items=(), ended_at=now, batch=batch)
        if await self._parts.runs.end(end):
            self._noted(run.claim.response_id)

    def _count_cancelled(self) -> None:
        self._parts.metrics.responses_total.labels(TRANSPORT_BACKGROUND, "cancelled").inc()

    def _count_recovered(self, job: Job, outcome: str) -> None:
        if job.recovered:
            self._parts.metrics.background_recovered_total.labels(outcome).inc()


def _too_old(settings: BackgroundConfig) -> GatewayError:
    return GatewayError(
        f"The response did not end within {settings.lifetime_seconds:g} seconds ([background] lifetime_seconds).",
        bound="background.lifetime_seconds",
    )
