"""What a request's `tools` and `tool_choice` become for the engine."""

import re
from typing import Any

from msgspec import Struct

from gateway.protocol.carriage import Carriage, upstream_name
from gateway.protocol.errors import InvalidRequest

# What a header and a log line show of a caller's word.
_MAX_NAMED = 16
_NO_WORD = re.compile(r"[^A-Za-z0-9_-]")


class Toolset(Struct, frozen=True, kw_only=True):
    """The tools of one request.

    Attributes:
        upstream: function tools to offer the engine.
        choice: `tool_choice` for the engine, None when no tools are offered.
        carriage: names of carried tools, for the way back.
        unsupported: types of hosted tools that were left out, in letters, digits, `-` and `_`.
        echo: the tools as the response object shows them.
    """

    upstream: list[dict[str, Any]]
    choice: Any
    carriage: Carriage
    unsupported: tuple[str, ...]

    def name_unsupported(self) -> str:
        """Return the types that were left out, as one text; of very many only the first."""
        return ", ".join(self.unsupported[:_MAX_NAMED])

    echo: list[dict[str, Any]]


class _Offer:
    """Collects function tools with the name and namespace the client knows them by."""

    def __init__(self) -> None:
        self.carriage = Carriage()
        self.unsupported: dict[str, None] = {}
        self.tools: list[tuple[dict[str, Any], str, str | None]] = []
        self._names: set[str] = set()

    def add(self, tool: Any, path: str, namespace: str | None = None) -> None:
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str) or not tool["type"]:
            raise InvalidRequest(f"'{path}' must be an object with a type.", code="invalid_type", param=path)
        kind = tool["type"]
        if kind == "namespace" and namespace is None:
            self._add_namespace(tool, path)
        elif kind in ("function", "custom"):
            self._add_function(tool, path, namespace)
        else:
            self.unsupported[_NO_WORD.sub("", kind[:64]) or "unnamed"] = None

    def _add_namespace(self, tool: dict[str, Any], path: str) -> None:
        name, members = tool.get("name"), tool.get("tools")
        if not isinstance(name, str) or not name or not isinstance(members, list):
            raise InvalidRequest(
                f"'{path}' must have a name and a list of tools.", code="invalid_type", param=f"{path}.name"
            )
        for index, member in enumerate(members):
            self.add(member, f"{path}.tools[{index}]", name)

    def _add_function(self, tool: dict[str, Any], path: str, namespace: str | None) -> None:
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidRequest(
                f"'{path}.name' must be a non-empty string.", code="invalid_type", param=f"{path}.name"
            )
        carried = self.carriage.declare(tool, namespace)
        if carried["name"] in self._names:
            raise InvalidRequest(
                f"'{path}.name' repeats the tool name '{carried['name'][:64]}'.",
                code="invalid_value",
                param=f"{path}.name",
            )
        self._names.add(carried["name"])
        self.tools.append((carried, name, namespace))


def build_toolset(tools: list[Any] | None, choice: Any, *, max_tools: int) -> Toolset:
    """Return the engine's tools and choice; hosted tools the gateway cannot run are left out and named.

    Raises:
        InvalidRequest: a malformed tool or choice, or a choice that requires a tool that is not offered.
    """
    if not tools and choice in (None, "auto", "none"):
        return Toolset(upstream=[], choice=None, carriage=Carriage(), unsupported=(), echo=[])
    given = tools or []
    count = len(given) + sum(map(_count_members, given))
    if count > max_tools:
        raise InvalidRequest(
            f"'tools' has {count} entries, those inside namespaces included; at most {max_tools} are accepted.",
            code="array_above_max_length",
            bound="responses.max_tools",
            param="tools",
        )
    offer = _Offer()
    for index, tool in enumerate(given):
        offer.add(tool, f"tools[{index}]")
    offered, upstream_choice = _choose(offer, choice)
    return Toolset(
        upstream=offered,
        choice=upstream_choice if offered else None,
        carriage=offer.carriage,
        unsupported=tuple(offer.unsupported),
        echo=[_echo(tool) for tool in given],
    )


def _count_members(tool: Any) -> int:
    members = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
    return len(members) if isinstance(members, list) else 0


def _choose(offer: _Offer, choice: Any) -> tuple[list[dict[str, Any]], Any]:
    every = [tool for tool, _, _ in offer.tools]
    if choice is None or choice in ("auto", "none"):
        return every, choice or "auto"
    if choice == "required":
        if not every:
            raise _refuse("requires a tool call, but no tool is offered that this gateway can carry", "tool_choice")
        return every, choice
    if not isinstance(choice, dict):
        raise _refuse('must be "none", "auto", "required" or an object', "tool_choice")
    kind = choice.get("type")
    if kind == "allowed_tools":
        return _allow(offer, choice)
    if kind not in ("function", "custom"):
        raise _refuse(
            f"requires a hosted tool of type '{str(kind)[:64]}', which this gateway cannot run", "tool_choice"
        )
    name, namespace = choice.get("name"), choice.get("namespace")
    upstream = upstream_name(str(name), namespace if isinstance(namespace, str) else None)
    if not any(tool["name"] == upstream for tool in every):
        raise _refuse(f"names the tool '{str(name)[:64]}', which is not among the tools", "tool_choice.name")
    return every, {"type": "function", "name": upstream}


def _allow(offer: _Offer, choice: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
    mode, listed = choice.get("mode", "auto"), choice.get("tools")
    if mode not in ("auto", "required") or not isinstance(listed, list):
        raise _refuse('of type allowed_tools needs a mode ("auto" or "required") and a list of tools', "tool_choice")
    names = {entry["name"] for entry in listed if isinstance(entry, dict) and isinstance(entry.get("name"), str)}
    allowed = [tool for tool, name, namespace in offer.tools if name in names or namespace in names]
    if mode == "required" and not allowed:
        raise _refuse("requires one of the allowed tools, but none of them is offered", "tool_choice.tools")
    return allowed, mode


def _echo(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


def _refuse(what: str, param: str) -> InvalidRequest:
    return InvalidRequest(f"'tool_choice' {what}.", code="invalid_value", param=param)
