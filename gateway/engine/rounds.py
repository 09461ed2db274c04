"""The rounds of a response for which the gateway has tools: an inference, the calls it makes, and inference again."""

from gateway.engine.compaction import Compactor
from gateway.engine.hosting import Hosting
from gateway.engine.inference import Inference
from gateway.engine.plan import Plan
from gateway.engine.steering import STEERED
from gateway.engine.telling import Telling
from gateway.ports import Toolkit
from gateway.protocol.announcer import Round
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.choice import Offers
from gateway.protocol.hosted_history import recall_round
from gateway.protocol.hosted_slots import HostedSlot
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing

_MAX_MESSAGES = "max_messages"


class Rounds:
    """Makes a response with tools of the gateway's.

    The servers' tools are listed and what the client approved is run; then the model is asked, its calls of the
    gateway's tools are run, and it is asked again with what they returned, until it calls none of them, or one that the
    client has to answer.

    Args:
        plan: the response.
        inference: asks the model.
        telling: takes the events.
        compactor: looks after the window, if the request asks for that.
        metrics: counts the rounds.
        tracing: spans of listings and calls.
    """

    def __init__(
        self,
        plan: Plan,
        inference: Inference,
        telling: Telling,
        compactor: Compactor | None,
        *,
        metrics: Metrics,
        tracing: Tracing,
    ) -> None:
        self._plan = plan
        self._turn = plan.turn
        self._inference = inference
        self._telling = telling
        self._compactor = compactor
        self._metrics = metrics
        self._tracing = tracing
        self._items = list(plan.items)
        self._asked = 0

    async def run(self, kit: Toolkit, *, stream: bool) -> None:
        """Make the response up to its end, and close the toolkit.

        Raises:
            InvalidRequest: `tool_choice` requires a tool that is not offered.
            GatewayError: a round failed.
        """
        try:
            hosting = Hosting(self._plan, kit, self._telling, self._tracing)
            offered = await hosting.discover()
            offers = self._plan.request.toolset.complete(offered)
            # What `tool_choice` rules out is not run, whatever a model calls.
            may = offers.later.names
            most = 0 if offers.later.choice == "none" else self._plan.request.fields.max_tool_calls
            self._turn.host([tool for tool in offered if tool.function["name"] in may], most)
            await hosting.run_approved(self._items)
            await self._converse(hosting, offers, stream=stream)
        finally:
            if self._asked:
                self._metrics.tool_rounds.observe(self._asked)
            await kit.close()

    async def _converse(self, hosting: Hosting, offers: Offers, *, stream: bool) -> None:
        offer, vain = offers.first, 0
        while True:
            if self._compactor is not None:
                self._items = await self._compactor.relieve(self._items, self._telling)
            round_ = self._telling.round = self._turn.open_round()
            await self._inference.ask(self._items, offer, stream=stream)
            self._telling.accepted = True
            self._asked += 1
            calls = [slot for slot in round_.queue if isinstance(slot, HostedSlot) and slot.awaits]
            vain = vain + 1 if self._turn.exhausted and not calls else 0
            await hosting.run_calls(round_, calls)
            if self._turn.is_cut_short or not _goes_on(round_) or vain > 1:
                return
            if self._telling.steered:
                self._turn.cut_short(STEERED)
                return
            if self._asked >= self._plan.settings.max_rounds:
                self._turn.cut_short(_MAX_MESSAGES)
                return
            self._items += self._plan.carry(recall_round(round_.slots))
            offer = offers.later.without_calls() if self._turn.exhausted else offers.later


def _goes_on(round_: Round) -> bool:
    """Whether the model has called tools, and only those of the gateway's."""
    calls = [slot for slot in round_.slots if isinstance(slot, CallSlot)]
    return bool(calls) and all(isinstance(slot, HostedSlot) or slot.hidden for slot in calls)
