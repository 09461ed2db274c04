"""Carries tools an engine does not know as function tools, out and back.

A custom tool becomes a function with one string parameter, `input`. The tools of a namespace become functions named
`<namespace>__<tool>`, and tools that the API types and the client runs become what `client_tools` says. Calls come
back under the carried name and are turned into what the client declared; history goes out under the same names.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from gateway.protocol import codec
from gateway.protocol.client_tool import ClientTool, read_arguments
from gateway.protocol.client_tools import CLIENT_TOOLS

MAX_NAME = 64
_DIGEST = 12

_OUTPUTS: dict[str, ClientTool] = {tool.output: tool for tool in CLIENT_TOOLS.values()}
# The types of tools by the item that a call of theirs becomes.
_CALLS: dict[str, list[str]] = {
    tool.call: [kind for kind, other in CLIENT_TOOLS.items() if other.call == tool.call]
    for tool in CLIENT_TOOLS.values()
}
_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as free text."}},
    "required": ["input"],
    "additionalProperties": False,
}
# Items that engines know as they are, and those that are no part of what a model reads.
_PLAIN = frozenset({"message", "reasoning", "function_call_output"})
_SILENT = frozenset({"additional_tools"})
# Without a call id a search is none of the model's.
_SEARCHES = frozenset({"tool_search_call", "tool_search_output"})


class Carried(Struct, frozen=True):
    """What a function name on the engine's side stands for.

    Attributes:
        name: the tool's own name; for a tool that has none, its type.
        namespace: its namespace, or None.
        kind: `function`, `custom`, or a type of `CLIENT_TOOLS`.
    """

    name: str
    namespace: str | None = None
    kind: str = "function"


class Carriage:
    """The mapping of one request; history and answers go through the same one."""

    __slots__ = ("_by_name", "_by_upstream", "_upstream")

    def __init__(self) -> None:
        self._by_upstream: dict[str, Carried] = {}
        self._upstream: dict[Carried, str] = {}
        # Members of namespaces by their own name, None where two namespaces have one of that name.
        self._by_name: dict[str, Carried | None] = {}

    def declare(self, tool: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
        """Return the function tool that carries a tool, and remember it; of two that want a name the first has it."""
        return self.carry_tool(identify(tool, namespace), tool)

    def carry_tool(self, carried: Carried, tool: dict[str, Any]) -> dict[str, Any]:
        """Do what `declare` does, for a tool of which it is known what it is known by."""
        upstream = self.name_of(carried)
        self._by_upstream[upstream] = carried
        self._upstream[carried] = upstream
        if carried.namespace is not None:
            known = self._by_name.setdefault(carried.name, carried)
            self._by_name[carried.name] = carried if known == carried else None
        if carried.kind == "function":
            plain = tool if "defer_loading" not in tool else {k: v for k, v in tool.items() if k != "defer_loading"}
            return plain if upstream == carried.name else {**plain, "name": upstream}
        description, parameters = _describe_function(tool, carried)
        return {"type": "function", "name": upstream, "description": description, "parameters": parameters}

    def resolve(self, upstream: str) -> Carried:
        """Return what an engine's function name stands for; an undeclared one stands for itself.

        Models sometimes call a namespace's tool by its bare name; that is understood where it can mean one tool only.
        """
        found = self._by_upstream.get(upstream) or self._by_name.get(upstream)
        return found or Carried(upstream)

    def declares(self, upstream: str) -> bool:
        """Whether a declared tool goes by this name on the engine's side, or by its own name within a namespace."""
        return upstream in self._by_upstream or upstream in self._by_name

    def name_of(self, carried: Carried) -> str:
        """Return the name a tool has on the engine's side: at most 64 characters, and no other tool's."""
        known = self._upstream.get(carried)
        if known is not None:
            return known
        name = wanted = upstream_name(carried.name, carried.namespace)
        attempt = 0
        while name in self._by_upstream:
            name = _mark(wanted, f"{carried.kind} {attempt} {wanted}")
            attempt += 1
        return name

    def carry(self, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return input items in the form engines know: calls and outputs of every kind as those of functions."""
        out: list[dict[str, Any]] = []
        for item in items:
            carried = item if item.get("type") in _PLAIN else self._carry(item)
            if carried is not None:
                out.append(carried)
        return out

    def _carry(self, item: dict[str, Any]) -> dict[str, Any] | None:
        kind = str(item.get("type"))
        if kind == "function_call":
            return self._carry_function_call(item)
        if kind == "custom_tool_call":
            tool = Carried(str(item.get("name")), item.get("namespace") or None, "custom")
            return self._call(item, tool, {"input": item.get("input")})
        if kind == "custom_tool_call_output":
            return {**item, "type": "function_call_output"}
        if kind in _SILENT or (kind in _SEARCHES and not item.get("call_id")):
            return None
        if kind in _OUTPUTS:
            told = {**item, "tools": list(self._name_found(item.get("tools")))} if kind in _SEARCHES else item
            return {**_outline(item, "function_call_output"), "output": _OUTPUTS[kind].write_output(told)}
        if kind in _CALLS:
            tool = self._caller_of(kind)
            return self._call(item, tool, CLIENT_TOOLS[tool.kind].write_arguments(item))
        return item

    def _caller_of(self, call: str) -> Carried:
        """Return the tool that a call of history is one of: of two with the same calls the one that is declared."""
        tools = [Carried(kind, None, kind) for kind in _CALLS[call]]
        return next((tool for tool in tools if tool in self._upstream), tools[0])

    def _name_found(self, tools: Any) -> Iterator[dict[str, Any]]:
        """Yield what the model is told of tools that a search found; how they are called stands beside."""
        for tool, namespace in list_tools(tools):
            name = self.name_of(identify(tool, namespace))
            yield {"name": name, **({"description": tool["description"]} if tool.get("description") else {})}

    def _carry_function_call(self, item: dict[str, Any]) -> dict[str, Any]:
        namespace = item.get("namespace") or None
        upstream = self.name_of(Carried(str(item.get("name")), namespace))
        if namespace is None and upstream == item.get("name"):
            return item
        carried = {**item, "name": upstream}
        carried.pop("namespace", None)
        return carried

    def _call(self, item: dict[str, Any], tool: Carried, arguments: Any) -> dict[str, Any]:
        text = codec.encode(arguments).decode()
        return {**_outline(item, "function_call"), "name": self.name_of(tool), "arguments": text}


def identify(tool: dict[str, Any], namespace: str | None = None) -> Carried:
    """Return what a declared tool is known by."""
    kind = str(tool["type"])
    if kind in CLIENT_TOOLS and namespace is None:
        return Carried(kind, None, kind)
    return Carried(str(tool.get("name")), namespace, kind)


def list_tools(tools: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield declared tools with the namespace each is in; what cannot be one is passed over."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            continue
        if tool["type"] == "namespace":
            members = tool.get("tools")
            yield from (
                (member, str(tool.get("name")))
                for member in (members if isinstance(members, list) else ())
                if isinstance(member, dict) and isinstance(member.get("type"), str)
            )
        else:
            yield tool, None


def upstream_name(name: str, namespace: str | None) -> str:
    """Return the function name a tool has on the engine's side, if no other has it: at most 64 characters."""
    joined = name if namespace is None else f"{namespace}__{name}"
    return joined if len(joined) <= MAX_NAME else _mark(joined, joined)


def unwrap_input(arguments: str) -> str:
    """Return the free text inside a carried call's arguments; anything but the agreed object is the input itself."""
    value = read_arguments(arguments)
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        return str(value["input"])
    return value if isinstance(value, str) else arguments


def _mark(text: str, whole: str) -> str:
    """Return the beginning of a name with a mark that only this whole one has."""
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=_DIGEST // 2).hexdigest()
    return f"{text[: MAX_NAME - _DIGEST - 1]}_{digest}"


def _outline(item: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return what a call or an output has in every form."""
    outline = {"type": kind, "call_id": item.get("call_id")}
    return {**outline, "id": item["id"]} if item.get("id") else outline


def _describe_function(tool: dict[str, Any], carried: Carried) -> tuple[str, Any]:
    """Return description and parameters of the function that carries a tool which is none."""
    if carried.kind in CLIENT_TOOLS:
        return CLIENT_TOOLS[carried.kind].describe(tool)
    return _describe_custom(tool), _INPUT


def _describe_custom(tool: dict[str, Any]) -> str:
    description = str(tool.get("description") or "")
    form = tool.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        rule = f"The input must match this {form.get('syntax', '')} grammar:\n{form.get('definition', '')}"
        return f"{description}\n\n{rule}" if description else rule
    return description
