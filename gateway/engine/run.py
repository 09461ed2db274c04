"""One response being made: from its first events over what the model is asked to the commit and the terminal."""

import logging
import time
from collections.abc import Awaitable
from typing import Any

from msgspec import Struct, structs

from gateway.engine.agents.coordination import Coordination
from gateway.engine.agents.coordinator import Coordinator
from gateway.engine.coalescing import Coalescer
from gateway.engine.commit import Committer
from gateway.engine.compaction import Compactor
from gateway.engine.deadline import Deadline
from gateway.engine.delivery import Channel
from gateway.engine.failures import log_failure
from gateway.engine.inference import Inference
from gateway.engine.outbox import Outbox
from gateway.engine.plan import Plan
from gateway.engine.progress import Progress
from gateway.engine.rounds import Rounds
from gateway.engine.spans import conclude_agent, describe_agent
from gateway.engine.telling import Telling
from gateway.ports import Clock
from gateway.protocol.errors import GatewayError, InternalError, ResourceLimitExceeded
from gateway.protocol.events import Event
from gateway.protocol.minimal_error import minimal_error
from gateway.protocol.response import EncodedResponse, Response, Usage
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_ENGINE
from gateway.telemetry.tracing import Span, Tracing

_logger = logging.getLogger(LOGGER_ENGINE)


class RunParts(Struct, frozen=True, kw_only=True):
    """What all runs of an engine work with.

    Attributes:
        committer: stores what they have made.
        coalescer: told of what inference servers send.
        clock: time of completion.
        metrics: what is counted.
        tracing: their spans.
        coordination: makes responses of several agents.
    """

    committer: Committer
    coalescer: Coalescer
    clock: Clock
    metrics: Metrics
    tracing: Tracing
    coordination: Coordination


