"""Tools that do what a test says, behind the port that the real ones are behind."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.ports import (
    ApprovedCall,
    HostedCall,
    HostedResult,
    HostedTool,
    Listed,
    ToolContext,
)
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.hosted import name_function

Json = dict[str, Any]
Behaviour = Callable[[HostedCall], Awaitable[HostedResult]]

MCP = {"type": "mcp", "server_label": "s", "server_url": "https://mcp.example/", "require_approval": "never"}
SEARCH = {"type": "web_search"}


def tool(name: str, label: str = "s", kind: str = "mcp_call") -> HostedTool:
    """A hosted tool with one text parameter."""
    function = {
        "type": "function",
        "name": name_function(label, name) if label else name,
        "description": f"Does {name}.",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    return HostedTool(function=function, kind=kind, name=name, label=label)


def returned(output: str, **fields: Any) -> HostedResult:
    """What a call of an MCP server's tool returns."""
    size = len(output.encode())
    return HostedResult(output=output, size=size, fields={"status": "completed", "output": output, **fields})


def listed(*tools: HostedTool, size: int | None = None) -> Listed:
    """What a server lists."""
    shown = [{"name": tool.name, "input_schema": tool.function["parameters"]} for tool in tools]
    return Listed(tools=shown, offered=tools, size=len(json.dumps(shown)) if size is None else size)


@dataclass
class ScriptedListing:
    """A server that lists what it is told to, once it may."""

    label: str
    outcome: Listed
    may: asyncio.Event | None = None
    cancelled: bool = False

    async def fetch(self, headers: Mapping[str, str]) -> Listed:
        try:
            if self.may is not None:
                await self.may.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.outcome


@dataclass
class ScriptedTools:
    """Runs `mcp` and `web_search`.

    Attributes:
        behaviours: what a call of a tool does, by the tool's own name; others answer with their arguments.
        known: tools that are offered without asking.
        servers: those that are asked first.
        decisions: what the client decided about.
        calls: what was run, in the order it began.
        contexts: what each toolkit was opened with.
        closed: how many toolkits were closed.
        cancelled: names of the tools whose calls were cancelled.
    """

    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    known: Sequence[HostedTool] = ()
    servers: Sequence[ScriptedListing] = ()
    decisions: Sequence[ApprovedCall] = ()
    calls: list[HostedCall] = field(default_factory=list)
    contexts: list[ToolContext] = field(default_factory=list)
    closed: int = 0
    cancelled: list[str] = field(default_factory=list)

    def runs(self, kind: str) -> bool:
        return kind == "mcp" or kind.startswith("web_search")

    def check(self, declared: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        for path, tool in declared:
            if tool["type"] == "mcp" and not tool.get("server_label"):
                raise InvalidRequest(
                    "A label is missing.", code="missing_required_parameter", param=f"{path}.server_label"
                )

    def open(self, declared: Sequence[Mapping[str, Any]], context: ToolContext) -> "ScriptedTools":
        self.contexts.append(context)
        return self

    def show(self, tool: Mapping[str, Any]) -> Json:
        return {name: value for name, value in tool.items() if name != "authorization"}

    @property
    def offered(self) -> Sequence[HostedTool]:
        return self.known

    @property
    def listings(self) -> Sequence[ScriptedListing]:
        return self.servers

    @property
    def decided(self) -> Sequence[ApprovedCall]:
        return self.decisions

    async def run(self, call: HostedCall) -> HostedResult:
        self.calls.append(call)
        behave = self.behaviours.get(call.tool.name)
        try:
            return await behave(call) if behave is not None else returned(call.arguments)
        except asyncio.CancelledError:
            self.cancelled.append(call.tool.name)
            raise

    async def close(self) -> None:
        self.closed += 1


def when(event: asyncio.Event, output: str) -> Behaviour:
    """A call that returns once it may."""

    async def behave(_: HostedCall) -> HostedResult:
        await event.wait()
        return returned(output)

    return behave


def always(result: HostedResult) -> Behaviour:
    """A call that returns that."""

    async def behave(_: HostedCall) -> HostedResult:
        return result

    return behave
