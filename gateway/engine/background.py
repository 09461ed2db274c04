"""Background responses: accepted, made in turn, cancelled, and taken over from processes that are gone."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from gateway.config.schema import GatewayConfig
from gateway.engine.background_run import BackgroundParts, Job, Maker
from gateway.engine.failures import shutting_down
from gateway.engine.lease import LeaseKeeper
from gateway.engine.plan import Plan
from gateway.engine.replay import Replay
from gateway.engine.wakes import Wakes, rest
from gateway.ports import (
    Claim,
    EventBatch,
    EventSweep,
    Lease,
    Leases,
    RunBegin,
    RunCancel,
    RunHandover,
    RunState,
    RunTakeover,
)
from gateway.protocol import codec, recorded
from gateway.protocol.errors import GatewayError, InvalidRequest, RateLimitExceeded, StorageUnavailable
from gateway.protocol.response import EncodedResponse
from gateway.telemetry.names import LOGGER_ENGINE
from gateway.telemetry.tracing import current_span

_LEASE_PREFIX = "background/"
_BUSY_RETRY_SECONDS = 1.0
_SWEEP_SECONDS = 60.0
_SWEEP_RESPONSES = 200
_TRACEPARENT = "traceparent"

_logger = logging.getLogger(LOGGER_ENGINE)


class Background:
    """Makes responses on their own.

    One lease stands for all that this process makes. As long as it is renewed nobody else touches them; when it runs
    out, whoever looks first takes them over.

    Args:
        parts: what responses are made with.
        leases: what processes hold for a while.
        config: how many there may be, and for how long.
        name: of this process, unique among all of the database.

    Attributes:
        replay: reads the events of such responses.
    """

    def __init__(self, parts: BackgroundParts, leases: Leases, config: GatewayConfig, name: str) -> None:
        self._parts = parts
        self._settings = config.background
        self._lease = Lease(name=_LEASE_PREFIX + name, holder=name)
        self._keeper = LeaseKeeper(leases, config.storage.lease_seconds)
        self._held = False
        self._wakes = Wakes()
        self._maker = Maker(parts, lambda: self._settings, self._wakes.note)
        self.replay = Replay(parts.runs, self._wakes, lambda: self._settings, parts.metrics)
        self._load = parts.metrics.background_load
        self._jobs: dict[str, Job | None] = {}
        self._waiting: deque[Job] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._handovers: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._swept_at = parts.clock.monotonic()
        self._draining = False

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds from now on."""
        self._settings = config.background
        self._pump()

    # ------------------------------------------------------------ a life

    async def start(self) -> None:
        """Begin to look for what was cancelled, or left behind, elsewhere; does not wait for the database."""
        if self._settings.enabled:
            self._looking = asyncio.create_task(self._look_on(), name="background")

    def begin_drain(self) -> None:
        """Begin no response any more; those that wait are handed over at once."""
        self._draining = True
        waiting = list(self._waiting)
        self._waiting.clear()
        if waiting:
            self._spawn_handover(waiting)

    def cut_off(self) -> int:
        """Hand over what has told nothing yet; returns how many that were. The engine ends the rest as failed."""
        jobs = [job for job in self._jobs.values() if job and job.task and not (job.log and job.log.told)]
        for job in jobs:
            job.give_up()
        return len(jobs)

    async def close(self) -> None:
        """End everything and let others take over what is left."""
        self._draining = True
        if self._looking is not None:
            self._looking.cancel()
        left = [task for task in (self._looking, *self._running, *self._handovers) if task is not None]
        for task in self._running:
            task.cancel()
        if left:
            await asyncio.wait(left)
        # What ended just now may have begun to give up something.
        if self._handovers:
            await asyncio.wait(self._handovers)
        if self._held:
            await self._keeper.release(self._lease)

    # ------------------------------------------------------------ what callers ask for

    def check(self) -> None:
        """Return if one more response can be accepted.

        Raises:
            InvalidRequest: background responses are switched off.
            RateLimitExceeded: as many wait as may.
            Unavailable: the gateway drains.
        """
        settings = self._settings
        if not settings.enabled:
            raise InvalidRequest(
                "Background responses are switched off ([background] enabled); send the request without 'background'.",
                code="unsupported_parameter",
                param="background",
            )
        if self._draining:
            raise shutting_down()
        if len(self._jobs) >= settings.max_running + settings.max_queued:
            raise RateLimitExceeded(
                f"{settings.max_queued} background responses wait already ([background] max_queued); "
                "send the request again later.",
                bound="background.max_queued",
                retry_after=_BUSY_RETRY_SECONDS,
            )

    async def submit(self, plan: Plan, body: bytes) -> bytes:
        """Accept a response and return it as JSON, queued and durable.

        Args:
            plan: what is to be made.
            body: the request.

        Raises:
            ResourceLimitExceeded: its first event is larger than any may be.
            GatewayError: as `check`, or the database takes nothing.
        """
        response_id, principal = plan.response_id, plan.caller.principal
        try:
            self.check()
            # Known before it is stored, or the search for what was left behind might find it.
            self._jobs[response_id] = None
            await self._hold_lease()
            first = [codec.encode(event) for event in plan.turn.enqueue()]
            limits = plan.settings.limits
            if max(map(len, first)) > limits.max_stream_event_bytes:
                raise limits.exceeded("max_stream_event_bytes")
            queued = EncodedResponse(plan.turn.response)
            committer = self._parts.engine.committer
            record = committer.record(principal, queued, committer.list_input(plan.inputs), plan.lineage)
            trace = current_span().headers.get(_TRACEPARENT)
            await self._parts.runs.begin(
                RunBegin(
                    response=record,
                    request=body,
                    holder=self._lease.name,
                    batch=EventBatch(first=0, count=len(first), data=recorded.join(first))
                    if plan.request.stream
                    else None,
                    trace=trace,
                )
            )
        except BaseException:
            # What was stored all the same is found by the search.
            self._jobs.pop(response_id, None)
            await plan.abandon()
            raise
        committer.note_stored(principal, record.size)
        claim = Claim(response_id=response_id, attempt=1)
        self._enqueue(Job(claim, plan=plan, trace=trace, place=self._parts.engine.hold(principal)))
        return queued.empty

    async def cancel(self, principal: str, response_id: str) -> bytes:
        """End a background response, and return it as JSON: as it ended, or as it is if that takes too long.

        Raises:
            ResponseNotFound: this principal has no such response.
            InvalidRequest: it is no background response.
            StorageUnavailable: the database does not answer.
        """
        runs = self._parts.runs
        state = await runs.state(principal, response_id)
        if state is None:
            await self._parts.engine.retrieve(principal, response_id)
            raise InvalidRequest("Cannot cancel a synchronous response.", code="response_not_cancellable")
        if not state.ended:
            at = int(self._parts.clock.now())
            await runs.cancel(RunCancel(response_id=response_id, principal=principal, at=at))
            self.drop(response_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.cancel_wait_seconds):
                    await self._await_end(principal, response_id, state)
        return await self._parts.engine.retrieve(principal, response_id)

    def drop(self, response_id: str) -> None:
        """End a response of this process as cancelled: its owner wants it no more."""
        job = self._jobs.get(response_id)
        if job is None:
            return
        job.cancel()
        if job in self._waiting:
            # It takes no room of those that are made.
            self._waiting.remove(job)
            self._make(job)

    # ------------------------------------------------------------ making them in turn

    def _enqueue(self, job: Job) -> None:
        self._jobs[job.response_id] = job
        self._wakes.open(job.response_id)
        self._waiting.append(job)
        self._pump()
        if job.task is None:
            # What waits holds no more than its id, and its conversation.
            job.drop_plan()
            if self._draining:
                self.begin_drain()
        self._count()

    def _pump(self) -> None:
        while self._waiting and len(self._running) < self._settings.max_running and not self._draining:
            self._make(self._waiting.popleft())

    def _make(self, job: Job) -> None:
        task = asyncio.create_task(self._attend(job), name=f"background {job.response_id}", context=job.context)
        job.task = task
        self._running.add(task)
        # Not by the task itself, which may be cancelled before it begins.
        task.add_done_callback(partial(self._conclude, job))
        self._count()

    async def _attend(self, job: Job) -> None:
        try:
            await self._maker.make(job)
        except StorageUnavailable as error:
            _logger.warning("a background response is left to be taken over: %s", error.message)
        except GatewayError as error:
            _logger.warning("a background response could not be begun, which is tried again: %s", error.message)
        except Exception:
            _logger.exception("a background response was not made, which is tried again")

    def _conclude(self, job: Job, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._forget(job)
        self._pump()
        if task.cancelled() and job.plan is not None:
            self._spawn(job.release())

    def _forget(self, job: Job) -> None:
        del self._jobs[job.response_id]
        self._wakes.close(job.response_id)
        if job.place is not None:
            job.place.leave()
        self._count()

    def _count(self) -> None:
        self._load.queued.set(len(self._waiting))
        self._load.running.set(len(self._running))

    def _spawn_handover(self, jobs: list[Job]) -> None:
        async def hand_over() -> None:
            try:
                await self._parts.runs.hand_over(RunHandover(claims=[job.claim for job in jobs]))
            except StorageUnavailable as error:
                _logger.warning("background responses are taken over when the lease runs out: %s", error.message)
            for job in jobs:
                await job.release()
                self._forget(job)

        self._spawn(hand_over())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="background handover")
        self._handovers.add(task)
        task.add_done_callback(self._handovers.discard)

    async def _await_end(self, principal: str, response_id: str, state: RunState | None) -> None:
        while state is not None and not state.ended:
            event = self._wakes.watch(response_id)
            state = await self._parts.runs.state(principal, response_id)
            if state is not None and not state.ended:
                await rest(self._settings.poll_interval_seconds, event)

    # ------------------------------------------------------------ what happens elsewhere

    async def _hold_lease(self) -> None:
        if not self._held:
            self._held = await self._keeper.acquire(self._lease, self._lose_lease)

    async def _mind_lease(self) -> None:
        """Hold the lease while there is anything to make, and write nothing while there is not."""
        if self._jobs:
            await self._hold_lease()
        elif self._held:
            self._held = False
            await self._keeper.release(self._lease)

    def _lose_lease(self) -> None:
        # Removed after an outage; what it stood for may have been taken over, which each claim finds out by itself.
        self._held = False

    async def _look_on(self) -> None:
        while True:
            try:
                await self._look()
            except StorageUnavailable as error:
                _logger.info("background responses could not be looked for: %s", error.message)
            except Exception:
                _logger.exception("background responses could not be looked for")
            await asyncio.sleep(self._settings.heartbeat_seconds)

    async def _look(self) -> None:
        await self._mind_lease()
        if any(self._jobs.values()):
            for response_id in await self._parts.runs.find_cancelled(self._lease.name):
                self.drop(response_id)
        if not self._draining:
            await self._recover()
        await self._sweep()

    async def _recover(self) -> None:
        settings, runs = self._settings, self._parts.runs
        room = settings.max_running + settings.max_queued - len(self._jobs)
        if room <= 0:
            return
        # Its own are among what is found.
        for claim in await runs.find_orphans(self._lease.name, limit=room + len(self._jobs)):
            if claim.response_id in self._jobs or self._draining:
                continue
            await self._hold_lease()
            taken = await runs.take_over(RunTakeover(claim=claim, holder=self._lease.name))
            if taken is not None and taken.response_id not in self._jobs:
                _logger.info("a background response was taken over", extra={"response_id": taken.response_id})
                self._enqueue(Job(taken))

    async def _sweep(self) -> None:
        """Remove events that have had their time, now and then."""
        kept = self._settings.event_retention_seconds
        now = self._parts.clock.monotonic()
        if now - self._swept_at < min(_SWEEP_SECONDS, kept):
            return
        self._swept_at = now
        old = EventSweep(ended_before=int(self._parts.clock.now() - kept), limit=_SWEEP_RESPONSES)
        swept = old.limit
        while swept == old.limit:
            swept = await self._parts.runs.sweep(old)
