"""The gateway's own tools in one response: what servers list, what the client approved, and the calls of a model."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import structs

from gateway.engine.plan import Plan
from gateway.engine.telling import Telling
from gateway.ports import ApprovedCall, HostedCall, HostedResult, HostedTool, Listed, Listing, Toolkit
from gateway.protocol.announcer import Round
from gateway.protocol.hosted_history import recall_output
from gateway.protocol.hosted_slots import HostedSlot
from gateway.telemetry import names
from gateway.telemetry.tracing import Tracing

_T = TypeVar("_T")
_LONGEST_NAME = 128
_OVER_LIMIT = "The tool call was not run: max_tool_calls of this response is reached."


class Hosting:
    """Runs the gateway's tools for one response, and tells of them.

    Args:
        plan: the response.
        kit: the tools.
        telling: takes the events.
        tracing: spans of listings and calls.
    """

    def __init__(self, plan: Plan, kit: Toolkit, telling: Telling, tracing: Tracing) -> None:
        self._plan = plan
        self._turn = plan.turn
        self._kit = kit
        self._telling = telling
        self._tracing = tracing
        self._known: list[HostedTool] = []
        self._one_by_one = plan.request.fields.parallel_tool_calls is False

    async def discover(self) -> list[HostedTool]:
        """Ask servers for their tools and tell of it; return all tools of the gateway's, those known already too."""
        # The same order in every response, whichever tools were known already: engines cache what begins alike.
        self._known = sorted([*self._kit.offered, *await self._ask(self._kit.listings)], key=lambda tool: tool.label)
        return self._known

    def find_approved(self, request: Mapping[str, Any]) -> HostedTool | None:
        """Return what a call is run with that the client has approved, None where it is not offered any more.

        Args:
            request: the `mcp_approval_request`.
        """
        decided = next((call.tool for call in self._kit.decided if call.request_id == request["id"]), None)
        if decided is not None:
            return decided
        wanted = (request.get("server_label"), request.get("name"))
        offered = next((tool for tool in self._known if (tool.label, tool.name) == wanted), None)
        return None if offered is None else structs.replace(offered, kind="mcp_call")

    async def _ask(self, listings: Sequence[Listing]) -> list[HostedTool]:
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

    async def run_approved(self, items: list[dict[str, Any]]) -> None:
        """Run the calls that the client approved, in a round of their own.

        Args:
            items: the input in the engine's form, which gets their outputs.
        """
        calls: Sequence[ApprovedCall] = [call for call in self._kit.decided if call.approved]
        most = self._plan.request.fields.max_tool_calls
        within = calls if most is None else calls[:most]
        for call in calls[len(within) :]:
            recall_output(items, call.request_id, _OVER_LIMIT)
        if not within:
            return
        round_ = self._begin_round()
        slots, out = self._turn.open_approved(round_, [(call.tool, call.arguments, call.request_id) for call in within])
        self._telling.keep(out)
        await self._telling.send()
        await self.run_calls(round_, slots)
        for call, slot in zip(within, slots, strict=True):
            recall_output(items, call.request_id, slot.result.output if slot.result is not None else "")

    async def run_calls(self, round_: Round, calls: Sequence[HostedSlot]) -> None:
        """Run calls of a model, and tell what they come to."""
        if not calls:
            return
        await self._telling.send()

        def take(index: int, result: HostedResult) -> None:
            self._telling.keep(self._turn.conclude_call(round_, calls[index], result))

        await self._work([partial(self.run_call, slot) for slot in calls], take)

    async def run_call(self, slot: HostedSlot) -> HostedResult:
        """Run one call, without a word about it."""
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
            result = await self._kit.run(call)
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
            await cancel_all(tasks)

    def _begin_round(self) -> Round:
        round_ = self._telling.round = self._turn.open_round()
        return round_


async def cancel_all(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """End what is not done, and wait until it has ended."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
