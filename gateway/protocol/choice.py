"""What a request's `tool_choice` means for the function tools an engine is offered."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gateway.protocol.errors import InvalidRequest

_MCP = "mcp"
_WEB_SEARCH = "web_search"


class Offered(Struct, frozen=True):
    """One function tool for the engine, with what the client knows it by.

    Attributes:
        function: the tool as the engine gets it.
        name: its own name.
        group: its namespace, or the `server_label` of its server; None without.
        hosted: `mcp` or `web_search` for a tool the gateway runs, else empty.
    """

    function: dict[str, Any]
    name: str
    group: str | None = None
    hosted: str = ""


class Offer(Struct, frozen=True):
    """What an inference is offered.

    Attributes:
        tools: function tools.
        choice: `tool_choice`, None without tools.
    """

    tools: list[dict[str, Any]]
    choice: Any

    def without_calls(self) -> "Offer":
        """Return the same tools, none of which may be called."""
        return Offer(self.tools, "none" if self.tools else None)


class Offers(Struct, frozen=True):
    """What the inferences of a response are offered: a call is required of the first one only, or none would be last.

    Attributes:
        first: for the first.
        later: for the others.
    """

    first: Offer
    later: Offer


def choose(offered: Sequence[Offered], choice: Any, *, pending: bool = False) -> Offers:
    """Apply a `tool_choice`.

    Args:
        offered: all tools.
        choice: as the caller gave it.
        pending: more tools will be known later, so that one that is missing yet is no fault.

    Raises:
        InvalidRequest: a malformed choice, or one that requires a tool that is not offered.
    """
    every = [tool.function for tool in offered]
    if choice is None or choice in ("auto", "none"):
        return _same(every, choice or "auto")
    if choice == "required":
        if not every and not pending:
            raise _refuse("requires a tool call, but no tool is offered that this gateway can carry", "tool_choice")
        return _first(every, choice, every)
    if not isinstance(choice, dict):
        raise _refuse('must be "none", "auto", "required" or an object', "tool_choice")
    kind = choice.get("type")
    if kind == "allowed_tools":
        return _allow(offered, choice, pending=pending)
    if kind in ("function", "custom"):
        return _first(every, {"type": "function", "name": _find_name(offered, choice)}, every)
    wanted = [tool for tool in offered if _is_hosted(tool, choice)]
    if not wanted and not (pending and (kind == _MCP or _is_search(kind))):
        raise _refuse(
            f"requires a hosted tool of type '{str(kind)[:64]}', which this gateway cannot run", "tool_choice"
        )
    if len(wanted) == 1:
        return _first(every, {"type": "function", "name": wanted[0].function["name"]}, every)
    return _first([tool.function for tool in wanted], "required", every)


def _find_name(offered: Sequence[Offered], choice: dict[str, Any]) -> str:
    name, namespace = choice.get("name"), choice.get("namespace")
    for tool in offered:
        if tool.name == name and tool.group == namespace and not tool.hosted:
            return str(tool.function["name"])
    raise _refuse(f"names the tool '{str(name)[:64]}', which is not among the tools", "tool_choice.name")


def _allow(offered: Sequence[Offered], choice: dict[str, Any], *, pending: bool) -> Offers:
    mode, listed = choice.get("mode", "auto"), choice.get("tools")
    if mode not in ("auto", "required") or not isinstance(listed, list):
        raise _refuse('of type allowed_tools needs a mode ("auto" or "required") and a list of tools', "tool_choice")
    entries = [entry for entry in listed if isinstance(entry, dict)]
    names = {entry["name"] for entry in entries if isinstance(entry.get("name"), str) and not _names_hosted(entry)}
    allowed = [
        tool.function
        for tool in offered
        if (
            any(_is_hosted(tool, entry) for entry in entries)
            if tool.hosted
            else tool.name in names or tool.group in names
        )
    ]
    if mode == "required" and not allowed and not pending:
        raise _refuse("requires one of the allowed tools, but none of them is offered", "tool_choice.tools")
    return _first(allowed, mode, allowed)


def _names_hosted(entry: dict[str, Any]) -> bool:
    return entry.get("type") == _MCP or _is_search(entry.get("type"))


def _is_hosted(tool: Offered, entry: dict[str, Any]) -> bool:
    """Whether an entry means this tool of the gateway's: a server and perhaps one tool of it, or the web search."""
    if tool.hosted == _MCP:
        return (
            entry.get("type") == _MCP
            and entry.get("server_label") == tool.group
            and entry.get("name") in (None, tool.name)
        )
    return tool.hosted == _WEB_SEARCH and _is_search(entry.get("type"))


def _is_search(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith(_WEB_SEARCH)


def _same(tools: list[dict[str, Any]], choice: Any) -> Offers:
    offer = Offer(tools, choice if tools else None)
    return Offers(offer, offer)


def _first(tools: list[dict[str, Any]], choice: Any, later: list[dict[str, Any]]) -> Offers:
    return Offers(Offer(tools, choice if tools else None), Offer(later, "auto" if later else None))


def _refuse(what: str, param: str) -> InvalidRequest:
    return InvalidRequest(f"'tool_choice' {what}.", code="invalid_value", param=param)
