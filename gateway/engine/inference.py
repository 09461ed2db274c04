"""One inference call: what is asked, and the answer's bytes through the turn."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gateway.engine.coalescing import Coalescer
from gateway.engine.failures import name_outcome
from gateway.engine.plan import Plan
from gateway.engine.spans import conclude_call, describe_call
from gateway.engine.steering import ItemCut
from gateway.engine.telling import Telling
from gateway.ports import UpstreamCall, UpstreamExchange
from gateway.protocol import codec
from gateway.protocol.announcer import Round
from gateway.protocol.choice import Offer
from gateway.protocol.errors import GatewayError, UpstreamError
from gateway.protocol.events import Event
from gateway.protocol.requests import build_upstream_body
from gateway.protocol.sse import Block, SseDecoder
from gateway.protocol.upstream_events import Unknown, UpstreamEvent, parse
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing

FIELD = b"data: "


class Inference:
    """Asks the inference server of one response, round by round.

    Args:
        plan: the response.
        telling: takes the events of the answers; its round is the one that is asked for.
        coalescer: told of each read.
        metrics: what is counted.
        tracing: spans of calls.
    """

    def __init__(
        self, plan: Plan, telling: Telling, *, coalescer: Coalescer, metrics: Metrics, tracing: Tracing
    ) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._turn = plan.turn
        self._telling = telling
        self._coalescer = coalescer
        self._metrics = metrics
        self._tracing = tracing
        self._longest_line = 0
        self._ingest: Callable[[Round, UpstreamEvent], list[Event]] = plan.turn.ingest
        self._cut: ItemCut | None = None

    def cut_at_item(self) -> None:
        """Let the call that is being answered end where the next item begins, if there is one."""
        if self._cut is None:
            self._ingest = self._cut = ItemCut(self._turn)

    async def ask(
        self, items: list[dict[str, Any]], offer: Offer, *, stream: bool, round_: Round | None = None
    ) -> None:
        """Make one call, and take all of its answer.

        Args:
            items: the input in the engine's form.
            offer: the tools.
            stream: whether the answer is to be events.
            round_: what takes the answer, if it is not the round that is being told.

        Raises:
            GatewayError: the call, or its answer, failed.
        """
        plan = self._plan
        route = plan.route
        if round_ is None:
            round_ = self._telling.round
        body = build_upstream_body(plan.request, items, offer, model=route.model, stream=stream)
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
            # The round may also end while the answer goes on: others end those of a tree.
            whole = False
            try:
                if exchange.is_event_stream:
                    await self._relay(exchange)
                else:
                    await self._ingest_body(exchange)
                whole = round_.ended
            except UpstreamError as error:
                error.message = route.upstream.redact(error.message)
                raise
            finally:
                self._metrics.count_usage(route.known_model, round_.usage)
                if span.recording:
                    first = self._telling.outbox.first_delta
                    conclude_call(
                        span, round_, whole=whole,
                        first_chunk_seconds=first - began if first > began else None, content_bytes=content_bytes,
                    )  # fmt: skip
                if whole and (self._cut is None or not self._cut.made):
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
            metrics.defer(metrics.upstream_requests_total.labels(status))
            metrics.defer(metrics.upstream_ttfb_seconds, time.perf_counter() - began)

    async def _relay(self, exchange: UpstreamExchange) -> None:
        telling = self._telling
        outbox, progress, channel = telling.outbox, telling.progress, telling.channel
        limit = self._settings.limits.max_upstream_sse_line_bytes
        self._longest_line = 0
        decoder = SseDecoder(sys.maxsize if exchange.is_translated else limit)
        complete = False
        while not complete:
            chunk = exchange.take()
            if chunk is None:
                await exchange.arrival()
                continue
            if progress.looks:
                progress.note()
            complete = self._ingest_blocks(decoder.feed(chunk) if chunk else drop_torn(decoder.end()))
            if not complete:
                self._coalescer.note()
                if outbox:
                    if telling.early is not None:
                        # It may take along what is kept here.
                        await telling.settle_early()
                    batch = outbox.take_read()
                    assert channel is not None
                    if batch and not channel.write(batch):
                        await channel.put(batch)
                if not chunk:
                    raise UpstreamError("The upstream's stream ended without a terminal event.", code="server_error")
        self._metrics.defer(self._metrics.upstream_line_bytes, self._longest_line + len(FIELD))

    def _ingest_blocks(self, blocks: Iterable[Block]) -> bool:
        """Take what one upstream read yielded; returns whether the round is at its end."""
        telling = self._telling
        round_, ingest, keep, keep_delta = telling.round, self._ingest, telling.outbox.add, telling.outbox.add_delta
        tells = telling.channel is not None
        longest = self._longest_line
        for name, data in blocks:
            if len(data) > longest:
                longest = len(data)
            event = parse(name, data)
            flow = round_.flow
            if flow is not None and (delta := flow.tell(event)) is not None:
                if tells:
                    keep_delta(delta)
                continue
            if event is None:
                continue
            if type(event) is Unknown:
                self._metrics.unknown_events_total.inc()
                continue
            out = ingest(round_, event)
            if tells:
                for one in out:
                    keep(one)
            telling.accepted = True
            if round_.ended:
                break
        self._longest_line = longest
        return round_.ended

    async def _ingest_body(self, exchange: UpstreamExchange) -> None:
        answer = await self._read_body(exchange)
        self._telling.keep(self._turn.ingest_body(self._telling.round, answer))

    async def _read_body(self, exchange: UpstreamExchange) -> Any:
        limit = sys.maxsize if exchange.is_translated else self._settings.limits.max_upstream_json_bytes
        body = bytearray()
        while chunk := await exchange.read():
            body += chunk
            if len(body) > limit:
                break
        self._metrics.upstream_json_bytes.observe(len(body))
        if len(body) > limit:
            raise self._settings.limits.exceeded("max_upstream_json_bytes")
        try:
            return codec.decode(bytes(body))
        except codec.TooDeepError as error:
            raise UpstreamError(
                f"The upstream answered 200 with a body {error}.", code="upstream_invalid_body"
            ) from None
        except ValueError:
            raise UpstreamError(
                "The upstream answered 200 with a body that is not JSON.", code="upstream_invalid_body"
            ) from None


def drop_torn(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the events that are JSON: a stream that stops inside one ended early, and what is left of it is none."""
    for block in blocks:
        try:
            codec.decode(block[1])
        except ValueError:
            continue
        yield block
