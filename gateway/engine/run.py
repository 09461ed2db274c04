"""One response being made: the upstream call, its bytes through the turn, the commit, the terminal."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable, Iterator

from msgspec import structs

from gateway.engine.coalescing import Coalescer
from gateway.engine.commit import Committer
from gateway.engine.deadline import Deadline
from gateway.engine.delivery import Channel
from gateway.engine.failures import log_failure, name_outcome
from gateway.engine.outbox import Outbox
from gateway.engine.plan import Plan, RunSettings
from gateway.engine.progress import Progress
from gateway.engine.spans import conclude_agent, conclude_call, describe_agent, describe_call
from gateway.ports import Clock, UpstreamCall, UpstreamExchange
from gateway.protocol import codec
from gateway.protocol.announcer import Round
from gateway.protocol.errors import (
    GatewayError,
    InternalError,
    ResourceLimitExceeded,
    UpstreamError,
)
from gateway.protocol.events import Event
from gateway.protocol.requests import build_upstream_body
from gateway.protocol.response import EncodedResponse, Response, Usage
from gateway.protocol.sse import DONE_DATA, Block, SseDecoder
from gateway.protocol.turn import minimal_error
from gateway.protocol.upstream_events import Unknown, parse
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_ENGINE
from gateway.telemetry.tracing import Span, Tracing, current_span

_logger = logging.getLogger(LOGGER_ENGINE)
_FIELD = b"data: "
_BRACE = ord("{")
# Data that is no event: some engines send it to keep the line open, or to end it.
_NO_EVENTS = (b"", DONE_DATA)


class Run:
    """Makes one response. Its task is the only writer of the turn."""

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        *,
        committer: Committer,
        coalescer: Coalescer,
        clock: Clock,
        metrics: Metrics,
        tracing: Tracing,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._committer = committer
        self._coalescer = coalescer
        self._clock = clock
        self._metrics = metrics
        self._tracing = tracing
        self._span: Span = current_span()
        self._turn = plan.turn
        self._round: Round = plan.turn.open_round()
        self._channel: Channel | None = None
        self._outbox = Outbox(self._turn, settings.limits, metrics, overhead=plan.caller.overhead)
        self._longest_line = 0
        # Whether a failure belongs into the stream, because the upstream has accepted the call.
        self._told = False
        self._early: asyncio.Task[None] | None = None
        self._deadline = Deadline(settings.deadline_seconds)
        self._progress = Progress(plan.caller.progress_seconds)

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
        self._channel = channel
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

    def _start_agent(self) -> Span:
        self._span = self._tracing.start_agent()
        if self._span.recording:
            describe_agent(self._span, self._plan)
        return self._span

    # ------------------------------------------------------------ a stream from begin to terminal

    async def _stream(self, channel: Channel) -> None:
        self._begin_stream()
        self._progress.start(self._tell_progress)
        try:
            # The status is held until the upstream has accepted the call, but not for ever.
            with self._deadline.remind(self._settings.commit_after_seconds, self._begin_early):
                await self._infer(stream=True)
        finally:
            self._progress.stop()
            await self._settle_early()
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
        self._outbox.add(event, data)
        await channel.end(self._outbox.take())
        self._count_end(response.status)

    def _begin_stream(self) -> None:
        """Encode the first events; a request too large to be echoed fails before any upstream call."""
        created, in_progress = self._turn.begin()
        self._outbox.add(created)
        try:
            self._outbox.add(in_progress)
        except ResourceLimitExceeded:
            # What was measured fits and tells more than the status of a refusal could.
            self._told = True
            raise

    def _begin_early(self) -> None:
        channel = self._expect_channel()
        if not channel.opened and self._outbox:
            self._early = asyncio.create_task(channel.put(self._outbox.take()))

    def _tell_progress(self) -> None:
        channel = self._expect_channel()
        if not channel.opened or (self._early is not None and not self._early.done()):
            return
        try:
            self._outbox.add(self._turn.repeat_progress())
        except ResourceLimitExceeded:
            return
        batch = self._outbox.take()
        if not channel.write(batch):
            self._early = asyncio.create_task(channel.put(batch))

    async def _settle_early(self) -> None:
        """Wait for what a timer has put into the channel, which is for one batch after the other."""
        if self._early is not None:
            # Not awaited itself: who is cancelled here must not take it along.
            await asyncio.wait((self._early,))
            early, self._early = self._early, None
            early.result()

    async def _fail(self, channel: Channel, error: GatewayError) -> None:
        """Tell a failure, whatever state it left the turn in."""
        self._count_end("failed", error)
        if not (self._told or channel.opened):
            raise error
        self._metrics.note_failure(self._plan.caller.transport, error.status, error.code, error.bound)
        try:
            owed, failures = self._turn.fail(error, self._round)
            self._add_owed(owed)
            self._outbox.add_first(failures)
        except Exception:
            _logger.exception("a failure could not be told in full")
            self._outbox.add_first([minimal_error(error, self._outbox.next_number)])
        await channel.end(self._outbox.take())

    def _add_owed(self, owed: list[Event]) -> None:
        for event in owed:
            try:
                self._outbox.add(event)
            except ResourceLimitExceeded:
                return

    # ------------------------------------------------------------ one inference

    async def _infer(self, *, stream: bool) -> None:
        plan = self._plan
        route = plan.route
        body = build_upstream_body(
            plan.request, plan.items, plan.request.toolset.offers.first, model=route.model, stream=stream
        )
        if route.salted:
            body["cache_salt"] = hashlib.sha256(plan.caller.principal.encode("utf-8", "surrogatepass")).hexdigest()
        content_bytes = self._settings.content_bytes
        with await route.seats.take(), self._tracing.start_call(route.model) as span:
            if span.recording:
                describe_call(span, route, body, content_bytes)
            call = UpstreamCall(
                body=codec.encode(route.upstream.dialect.adapt(body)),
                stream=stream,
                headers={**plan.caller.headers, **span.headers},
            )
            began = time.perf_counter()
            exchange = await self._open(call, began)
            try:
                if exchange.is_event_stream:
                    await self._relay(exchange)
                else:
                    await self._ingest_body(exchange)
            except UpstreamError as error:
                error.message = route.upstream.redact(error.message)
                raise
            finally:
                self._metrics.count_usage(route.known_model, self._round.usage)
                if span.recording:
                    first = self._outbox.first_delta
                    conclude_call(
                        span, self._round, self._turn.output,
                        first_chunk_seconds=first - began if first else None, content_bytes=content_bytes,
                    )  # fmt: skip
                if self._round.ended:
                    exchange.retire()
                else:
                    await exchange.close()

    async def _open(self, call: UpstreamCall, began: float) -> UpstreamExchange:
        status = "cancelled"
        try:
            exchange = await self._plan.route.upstream.open(call)
        except GatewayError as error:
            status = name_outcome(error)
            raise
        else:
            status = "200"
            return exchange
        finally:
            metrics = self._metrics
            metrics.defer(metrics.upstream_requests_total.labels(status).inc)
            metrics.defer(metrics.upstream_ttfb_seconds.observe, time.perf_counter() - began)

    async def _relay(self, exchange: UpstreamExchange) -> None:
        decoder = SseDecoder(self._settings.limits.max_upstream_sse_line_bytes)
        complete = False
        while not complete:
            chunk = await exchange.read()
            self._coalescer.note()
            if self._progress.looks:
                self._progress.note()
            complete = self._ingest_blocks(decoder.feed(chunk) if chunk else _drop_torn(decoder.end()))
            if not complete:
                if self._outbox:
                    if self._early is not None:
                        await self._settle_early()
                    batch, channel = self._outbox.take_read(), self._channel
                    assert channel is not None
                    if not channel.write(batch):
                        await channel.put(batch)
                if not chunk:
                    raise UpstreamError("The upstream's stream ended without a terminal event.", code="server_error")
        self._metrics.defer(self._metrics.upstream_line_bytes.observe, self._longest_line + len(_FIELD))

    def _ingest_blocks(self, blocks: Iterable[Block]) -> bool:
        """Take what one upstream read yielded; returns whether the engine's terminal event was among it."""
        round_, ingest, keep = self._round, self._turn.ingest, self._outbox.add
        tells = self._channel is not None
        for name, data in blocks:
            if (not data or data[0] != _BRACE) and data.strip() in _NO_EVENTS:
                continue
            if len(data) > self._longest_line:
                self._longest_line = len(data)
            event = parse(name, data)
            if type(event) is Unknown:
                self._metrics.unknown_events_total.inc()
                continue
            out = ingest(round_, event)
            if tells:
                for one in out:
                    keep(one)
            self._told = True
            if round_.ended:
                return True
        return False

    async def _ingest_body(self, exchange: UpstreamExchange) -> None:
        limit = self._settings.limits.max_upstream_json_bytes
        body = bytearray()
        while chunk := await exchange.read():
            body += chunk
            if len(body) > limit:
                break
        self._metrics.upstream_json_bytes.observe(len(body))
        if len(body) > limit:
            raise self._settings.limits.exceeded("max_upstream_json_bytes")
        try:
            answer = codec.decode(bytes(body))
        except codec.TooDeepError as error:
            raise UpstreamError(
                f"The upstream answered 200 with a body {error}.", code="upstream_invalid_body"
            ) from None
        except ValueError:
            raise UpstreamError(
                "The upstream answered 200 with a body that is not JSON.", code="upstream_invalid_body"
            ) from None
        out = self._turn.ingest_body(self._round, answer)
        self._encode(out)

    # ------------------------------------------------------------ events on their way out

    def _encode(self, out: list[Event]) -> None:
        if self._channel is None:
            return
        for event in out:
            self._outbox.add(event)

    # ------------------------------------------------------------ the end

    def _propose(self) -> Response:
        return self._turn.propose(int(self._clock.now()))

    async def _commit(self, finished: EncodedResponse) -> None:
        plan = self._plan
        await self._committer.commit(plan.caller.principal, finished, plan.inputs, plan.lineage)
        self._turn.settle(finished.response)

    def _count_end(self, status: str, error: Exception | None = None) -> None:
        metrics = self._metrics
        transport = self._plan.caller.transport
        metrics.defer(metrics.responses_total.labels(transport, status).inc)
        seconds = time.perf_counter() - self._outbox.began
        metrics.defer(metrics.response_seconds.labels(transport, status).observe, seconds)
        metrics.defer(metrics.retained_bytes.observe, self._turn.ledger.total)
        if self._channel is not None:
            self._outbox.count()
            metrics.defer(metrics.stream_event_bytes.observe, self._outbox.largest)
        if isinstance(error, ResourceLimitExceeded):
            metrics.limit_breaches_total.labels(error.resource).inc()
        if isinstance(error, GatewayError):
            log_failure(error)
        if self._span.recording:
            conclude_agent(self._span, self._turn, error, cut_off=error is not None and error is self._deadline.cut)

    def _expect_channel(self) -> Channel:
        assert self._channel is not None
        return self._channel


def _drop_torn(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the events that are JSON: a stream that stops inside one ended early, and what is left of it is none."""
    for block in blocks:
        try:
            codec.decode(block[1])
        except ValueError:
            continue
        yield block
