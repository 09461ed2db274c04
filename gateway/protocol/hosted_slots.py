"""Items of the gateway's own tools while they grow: calls that wait for a result, and listings of servers' tools.

What a tool returned, and what a server listed, is charged by its bytes; the rest of the item as that of any other.
"""

from collections.abc import Mapping
from typing import Any

from gateway.protocol import events
from gateway.protocol.call_parts import ArgumentsPart, McpArgumentsPart
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.events import Event, ItemEvent
from gateway.protocol.hosted import HostedResult, HostedTool, Listed, read_queries
from gateway.protocol.items import Status
from gateway.protocol.ledger import VALUE_BYTES, charge
from gateway.protocol.slots import Slot


class HostedSlot(CallSlot):
    """Base of calls that the gateway runs; the engine writes them as function calls.

    Attributes:
        awaits: the result is still to come, and the item stays open until then.
        tool: what is called.
        result: how it ended, or None.
    """

    __slots__ = ("_said_begin", "_said_end", "awaits", "result", "tool")

    def __init__(self, item_id: str, tool: HostedTool) -> None:
        super().__init__(item_id, item_id, tool.name, None)
        self.tool = tool
        self.awaits = True
        self.result: HostedResult | None = None
        self._said_begin = False
        self._said_end = False

    @property
    def engine_type(self) -> str:
        """What runs here is a function call to the engine."""
        return "function_call"

    @property
    def arguments(self) -> str:
        """The arguments so far, as the model wrote them."""
        part = self.find(self.text_kind, 0)
        return part.text if part is not None else ""

    def cut(self) -> bool:
        """Run nothing with half its arguments."""
        self.awaits = False
        return self.ready

    def conclude(self, result: HostedResult) -> None:
        """Take the result."""
        self.result = result
        self.awaits = False

    def flush(self) -> list[Event]:
        """Return the events that tell the client what it has not seen of the call."""
        out: list[Event] = []
        if not self._said_begin:
            self._said_begin = True
            out += self._begin()
        out += super().flush()
        if self.result is not None and not self._said_end:
            self._said_end = True
            out += self._end(self.result)
        return out

    def charge(self, status: Status = "completed") -> int:
        """Return the charge of the call, and that of what the tool returned."""
        return _charge_beside_output(self.render(status)) + (self.result.size if self.result is not None else 0)

    def render(self, status: Status) -> dict[str, Any]:
        """Return the item as it stands."""
        item = self._describe(self.arguments)
        item["status"] = status
        return item if self.result is None else {**item, **self.result.fields}

    def skeleton(self) -> dict[str, Any]:
        """Return the item as it is announced."""
        return {**self._describe(""), "status": "in_progress"}

    def _describe(self, arguments: str) -> dict[str, Any]:
        raise NotImplementedError

    def _begin(self) -> list[Event]:
        raise NotImplementedError

    def _end(self, result: HostedResult) -> list[Event]:
        raise NotImplementedError

    def _event(self, kind: type[ItemEvent]) -> Event:
        return kind(item_id=self.id, output_index=self.output_index)


class McpCallSlot(HostedSlot):
    """A call of a tool on an MCP server.

    Args:
        item_id: its id.
        tool: what is called.
        approval: id of the request that the client approved, or None.
    """

    __slots__ = ("_approval",)

    def __init__(self, item_id: str, tool: HostedTool, approval: str | None = None) -> None:
        super().__init__(item_id, tool)
        self._approval = approval

    @property
    def text_kind(self) -> type[ArgumentsPart]:
        """The client is told of the arguments as they come."""
        return McpArgumentsPart

    def close(self) -> None:
        """Mark the arguments as final; without a word from the engine they are the empty text."""
        if self.find(McpArgumentsPart, 0) is None:
            self.open_part(McpArgumentsPart, 0)
        super().close()

    def _describe(self, arguments: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "mcp_call",
            "status": "in_progress",
            "approval_request_id": self._approval,
            "arguments": arguments,
            "error": None,
            "name": self.tool.name,
            "output": None,
            "server_label": self.tool.label,
        }

    def _begin(self) -> list[Event]:
        return [self._event(events.McpCallInProgress)]

    def _end(self, result: HostedResult) -> list[Event]:
        return [self._event(events.McpCallFailed if result.failed else events.McpCallCompleted)]


