"""What of its servers' tools a request offers a model."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import Struct

from gateway.protocol.hosted import HostedKind, HostedTool, name_function
from gateway.tools.mcp.declaration import ANY_TOOL, Declaration, ToolFilter
from gateway.tools.mcp.exchange import ServerFault

_LONGEST_NAME: Final = 256
_DESCRIBED: Final = 500


class Found(Struct, frozen=True, kw_only=True):
    """What a listing comes to.

    Attributes:
        tools: as the `mcp_list_tools` item shows them.
        offered: what the model is offered; as many.
    """

    tools: Sequence[Mapping[str, Any]]
    offered: Sequence[HostedTool]


class Selection:
    """Picks what one request offers of its servers' tools, so that no two have the same name.

    Args:
        limit: most tools in all.
        taken: names that no tool may have.
        leave_out: told why a tool was left out: `name` or `schema`.
    """

    def __init__(self, limit: int, taken: AbstractSet[str], leave_out: Callable[[str], None]) -> None:
        self._limit = limit
        self._names = set(taken)
        self._count = 0
        self._leave_out = leave_out

    def pick(self, declaration: Declaration, listed: Sequence[Mapping[str, Any]], operator: ToolFilter) -> Found:
        """Return what of a server's tools the request may use and a model can.

        Args:
            declaration: what the request says of the server.
            listed: its tools, as the server or an `mcp_list_tools` item words them.
            operator: which of them any request may use.

        Raises:
            ServerFault: there are too many.
        """
        picked: dict[str, tuple[dict[str, Any], HostedTool]] = {}
        for given in listed:
            name = given.get("name")
            if not isinstance(name, str) or not name or name in picked or len(name) > _LONGEST_NAME:
                self._leave_out("name")
                continue
            read_only = _is_read_only(given)
            if not all(which.takes(name, read_only=read_only) for which in (declaration.allowed, operator)):
                continue
            schema = given.get("inputSchema", given.get("input_schema"))
            if not isinstance(schema, dict) or schema.get("type", "object") != "object":
                self._leave_out("schema")
                continue
            kind: HostedKind = "mcp_approval_request" if declaration.asks(name, read_only=read_only) else "mcp_call"
            tool = _offer(declaration, kind, name, given.get("description"), schema)
            if tool.function["name"] in self._names:
                self._leave_out("name")
                continue
            picked[name] = _show(given, schema), tool
            if self._count + len(picked) > self._limit:
                raise ServerFault(
                    f"offers more tools than the {self._limit} that all servers of a request may together; name those "
                    "that are needed in allowed_tools",
                    bound="mcp.max_tools",
                )
        self._count += len(picked)
        self._names |= {tool.function["name"] for _, tool in picked.values()}
        return Found(tools=[shown for shown, _ in picked.values()], offered=[tool for _, tool in picked.values()])


def name_tools(names: Sequence[str]) -> ToolFilter:
    """Return a filter for names; none means every tool."""
    return ToolFilter(names=frozenset(names)) if names else ANY_TOOL


def stand_in(label: str, name: str) -> HostedTool:
    """Return a tool for a call that is settled although nobody may offer it any more."""
    return HostedTool(
        function={"type": "function", "name": name_function(label, name)}, kind="mcp_call", name=name, label=label
    )


def find_listing(items: Sequence[Mapping[str, Any]], label: str) -> Sequence[Mapping[str, Any]] | None:
    """Return the tools that the newest listing of a server among the items holds, or None where it must be asked."""
    for item in reversed(items):
        if item.get("type") == "mcp_list_tools" and item.get("server_label") == label and not item.get("error"):
            tools = item.get("tools")
            if isinstance(tools, list):
                return [tool for tool in tools if isinstance(tool, dict)]
    return None


def _offer(
    declaration: Declaration, kind: HostedKind, name: str, description: Any, schema: Mapping[str, Any]
) -> HostedTool:
    told = [description if isinstance(description, str) else "", (declaration.description or "")[:_DESCRIBED]]
    function = {
        "type": "function",
        "name": name_function(declaration.label, name),
        "description": "\n\n".join(text for text in told if text),
        "parameters": {"type": "object", "properties": {}, **schema},
        "strict": False,
    }
    return HostedTool(function=function, kind=kind, name=name, label=declaration.label)


def _show(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    annotations, description = given.get("annotations"), given.get("description")
    return {
        "name": given["name"],
        "description": description if isinstance(description, str) else None,
        "input_schema": schema,
        "annotations": annotations if isinstance(annotations, dict) else None,
    }


def _is_read_only(given: Mapping[str, Any]) -> bool:
    annotations = given.get("annotations")
    return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
