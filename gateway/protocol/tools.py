"""What a request's `tools` and `tool_choice` become for the engine."""

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

from msgspec import Struct

from gateway.protocol.carriage import Carriage, Carried, identify
from gateway.protocol.choice import NotOffered, Offered, Offers, choose
from gateway.protocol.client_tools import find_client_tool, read_foreign_tool
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.hosted import HostedTool

# What a header and a log line show of a caller's word.
_MAX_NAMED = 16
_NO_WORD = re.compile(r"[^A-Za-z0-9_-]")
_HOSTED_BY_KIND = {"mcp_call": "mcp", "mcp_approval_request": "mcp", "web_search_call": "web_search"}
# Items of the input that make further tools known.
_LOADING = frozenset({"tool_search_output", "additional_tools"})
_SEARCH = Carried("tool_search", None, "tool_search")
_RANK = attrgetter("rank")
_NOTHING = choose((), None)


class HostedTypes(Protocol):
    """What is known of the tools that the gateway runs itself when a request is read."""

    def runs(self, kind: str) -> bool:
        """Whether the gateway runs tools of this declared type."""
        ...

    def check(self, declared: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Check the declarations of one request, each with its path.

        Raises:
            InvalidRequest: names the parameter at fault.
        """
        ...

    def show(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return a declaration as the response object echoes it."""
        ...


class Toolset(Struct, frozen=True, kw_only=True):
    """The tools of one request.

    Attributes:
        offered: function tools for the engine, those of the gateway's own aside.
        offers: what the engine is offered; where there are hosted tools, only `complete` knows.
        carriage: names of carried tools, for the way back.
        unsupported: types of hosted tools that were left out, in letters, digits, `-` and `_`.
        echo: the tools as the response object shows them.
        hosted: declarations of tools that the gateway runs.
        given: `tool_choice` as the caller gave it.
        unmet: it asks for what is not offered yet, and the history may still bring it.
    """

    offered: Sequence[Offered]
    offers: Offers
    carriage: Carriage
    unsupported: tuple[str, ...]
    echo: list[dict[str, Any]]
    hosted: Sequence[Mapping[str, Any]] = ()
    given: Any = None
    unmet: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The names that the engine knows the function tools by, those of the gateway's own aside."""
        return frozenset(tool.function["name"] for tool in self.offered)

    def name_unsupported(self) -> str:
        """Return the types that were left out, as one text; of very many only the first."""
        return ", ".join(self.unsupported[:_MAX_NAMED])

    def complete(self, hosted: Sequence[HostedTool]) -> Offers:
        """Return what the engine is offered now that the gateway's own tools are known.

        Raises:
            InvalidRequest: `tool_choice` requires a tool that is not offered.
        """
        own = [Offered(tool.function, tool.name, tool.label or None, _HOSTED_BY_KIND[tool.kind]) for tool in hosted]
        return choose([*self.offered, *own], self.given)


class _Declared(Struct):
    """A tool of the client's, as it was declared.

    Attributes:
        identity: what it is known by.
        tool: the declaration.
        kind: its type.
        rank: when it is named: functions keep their own names, whatever else would have one of them, and what is first
            heard of in the input changes no name.
        loaded: it came with the input, where deferring a tool has no meaning any more.
        function: what carries it.
    """

    identity: Carried
    tool: dict[str, Any]
    kind: str
    rank: int
    loaded: bool
    function: dict[str, Any] = {}

    @property
    def waits(self) -> bool:
        """Whether it is offered once a search has found it."""
        return self.tool.get("defer_loading") is True


class _Offer:
    """Collects function tools with the name and namespace the client knows them by."""

    def __init__(self, types: HostedTypes | None) -> None:
        self.carriage = Carriage()
        self.unsupported: dict[str, None] = {}
        self.hosted: list[tuple[str, dict[str, Any]]] = []
        self.types = types
        self._declared: dict[Carried, _Declared] = {}
        self._namespaces: dict[str, Any] = {}

    def add(self, tool: Any, path: str, namespace: str | None = None, *, late: bool = False) -> None:
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str) or not tool["type"]:
            raise InvalidRequest(f"'{path}' must be an object with a type.", code="invalid_type", param=path)
        kind = tool["type"]
        if kind == "namespace" and namespace is None:
            self._add_namespace(tool, path, late=late)
        elif kind in ("function", "custom"):
            self._add_function(tool, path, namespace, late=late)
        elif self._is_hosted(kind) and namespace is None and not late:
            self.hosted.append((path, tool))
        elif namespace is None and find_client_tool(tool) is not None:
            self._declare(identify(tool), tool, path, late=late)
        elif namespace is None and (function := read_foreign_tool(tool)) is not None:
            self._add_function(function, path, None, late=late, kind=kind)
        else:
            self.unsupported[_NO_WORD.sub("", kind[:64]) or "unnamed"] = None

    def _add_namespace(self, tool: dict[str, Any], path: str, *, late: bool) -> None:
        name, members = tool.get("name"), tool.get("tools")
        if not isinstance(name, str) or not name or not isinstance(members, list):
            raise InvalidRequest(
                f"'{path}' must have a name and a list of tools.", code="invalid_type", param=f"{path}.name"
            )
        self._namespaces[name] = tool.get("description")
        for index, member in enumerate(members):
            self.add(member, f"{path}.tools[{index}]", name, late=late)

    def _add_function(
        self, tool: dict[str, Any], path: str, namespace: str | None, *, late: bool, kind: str | None = None
    ) -> None:
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidRequest(
                f"'{path}.name' must be a non-empty string.", code="invalid_type", param=f"{path}.name"
            )
        self._declare(Carried(name, namespace, tool["type"]), tool, path, late=late, kind=kind)

    def _declare(
        self, identity: Carried, tool: dict[str, Any], path: str, *, late: bool, kind: str | None = None
    ) -> None:
        known = self._declared.get(identity)
        if known is None:
            plain = identity.kind == "function" and identity.namespace is None
            rank = 2 if late else 0 if plain else 1
            self._declared[identity] = _Declared(identity, tool, kind or identity.kind, rank, late)
        elif late:
            known.tool, known.loaded = tool, True
        else:
            raise InvalidRequest(
                f"'{path}.name' repeats the tool name '{identity.name[:64]}'.",
                code="invalid_value",
                param=f"{path}.name",
            )

    def close(self) -> list[Offered]:
        """Name every tool and return those that the engine is offered."""
        tools = list(self._declared.values())
        for one in sorted(tools, key=_RANK):
            one.function = self.carriage.carry_tool(one.identity, one.tool)
        search = self._declared.get(_SEARCH)
        if search is not None and any(one.waits for one in tools):
            search.function = self._advertise(search.function, [one for one in tools if one.waits])
            tools = [one for one in tools if one.loaded or not one.waits]
        return [Offered(one.function, one.identity.name, one.identity.namespace, one.kind) for one in tools]

    def _advertise(self, function: dict[str, Any], deferred: list[_Declared]) -> dict[str, Any]:
        """Return the function that finds tools with a word about each that it can find, or about its namespace."""
        lines: dict[str, Any] = {}
        for one in deferred:
            namespace = one.identity.namespace
            about = one.tool.get("description") if namespace is None else self._namespaces[namespace]
            lines[namespace or one.identity.name] = about
        listed = "".join(f"\n- {name}: {about}" if about else f"\n- {name}" for name, about in lines.items())
        return {**function, "description": f"{function['description']}\n\nThere are tools for:{listed}"}

    def echo(self, tool: dict[str, Any]) -> dict[str, Any]:
        if self.types is not None and self._is_hosted(tool["type"]):
            return self.types.show(tool)
        return _echo(tool)

    def _is_hosted(self, kind: str) -> bool:
        return self.types is not None and self.types.runs(kind)


