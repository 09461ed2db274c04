"""Carries tools an engine does not know as function tools, out and back.

A custom tool becomes a function with one string parameter, `input`. The tools of a namespace become functions named
`<namespace>__<tool>`. Calls come back under the carried name and are turned into what the client declared.
"""

import hashlib
from typing import Any

from msgspec import Struct

from gateway.protocol import codec

MAX_NAME = 64


class Carried(Struct, frozen=True):
    """What a function name on the engine's side stands for.

    Attributes:
        name: the tool's own name.
        namespace: its namespace, or None.
        custom: whether it is a custom tool.
    """

    name: str
    namespace: str | None
    custom: bool


class Carriage:
    """The mapping of one request; history and answers go through the same one."""

    __slots__ = ("_by_name", "_by_upstream")

    def __init__(self) -> None:
        self._by_upstream: dict[str, Carried] = {}
        # Members of namespaces by their own name, None where two namespaces have one of that name.
        self._by_name: dict[str, Carried | None] = {}

    def declare(self, tool: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
        """Return the function tool that carries a function or custom tool, and remember it."""
        name = str(tool["name"])
        custom = tool.get("type") == "custom"
        upstream = upstream_name(name, namespace)
        carried = self._by_upstream[upstream] = Carried(name, namespace, custom)
        if namespace is not None:
            self._by_name[name] = None if name in self._by_name else carried
        if not custom:
            return tool if namespace is None else {**tool, "name": upstream}
        return {
            "type": "function",
            "name": upstream,
            "description": _describe(tool),
            "parameters": {
                "type": "object",
                "properties": {"input": {"type": "string", "description": "The whole input, as free text."}},
                "required": ["input"],
                "additionalProperties": False,
            },
        }

    def resolve(self, upstream: str) -> Carried:
        """Return what an engine's function name stands for; an undeclared one stands for itself.

        Models sometimes call a namespace's tool by its bare name; that is understood where it can mean one tool only.
        """
        found = self._by_upstream.get(upstream) or self._by_name.get(upstream)
        return found or Carried(upstream, None, custom=False)


def upstream_name(name: str, namespace: str | None) -> str:
    """Return the function name a tool has on the engine's side: at most 64 characters, the same every time."""
    if namespace is None:
        return name
    joined = f"{namespace}__{name}"
    if len(joined) <= MAX_NAME:
        return joined
    digest = hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{joined[: MAX_NAME - 13]}_{digest}"


def carry_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an input item in the form engines know: custom calls and outputs as function calls and outputs."""
    kind = item.get("type")
    if kind == "custom_tool_call":
        return {
            "type": "function_call",
            "call_id": item.get("call_id"),
            "name": upstream_name(str(item.get("name")), item.get("namespace")),
            "arguments": codec.encode({"input": item.get("input")}).decode(),
            **({"id": item["id"]} if item.get("id") else {}),
        }
    if kind == "custom_tool_call_output":
        return {**item, "type": "function_call_output"}
    if kind == "function_call" and item.get("namespace"):
        carried = {**item, "name": upstream_name(str(item.get("name")), item.get("namespace"))}
        del carried["namespace"]
        return carried
    return item


def unwrap_input(arguments: str) -> str:
    """Return the free text inside a carried call's arguments; anything but the agreed object is the input itself."""
    try:
        value = codec.decode(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return arguments
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        return str(value["input"])
    return value if isinstance(value, str) else arguments


def _describe(tool: dict[str, Any]) -> str:
    description = str(tool.get("description") or "")
    form = tool.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        rule = f"The input must match this {form.get('syntax', '')} grammar:\n{form.get('definition', '')}"
        return f"{description}\n\n{rule}" if description else rule
    return description
