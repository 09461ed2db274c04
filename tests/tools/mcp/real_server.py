"""An MCP server made with the SDK, as a process: `python real_server.py stdio`, or `http PORT`."""

import asyncio
import os
import signal
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

server = MCPServer("real", instructions="For tests.", log_level="ERROR")
calls: list[str] = []


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    calls.append("add")
    return a + b


@server.tool(structured_output=False)
def say(text: str) -> str:
    """Return the text."""
    return text


@server.tool(structured_output=False)
def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


@server.tool(structured_output=False)
def draw() -> CallToolResult:
    """Return a picture and words."""
    picture = ImageContent(type="image", data="aGVsbG8=", mime_type="image/png")
    return CallToolResult(content=[TextContent(type="text", text="Look:"), picture])


@server.tool(structured_output=False)
async def wait(ctx: Context) -> str:
    """Report progress for ever."""
    calls.append("waiting")
    try:
        for step in range(10_000):
            await ctx.report_progress(step)
            await asyncio.sleep(0.02)
    except BaseException:
        calls.append("cancelled")
        raise
    return "done"


@server.tool(structured_output=False)
def told() -> str:
    """Return what was called or cancelled."""
    return ",".join(calls)


@server.tool(structured_output=False)
def meta(ctx: Context) -> str:
    """Return what the request's `_meta` holds of a trace."""
    request_meta: Any = ctx.request_context.meta or {}
    found = request_meta if isinstance(request_meta, dict) else request_meta.model_dump()
    return str(found.get("traceparent"))


@server.tool(structured_output=False)
def env() -> str:
    """Return the names of the variables of the process."""
    return ",".join(sorted(os.environ))


@server.tool(structured_output=False)
def header(name: str, ctx: Context) -> str:
    """Return a header of the request."""
    request: Any = ctx.request_context.request
    return str(request.headers.get(name)) if request is not None else ""


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Ask the client for an inference, which it declines."""
    from mcp_types import SamplingMessage

    try:
        await ctx.session.create_message(
            messages=[SamplingMessage(role="user", content=TextContent(type="text", text="hi"))], max_tokens=5
        )
    except Exception as error:
        return f"declined: {error}"
    return "answered"


@server.tool(structured_output=False)
def die() -> str:
    """End the process at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        print("started", file=sys.stderr, flush=True)
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