def build_toolset(
    tools: list[Any] | None,
    choice: Any,
    *,
    max_tools: int,
    types: HostedTypes | None = None,
    loaded: Sequence[tuple[str, list[Any]]] = (),
    continued: bool = False,
) -> Toolset:
    """Return the engine's tools and choice; hosted tools the gateway cannot run are left out and named.

    Args:
        tools: as the caller gave them.
        choice: `tool_choice` likewise.
        max_tools: most entries, those inside namespaces included.
        types: the tools that the gateway runs itself, if there are any.
        loaded: further tools that items of the input brought, with the path of each list, oldest first.
        continued: a history that is not known yet may bring further ones, so that a choice can still be met.

    Raises:
        InvalidRequest: a malformed tool or choice, or a choice that requires a tool that is not offered.
    """
    if not tools and not loaded and choice in (None, "auto", "none"):
        return Toolset(offered=(), offers=_NOTHING, carriage=Carriage(), unsupported=(), echo=[])
    given = tools or []
    _check_count(given, loaded, max_tools)
    offer = _Offer(types)
    for index, tool in enumerate(given):
        offer.add(tool, f"tools[{index}]")
    for path, found in loaded:
        for index, tool in enumerate(found):
            offer.add(tool, f"{path}[{index}]", late=True)
    if types is not None and offer.hosted:
        types.check(offer.hosted)
    offered = offer.close()
    unmet = False
    try:
        offers = choose(offered, choice, pending=bool(offer.hosted))
    except NotOffered:
        if not continued:
            raise
        offers, unmet = _NOTHING, True
    return Toolset(
        offered=offered,
        offers=offers,
        carriage=offer.carriage,
        unsupported=tuple(offer.unsupported),
        echo=[offer.echo(tool) for tool in given],
        hosted=[tool for _, tool in offer.hosted],
        given=choice,
        unmet=unmet,
    )


def list_loaded(items: Sequence[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Return the lists of tools that items of the input bring, each with its path."""
    loaded = []
    for index, item in enumerate(items):
        if item.get("type") in _LOADING and isinstance(item.get("tools"), list):
            loaded.append((f"input[{index}].tools", item["tools"]))
    return loaded


def _check_count(given: list[Any], loaded: Sequence[tuple[str, list[Any]]], most: int) -> None:
    every = [*given, *(tool for _, found in loaded for tool in found)]
    count = len(every) + sum(map(_count_members, every))
    if count > most:
        besides = "and what the input loads " if loaded else ""
        raise InvalidRequest(
            f"'tools' has {count} entries, those inside namespaces {besides}included; at most {most} are accepted.",
            code="array_above_max_length",
            bound="responses.max_tools",
            param="tools",
        )


def _count_members(tool: Any) -> int:
    members = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
    return len(members) if isinstance(members, list) else 0


def _echo(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}