class Run:
    """Makes one response. Its task is the only writer of the turn.

    Args:
        plan: the response.
        parts: what it works with.
        compactor: looks after its window, if that is wanted.
    """

    def __init__(self, plan: Plan, parts: RunParts, compactor: Compactor | None) -> None:
        self._plan = plan
        self._parts = parts
        self._compactor = compactor
        self._settings = settings = plan.settings
        self._metrics = metrics = parts.metrics
        self._span: Span
        self._turn = turn = plan.turn
        self._outbox = outbox = Outbox(turn, settings.limits, metrics, overhead=plan.caller.overhead)
        self._telling = telling = Telling(turn, outbox, Progress(plan.caller.progress_seconds))
        self._inference = Inference(plan, telling, coalescer=parts.coalescer, metrics=metrics, tracing=parts.tracing)
        self._coordinator: Coordinator | None = None
        if plan.tree is None:
            self._deadline = Deadline(settings.deadline_seconds)
        else:
            self._coordinator = parts.coordination.begin(plan, telling)
            self._deadline = Deadline(parts.coordination.deadline_seconds, "multi_agent.run_deadline_s")

    # ------------------------------------------------------------ the two forms of an answer

    async def answer(self) -> bytes:
        """Make the response with one JSON body upstream, and return its JSON once it is committed.

        Raises:
            GatewayError: it failed; nothing was stored.
        """
        with self._start_agent():
            try:
                self._turn.begin()
                with self._deadline:
                    await self._infer(stream=False)
                finished = EncodedResponse(self._propose())
                await self._commit(finished)
            except Exception as failure:
                self._count_end("failed", failure)
                raise
            self._count_end(finished.response.status)
            return finished.join()

    async def stream(self, channel: Channel) -> None:
        """Make the response as a stream of events, and tell every outcome but a cancellation.

        Raises:
            GatewayError: it failed before the client was told anything.
        """
        self._telling.channel = channel
        with self._start_agent():
            try:
                await (self._stream(channel) if self._plan.request.generate else self._warm_up(channel))
            except GatewayError as error:
                await self._fail(channel, error)
            except Exception:
                _logger.exception("a run failed unexpectedly")
                await self._fail(channel, InternalError())

    def cut_off(self, error: GatewayError) -> None:
        """End the run with this error and abort its upstream call, unless its commit has begun: then it ends itself."""
        self._deadline.cut_off(error)

    def inject(self, items: list[Any]) -> Awaitable[bool]:
        """Take in outputs that the client sends; tells whether their fate was told in the response's own stream.

        If not, the response has ended without a look at them.
        """
        assert self._coordinator is not None
        return self._coordinator.inject(items)

    def conclude(self) -> None:
        """Answer what was sent into the response and not looked at."""
        if self._coordinator is not None:
            self._coordinator.end()

    def tell(self, event: Event, *, steers: bool = False) -> Awaitable[None] | None:
        """Tell the client what became of a control, in the response's own numbers.

        Args:
            event: what it is told.
            steers: whether the run is to end where the model would be asked again.

        Returns:
            What ends when the event is with the connection; None, and nothing told, once the response is ending.

        Raises:
            ResourceLimitExceeded: the event is too large to be sent.
        """
        if not self._telling.tell_aside(event):
            return None
        if steers:
            self._telling.steered = True
            if self._settings.cuts_items:
                self._inference.cut_at_item()
        return self._telling.asides_sent()

    def _start_agent(self) -> Span:
        self._span = self._parts.tracing.start_agent()
        if self._span.recording:
            describe_agent(self._span, self._plan)
        return self._span

    # ------------------------------------------------------------ a stream from begin to terminal

    async def _stream(self, channel: Channel) -> None:
        self._begin_stream()
        self._telling.takes_asides = True
        self._telling.progress.start(self._telling.tell_progress)
        try:
            # The status is held until the upstream has accepted the call, but not for ever.
            with self._deadline.remind(self._settings.commit_after, self._telling.begin_early):
                await self._infer(stream=True)
        finally:
            # What is told from here on comes after the terminal event.
            self._telling.takes_asides = False
            self._telling.progress.stop()
            await self._telling.settle_early()
        await self._finish(channel, self._propose())

    async def _warm_up(self, channel: Channel) -> None:
        """Make a response without asking the model, for a later one to continue; its two events are built first."""
        self._outbox.add(self._turn.begin()[0])
        self._turn.rewind(self._outbox.next_number)
        await self._finish(channel, structs.replace(self._propose(), usage=Usage()))

    async def _finish(self, channel: Channel, response: Response) -> None:
        """Measure the terminal event, commit the response, and only then send the event."""
        finished = EncodedResponse(response)
        event = self._turn.announce(finished)
        data = self._outbox.encode(event)
        try:
            await self._commit(finished)
        except Exception:
            self._turn.rewind(event.sequence_number)
            raise
        self._outbox.add_encoded(event, data)
        await channel.end(self._outbox.take())
        self._count_end(response.status)

    def _begin_stream(self) -> None:
        """Encode the first events; a request too large to be echoed fails before any upstream call."""
        for event in self._turn.begin():
            try:
                self._outbox.add(event)
            except ResourceLimitExceeded:
                # What was measured fits and tells more than the status of a refusal could.
                self._telling.accepted = len(self._outbox) > 0
                raise

    async def _fail(self, channel: Channel, error: GatewayError) -> None:
        """Tell a failure, whatever state it left the turn in."""
        self._count_end("failed", error)
        if not (self._telling.accepted or channel.opened):
            raise error
        self._metrics.note_failure(self._plan.caller.transport, error.status, error.code, error.bound)
        try:
            owed, failures = self._turn.fail(error, self._telling.round)
            self._telling.keep_owed(owed)
            self._outbox.add_first(failures)
        except Exception:
            _logger.exception("a failure could not be told in full")
            self._outbox.add_first([minimal_error(error, self._outbox.next_number)])
        await channel.end(self._outbox.take())

    # ------------------------------------------------------------ what the model is asked

    def _infer(self, *, stream: bool) -> Awaitable[None]:
        """Return what asks the model; most responses are one inference, which is spared all else."""
        plan = self._plan
        if self._compactor is None and plan.open_tools is None and plan.tree is None:
            return self._inference.ask(plan.items, plan.request.toolset.offers.first, stream=stream)
        return self._infer_with_help(stream=stream)

    async def _infer_with_help(self, *, stream: bool) -> None:
        plan, compactor = self._plan, self._compactor
        if self._coordinator is not None:
            await self._coordinator.run()
        elif compactor is not None and plan.request.compacts:
            await compactor.compact(self._telling)
        elif plan.open_tools is None:
            items = plan.items if compactor is None else await compactor.relieve(plan.items, self._telling)
            await self._inference.ask(items, plan.request.toolset.offers.first, stream=stream)
        else:
            rounds = Rounds(
                plan, self._inference, self._telling, compactor, metrics=self._metrics, tracing=self._parts.tracing
            )
            await rounds.run(plan.open_tools(), stream=stream)

    # ------------------------------------------------------------ the end

    def _propose(self) -> Response:
        return self._turn.propose(int(self._parts.clock.now()))

    async def _commit(self, finished: EncodedResponse) -> None:
        plan = self._plan
        if plan.keeper is None:
            agents = None if plan.tree is None else plan.tree.snapshot()
            await self._parts.committer.commit(plan.caller.principal, finished, plan.inputs, plan.lineage, agents)
        else:
            await plan.keeper.keep(finished, self._outbox.take())
        self._turn.settle(finished.response)

    def _count_end(self, status: str, error: Exception | None = None) -> None:
        outbox, largest = self._outbox, None
        if self._telling.channel is not None:
            outbox.count()
            largest = outbox.largest
        seconds = time.perf_counter() - outbox.began
        self._metrics.count_response(self._plan.caller.transport, status, seconds, self._turn.ledger.total, largest)
        if error is not None:
            self._note_failure(error)
        if self._span.recording:
            conclude_agent(self._span, self._turn, error, cut_off=error is not None and error is self._deadline.cut)

    def _note_failure(self, error: Exception) -> None:
        if isinstance(error, ResourceLimitExceeded):
            self._metrics.limit_breaches_total.labels(error.resource).inc()
        if isinstance(error, GatewayError):
            log_failure(error)