class WebSearchSlot(HostedSlot):
    """A web search; it is announced once the model has written what it looks for."""

    __slots__ = ()

    def __init__(self, item_id: str, tool: HostedTool) -> None:
        super().__init__(item_id, tool)
        self.carried = ArgumentsPart(0)

    @property
    def ready(self) -> bool:
        """The action is known when the arguments are complete."""
        return self.closed

    def cut(self) -> bool:
        """Show what it was to look for, as far as that is known."""
        self.closed = True
        return super().cut()

    def skeleton(self) -> dict[str, Any]:
        """Return the search with what it looks for."""
        return {**self._describe(self.arguments), "status": "in_progress"}

    def _describe(self, arguments: str) -> dict[str, Any]:
        queries = read_queries(arguments)
        action = {"type": "search", "query": queries[0] if queries else "", "queries": queries}
        return {"id": self.id, "type": "web_search_call", "status": "in_progress", "action": action}

    def _begin(self) -> list[Event]:
        return [self._event(events.WebSearchInProgress), self._event(events.WebSearchSearching)]

    def _end(self, result: HostedResult) -> list[Event]:  # noqa: ARG002
        return [self._event(events.WebSearchCompleted)]


class ApprovalSlot(CallSlot):
    """A call that the client has to approve first; it ends the turn as a call of the client's own does.

    It is announced at the end of its round: nobody is to approve what was cut off.
    """

    __slots__ = ("_tool", "_whole")

    def __init__(self, item_id: str, tool: HostedTool) -> None:
        super().__init__(item_id, item_id, tool.name, None)
        self._tool = tool
        self._whole = False
        self.carried = ArgumentsPart(0)

    @property
    def ready(self) -> bool:
        """Whether the round is at its end."""
        return self._whole

    def end(self) -> None:
        """Announce it."""
        self._whole = True

    @property
    def engine_type(self) -> str:
        """A function call to the engine."""
        return "function_call"

    def render(self, status: Status) -> dict[str, Any]:
        """Return the request for approval."""
        return self._describe(self.carried.text if self.carried is not None else "", status)

    def skeleton(self) -> dict[str, Any]:
        """Return the request for approval without arguments."""
        return self._describe("", "in_progress")

    def _describe(self, arguments: str, status: Status) -> dict[str, Any]:
        # The API knows no status of this type, but clients that read any item's alike expect one.
        return {
            "id": self.id,
            "type": "mcp_approval_request",
            "status": status,
            "arguments": arguments,
            "name": self._tool.name,
            "server_label": self._tool.label,
        }


class SurplusSlot(CallSlot):
    """A call beyond `max_tool_calls`: neither run nor shown."""

    __slots__ = ()

    hidden = True

    def __init__(self, item_id: str, tool: HostedTool) -> None:
        super().__init__(item_id, item_id, tool.name, None)
        self.carried = ArgumentsPart(0)

    @property
    def engine_type(self) -> str:
        """A function call to the engine."""
        return "function_call"

    def cut(self) -> bool:
        """Nobody hears of it, cut off or not."""
        return False

    def charge(self, status: Status = "completed") -> int:  # noqa: ARG002
        """Return 0: nothing of it is kept."""
        return 0


class ListingSlot(Slot):
    """The tools of one MCP server, as far as they are known.

    Args:
        item_id: its id.
        label: the server's.

    Attributes:
        awaits: the server has not been asked yet.
        listed: what came of it, or None.
    """

    __slots__ = ("_label", "_said_begin", "_said_end", "awaits", "listed")

    def __init__(self, item_id: str, label: str) -> None:
        super().__init__(item_id)
        self._label = label
        self.awaits = True
        self.listed: Listed | None = None
        self._said_begin = False
        self._said_end = False

    def conclude(self, listed: Listed) -> None:
        """Take what came of asking."""
        self.listed = listed
        self.awaits = False

    def flush(self) -> list[Event]:
        """Return the events that tell the client what it has not seen."""
        out: list[Event] = []
        if not self._said_begin:
            self._said_begin = True
            out.append(events.McpListInProgress(item_id=self.id, output_index=self.output_index))
        if self.listed is not None and not self._said_end:
            self._said_end = True
            kind = events.McpListCompleted if self.listed.error is None else events.McpListFailed
            out.append(kind(item_id=self.id, output_index=self.output_index))
        return out

    def charge(self, status: Status = "completed") -> int:
        """Return the charge of the item, and that of what the server sent."""
        return _charge_beside_output(self.render(status)) + (self.listed.size if self.listed is not None else 0)

    def render(self, status: Status) -> dict[str, Any]:
        """Return the listing."""
        item, listed = self._describe(status), self.listed
        if listed is None:
            return item
        item["tools"] = list(listed.tools)
        return item if listed.error is None else {**item, "status": "failed", "error": listed.error}

    def skeleton(self) -> dict[str, Any]:
        """Return the listing without tools."""
        return self._describe("in_progress")

    def _describe(self, status: Status) -> dict[str, Any]:
        # As above: the API knows no status of this type.
        return {"id": self.id, "type": "mcp_list_tools", "status": status, "server_label": self._label, "tools": []}


_BY_BYTES = ("output", "tools")


def _charge_beside_output(item: Mapping[str, Any]) -> int:
    """Return the charge of an item but for the text or list that its raw bytes stand for."""
    kept = {name: value for name, value in item.items() if name not in _BY_BYTES or not value}
    return charge(kept) + VALUE_BYTES * (len(item) - len(kept))
