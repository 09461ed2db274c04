"""Gives the items an engine opens the names a client knows them by: our ids, usable call ids, declared tool names."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from gateway.protocol.call_slots import CustomCallSlot, FunctionCallSlot
from gateway.protocol.carriage import Carriage
from gateway.protocol.client_slots import ClientCallSlot
from gateway.protocol.client_tools import CLIENT_TOOLS
from gateway.protocol.errors import UpstreamError
from gateway.protocol.hosted import HostedTool
from gateway.protocol.hosted_slots import ApprovalSlot, ListingSlot, McpCallSlot, SurplusSlot, WebSearchSlot
from gateway.protocol.ids import prefix_of
from gateway.protocol.parts import Part, ReasoningPart, SummaryPart
from gateway.protocol.slots import MessageSlot, OpaqueSlot, ReasoningSlot, Slot
from gateway.protocol.upstream_events import text_of

MAX_CALL_ID = 64


class Naming:
    """Makes the slots of one response.

    Args:
        mint: returns a new id for a prefix.
        carriage: names of carried tools.
        used_call_ids: call ids of the effective input; those of new calls are added.
    """

    __slots__ = ("_carriage", "_hosted", "_left", "_mint", "_used")

    def __init__(self, mint: Callable[[str], str], carriage: Carriage, used_call_ids: set[str]) -> None:
        self._mint = mint
        self._carriage = carriage
        self._used = used_call_ids
        self._hosted: dict[str, HostedTool] = {}
        self._left: int | None = None

    def carry_by(self, carriage: Carriage) -> None:
        """Go by other names of carried tools from now on; to be followed by `host`."""
        self._carriage = carriage

    def host(self, tools: Iterable[HostedTool], most: int | None) -> None:
        """Take tools that the gateway runs itself.

        Models sometimes call them by their bare names; that is understood where it can mean one tool only.

        Args:
            tools: what the engine is offered.
            most: how many more calls of them are run; None for any number.
        """
        offered = list(tools)
        bare = Counter(tool.name for tool in offered)
        self._hosted = {
            tool.name: tool for tool in offered if bare[tool.name] == 1 and not self._carriage.declares(tool.name)
        } | {tool.function["name"]: tool for tool in offered}
        self._left = most

    @property
    def exhausted(self) -> bool:
        """Whether no further call of the gateway's tools is run."""
        return self._left is not None and self._left <= 0

    def list_tools(self, label: str) -> ListingSlot:
        """Return the item for the tools of a server."""
        return ListingSlot(self._mint(prefix_of("mcp_list_tools")), label)

    def call_approved(self, tool: HostedTool, arguments: str, approval: str) -> McpCallSlot:
        """Return the item for a call that the client approved; it counts as one that is run."""
        if self._left is not None:
            self._left -= 1
        slot = McpCallSlot(self._mint(prefix_of("mcp_call")), tool, approval)
        slot.open_part(slot.text_kind, 0).push(arguments)
        return slot

    def slot_for(self, item: dict[str, Any]) -> Slot:
        """Return the slot for an engine's item."""
        kind = item.get("type")
        if kind == "function_call":
            return self._function_call(item)
        item_id = self._mint(prefix_of(kind if isinstance(kind, str) else ""))
        if kind == "message":
            return MessageSlot(item_id, item)
        if kind == "reasoning":
            return ReasoningSlot(item_id, item)
        if kind == "custom_tool_call":
            call_id, name, namespace = self._call_id(item), text_of(item.get("name")), text_of(item.get("namespace"))
            return CustomCallSlot(item_id, call_id, name or "", namespace, carried=False)
        return OpaqueSlot(item_id, item)

    def slot_for_part(self, kind: type[Part]) -> Slot:
        """Return a slot for a part that came without its item's `added`."""
        if kind in (ReasoningPart, SummaryPart):
            return ReasoningSlot(self._mint(prefix_of("reasoning")), {})
        return MessageSlot(self._mint(prefix_of("message")), {})

    def name_of(self, upstream: Any) -> str:
        """Return the client's name of the tool that a call names late.

        Raises:
            UpstreamError: the gateway runs it itself, and took the call for one of the client's.
        """
        if self._hosted and upstream in self._hosted:
            raise UpstreamError("The upstream named a tool call too late.", code="upstream_invalid_event")
        return self._carriage.resolve(upstream).name if isinstance(upstream, str) else ""

    def _hosted_call(self, tool: HostedTool) -> Slot:
        item_id = self._mint(prefix_of(tool.kind))
        if self.exhausted:
            return SurplusSlot(item_id, tool)
        if tool.kind == "mcp_approval_request":
            return ApprovalSlot(item_id, tool)
        if self._left is not None:
            self._left -= 1
        return McpCallSlot(item_id, tool) if tool.kind == "mcp_call" else WebSearchSlot(item_id, tool)

    def _function_call(self, item: dict[str, Any]) -> Slot:
        if self._hosted and (hosted := self._hosted.get(text_of(item.get("name")) or "")) is not None:
            return self._hosted_call(hosted)
        call_id = self._call_id(item)
        tool = self._carriage.resolve(text_of(item.get("name")) or "")
        if tool.kind in CLIENT_TOOLS:
            client_tool = CLIENT_TOOLS[tool.kind]
            return ClientCallSlot(self._mint(prefix_of(client_tool.call)), call_id, tool.name, client_tool)
        if tool.kind == "custom":
            item_id = self._mint(prefix_of("custom_tool_call"))
            return CustomCallSlot(item_id, call_id, tool.name, tool.namespace, carried=True)
        item_id = self._mint(prefix_of("function_call"))
        return FunctionCallSlot(item_id, call_id, tool.name, tool.namespace or text_of(item.get("namespace")))

    def _call_id(self, item: dict[str, Any]) -> str:
        given = text_of(item.get("call_id"))
        call_id = given if given and len(given) <= MAX_CALL_ID and given not in self._used else None
        call_id = call_id or self._mint(prefix_of("call"))
        self._used.add(call_id)
        return call_id
