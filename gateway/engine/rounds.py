"""The rounds of a response for which the gateway has tools: an inference, the calls it makes, and inference again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from gateway.engine.compaction import Compactor
from gateway.engine.inference import Inference
from gateway.engine.plan import Plan
from gateway.engine.telling import Telling
from gateway.ports import ApprovedCall, HostedCall, HostedResult, HostedTool, Listed, Listing, Toolkit
from gateway.protocol.announcer import Round
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.choice import Offers
from gateway.protocol.hosted_history import recall_output, recall_round
from gateway.protocol.hosted_slots import HostedSlot
from gateway.telemetry import names
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing

_T = TypeVar("_T")
_MAX_MESSAGES = "max_messages"
_LONGEST_NAME = 128
_OVER_LIMIT = "The tool call was not run: max_tool_calls of this response is reached."


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
        self._one_by_one = plan.request.fields.parallel_tool_calls is False
        self._asked = 0

    async def run(self, kit: Toolkit, *, stream: bool) -> None:
        """Make the response up to its end, and close the toolkit.

        Raises:
            InvalidRequest: `tool_choice` requires a tool that is not offered.
            GatewayError: a round failed.
        """
        try:
            offered = [*kit.offered, *await self._discover(kit.listings)]
            # The same order in every response, whichever tools were known already: engines cache what begins alike.
            offered.sort(key=lambda tool: tool.label)
            offers = self._plan.request.toolset.complete(offered)
            # What `tool_choice` rules out is not run, whatever a model calls.
            may = offers.later.names
            most = 0 if offers.later.choice == "none" else self._plan.request.fields.max_tool_calls
            self._turn.host([tool for tool in offered if tool.function["name"] in may], most)
            await self._run_approved(kit, [call for call in kit.decided if call.approved])
            await self._converse(kit, offers, stream=stream)
        finally:
            if self._asked:
                self._metrics.tool_rounds.observe(self._asked)
            await kit.close()

    # ------------------------------------------------------------ before the first inference

    async def _discover(self, listings: Sequence[Listing]) -> list[HostedTool]:
        if not listings:
            return []
        round_ = self._begin_round()
        slots, out = self._turn.open_listings(round_, [listing.label for listing in listings])
        self._telling.keep(out)
        await self._telling.send()
        found: dict[int, Listed] = {}

        def take(index: int, listed: Listed) -> None:
            found[index] = listed
            self._telling.keep(self._turn.conclude_listing(round_, slots[index], listed))

        await self._work([partial(self._fetch, listing) for listing in listings], take)
        return [tool for index in range(len(listings)) for tool in found[index].offered]

    async def _fetch(self, listing: Listing) -> Listed:
        with self._tracing.start_listing(listing.label) as span:
            if span.recording:
                span.annotate({names.ATTR_SERVER_LABEL: listing.label[:_LONGEST_NAME]})
            listed = await listing.fetch(span.headers)
            if listed.error is not None:
                span.fail(names.TOOL_ERROR)
            return listed

    async def _run_approved(self, kit: Toolkit, calls: Sequence[ApprovedCall]) -> None:
        most = self._plan.request.fields.max_tool_calls
        within = calls if most is None else calls[:most]
        for call in calls[len(within) :]:
            recall_output(self._items, call.request_id, _OVER_LIMIT)
        if not within:
            return
        round_ = self._begin_round()
        slots, out = self._turn.open_approved(round_, [(call.tool, call.arguments, call.request_id) for call in within])
        self._telling.keep(out)
        await self._telling.send()
        await self._run_calls(kit, round_, slots)
        for call, slot in zip(within, slots, strict=True):
            recall_output(self._items, call.request_id, slot.result.output if slot.result is not None else "")

    # ------------------------------------------------------------ inference and calls in turn

    async def _converse(self, kit: Toolkit, offers: Offers, *, stream: bool) -> None:
        offer, vain = offers.first, 0
        while True:
            if self._compactor is not None:
                self._items = await self._compactor.relieve(self._items, self._telling)
            round_ = self._begin_round()
            await self._inference.ask(self._items, offer, stream=stream)
            self._telling.accepted = True
            self._asked += 1
            calls = [slot for slot in round_.queue if isinstance(slot, HostedSlot) and slot.awaits]
            vain = vain + 1 if self._turn.exhausted and not calls else 0
            await self._run_calls(kit, round_, calls)
            if self._turn.is_cut_short or not _goes_on(round_) or vain > 1:
                return
            if self._asked >= self._plan.settings.max_rounds:
                self._turn.cut_short(_MAX_MESSAGES)
                return
            self._items += self._plan.carry(recall_round(round_.slots))
            offer = offers.later.without_calls() if self._turn.exhausted else offers.later

    async def _run_calls(self, kit: Toolkit, round_: Round, calls: Sequence[HostedSlot]) -> None:
        if not calls:
            return
        await self._telling.send()

        def take(index: int, result: HostedResult) -> None:
            self._telling.keep(self._turn.conclude_call(round_, calls[index], result))

        await self._work([partial(self._run_call, kit, slot) for slot in calls], take)

    async def _run_call(self, kit: Toolkit, slot: HostedSlot) -> HostedResult:
        tool = slot.tool
        with self._tracing.start_tool(tool.name) as span:
            if span.recording:
                span.annotate(
                    {
                        names.ATTR_OPERATION: names.TOOL_OPERATION,
                        names.ATTR_TOOL_NAME: tool.name[:_LONGEST_NAME],
                        names.ATTR_TOOL_CALL_ID: slot.id,
                        names.ATTR_TOOL_TYPE: "extension",
                        names.ATTR_SERVER_LABEL: tool.label[:_LONGEST_NAME] or None,
                    }
                )
            call = HostedCall(item_id=slot.id, tool=tool, arguments=slot.arguments, headers=span.headers)
            result = await kit.run(call)
            if result.failed:
                span.fail(names.TOOL_ERROR)
            return result

    async def _work(self, jobs: Sequence[Callable[[], Awaitable[_T]]], take: Callable[[int, _T], None]) -> None:
        """Do the jobs, at once unless the client wants one after the other; take and tell each result as it comes."""
        if self._one_by_one or len(jobs) == 1:
            for index, job in enumerate(jobs):
                take(index, await job())
                await self._telling.send()
            return
        tasks = [asyncio.ensure_future(job()) for job in jobs]
        try:
            pending = set(tasks)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for index, task in enumerate(tasks):
                    if task in done:
                        take(index, task.result())
                await self._telling.send()
        finally:
            await _cancel(tasks)

    def _begin_round(self) -> Round:
        round_ = self._telling.round = self._turn.open_round()
        return round_


def _goes_on(round_: Round) -> bool:
    """Whether the model has called tools, and only those of the gateway's."""
    calls = [slot for slot in round_.slots if isinstance(slot, CallSlot)]
    return bool(calls) and all(isinstance(slot, HostedSlot) or slot.hidden for slot in calls)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """End what is not done, and wait until it has ended."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
