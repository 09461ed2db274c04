"""Inference calls of several agents at once: what comes is taken by the owner of the response."""

import sys
from functools import partial
from typing import Any

from gateway.engine.agents.inbox import Inbox
from gateway.engine.coalescing import Coalescer
from gateway.engine.inference import FIELD, Inference, drop_torn
from gateway.engine.plan import Plan
from gateway.engine.telling import Telling
from gateway.ports import UpstreamExchange
from gateway.protocol.agents.tree_round import TreeRound
from gateway.protocol.choice import Offer
from gateway.protocol.errors import UpstreamError
from gateway.protocol.sse import SseDecoder
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing


class AgentInference(Inference):
    """One inference of one agent.

    Args:
        plan: the response, with the request as this agent has it.
        telling: takes the events of all agents.
        round_: takes the answer.
        inbox: of the owner.
        coalescer: told of each read.
        metrics: what is counted.
        tracing: spans of calls.

    Attributes:
        round: as given.
        is_cut: it is to end once no item is open; nothing more is taken of its answer then.
    """

    def __init__(
        self,
        plan: Plan,
        telling: Telling,
        round_: TreeRound,
        inbox: Inbox,
        *,
        coalescer: Coalescer,
        metrics: Metrics,
        tracing: Tracing,
    ) -> None:
        super().__init__(plan, telling, coalescer=coalescer, metrics=metrics, tracing=tracing)
        self.is_cut = False
        self.round = round_
        self._inbox = inbox

    async def run(self, items: list[dict[str, Any]], offer: Offer) -> None:
        """Make the call, and have all of its answer taken.

        Raises:
            GatewayError: the call, or its answer, failed.
        """
        await self.ask(items, offer, stream=True, round_=self.round)

    async def _relay(self, exchange: UpstreamExchange) -> None:
        limit = self._settings.limits.max_upstream_sse_line_bytes
        decoder = SseDecoder(sys.maxsize if exchange.is_translated else limit)
        ended = False
        while not ended:
            chunk = exchange.take()
            if chunk is None:
                await exchange.arrival()
                continue
            ended = await self._inbox.ask(partial(self._take, decoder, chunk))
            if not ended:
                self._coalescer.note()
                if not chunk:
                    raise UpstreamError("The upstream's stream ended without a terminal event.", code="server_error")
        self._metrics.defer(self._metrics.upstream_line_bytes, self._longest_line + len(FIELD))

    async def _ingest_body(self, exchange: UpstreamExchange) -> None:
        answer = await self._read_body(exchange)
        await self._inbox.ask(partial(self._take_body, answer))

    # ------------------------------------------------------------ the owner's steps

    def _take(self, decoder: SseDecoder, chunk: bytes) -> bool:
        """Take one read; returns whether that was all that is wanted."""
        self._telling.round = self.round
        for block in decoder.feed(chunk) if chunk else drop_torn(decoder.end()):
            if self._ingest_blocks((block,)) or (self.is_cut and self.round.is_between_items):
                return True
        return False

    def _take_body(self, answer: Any) -> None:
        self._telling.accepted = True
        self._telling.round = self.round
        self._telling.keep(self._turn.ingest_body(self.round, answer))
