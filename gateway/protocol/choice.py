"""What a request's `tool_choice` means for the function tools an engine is offered."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gateway.protocol.client_tools import CLIENT_TOOLS
from gateway.protocol.errors import InvalidRequest

_MCP = "mcp"
_WEB_SEARCH = "web_search"
# Tools that a choice means by their names; others have only a type.
_NAMED = ("function", "custom")
# The beginnings of types that a choice may word in several ways.
_FAMILIES = (_WEB_SEARCH, "computer")


class NotOffered(InvalidRequest):
    """A choice that is well formed asks for a tool that is not there; more tools could still bring it."""


class Offered(Struct, frozen=True):
    """One function tool for the engine, with what the client knows it by.

    Attributes:
        function: the tool as the engine gets it.
        name: its own name.
        group: its namespace, or the `server_label` of its server; None without.
        kind: `function`, `custom`, another declared type, or `mcp` or `web_search` for a tool the gateway runs.
    """

    function: dict[str, Any]
    name: str
    group: str | None = None
    kind: str = "function"


class Offer(Struct, frozen=True):
    """What an inference is offered.

    Attributes:
        tools: function tools.
        choice: `tool_choice`, None without tools.
    """

    tools: list[dict[str, Any]]
    choice: Any

    @property
    def names(self) -> frozenset[str]:
        """The names of the tools."""
        return frozenset(tool["name"] for tool in self.tools)

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
        NotOffered: it requires a tool of the client's that is not offered.
        InvalidRequest: it is malformed, or requires what no client runs and this gateway does not.
    """
    every = [tool.function for tool in offered]
    if choice is None or choice in ("auto", "none"):
        return _same(every, choice or "auto")
    if choice == "required":
        if not every and not pending:
            raise _miss("requires a tool call, but no tool is offered that this gateway can carry", "tool_choice")
        return _first(every, choice, every)
    if not isinstance(choice, dict):
        raise _refuse('must be "none", "auto", "required" or an object', "tool_choice")
    kind = choice.get("type")
    if not isinstance(kind, str):
        raise _refuse("must have a type, which is a string", "tool_choice.type")
    if kind == "allowed_tools":
        return _allow(offered, choice, pending=pending)
    if kind in _NAMED:
        return _first(every, {"type": "function", "name": _find_name(offered, choice)}, every)
    wanted = [tool for tool in offered if _means(choice, tool)]
    if not wanted and not (pending and _family(kind) in (_MCP, _WEB_SEARCH)):
        if kind in CLIENT_TOOLS:
            raise _miss(f"names a tool of type '{kind}', which is not among the tools", "tool_choice")
        raise _refuse(_describe_hosted(choice), "tool_choice")
    if len(wanted) == 1:
        return _first(every, {"type": "function", "name": wanted[0].function["name"]}, every)
    return _first([tool.function for tool in wanted], "required", every)


def _describe_hosted(choice: dict[str, Any]) -> str:
    kind, label = choice.get("type"), choice.get("server_label")
    if _family(kind) == _MCP:
        return f"requires a tool of the MCP server '{str(label)[:64]}', of which none like that is offered"
    return f"requires a hosted tool of type '{str(kind)[:64]}', which this gateway cannot run or the request lacks"


def _find_name(offered: Sequence[Offered], choice: dict[str, Any]) -> str:
    name, namespace = choice.get("name"), choice.get("namespace")
    for tool in offered:
        if (tool.name, tool.group) == (name, namespace) and _means(choice, tool):
            return str(tool.function["name"])
    refuse = _miss if isinstance(name, str) and name else _refuse
    raise refuse(f"names the tool '{str(name)[:64]}', which is not among the tools", "tool_choice.name")


def _allow(offered: Sequence[Offered], choice: dict[str, Any], *, pending: bool) -> Offers:
    mode, listed = choice.get("mode", "auto"), choice.get("tools")
    if mode not in ("auto", "required") or not isinstance(listed, list):
        raise _refuse('of type allowed_tools needs a mode ("auto" or "required") and a list of tools', "tool_choice")
    entries = [entry for entry in listed if isinstance(entry, dict)]
    allowed = [tool.function for tool in offered if any(_means(entry, tool) for entry in entries)]
    if mode == "required" and not allowed and not pending:
        raise _miss("requires one of the allowed tools, but none of them is offered", "tool_choice.tools")
    return _first(allowed, mode, allowed)


def _means(entry: dict[str, Any], tool: Offered) -> bool:
    """Whether a choice, or an entry of its list, means a tool; the name of a namespace means all that is in it."""
    kind, name = entry.get("type"), entry.get("name")
    if tool.kind in _NAMED:
        typed = kind in _NAMED or _family(kind) in (_MCP, _WEB_SEARCH)
        return (kind == tool.kind or not typed) and isinstance(name, str) and name in (tool.name, tool.group)
    if tool.kind == _MCP and entry.get("server_label") != tool.group:
        return False
    return _family(kind) == _family(tool.kind) and name in (None, tool.name)


def _family(kind: Any) -> Any:
    return next((family for family in _FAMILIES if isinstance(kind, str) and kind.startswith(family)), kind)


def _same(tools: list[dict[str, Any]], choice: Any) -> Offers:
    offer = Offer(tools, choice if tools else None)
    return Offers(offer, offer)


def _first(tools: list[dict[str, Any]], choice: Any, later: list[dict[str, Any]]) -> Offers:
    return Offers(Offer(tools, choice if tools else None), Offer(later, "auto" if later else None))


def _refuse(what: str, param: str) -> InvalidRequest:
    return InvalidRequest(f"'tool_choice' {what}.", code="invalid_value", param=param)


def _miss(what: str, param: str) -> NotOffered:
    return NotOffered(f"'tool_choice' {what}.", code="invalid_value", param=param)
