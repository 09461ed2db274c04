"""What tests of MCP share: a provider with its toolkits, a real server's process, a raw server."""

import asyncio
import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.processes import clean_environment, free_port

from gateway.config.schema import McpConfig, McpServerConfig
from gateway.ports import HostedCall, HostedResult, Listed, ToolContext
from gateway.telemetry.metrics import Metrics
from gateway.tools.mcp.provider import McpTools
from gateway.tools.mcp.selection import stand_in

Json = dict[str, Any]


class RealServer:
    """A process of `real_server.py` that serves HTTP."""

    def __init__(self, script: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._script = script
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        command = [sys.executable, str(self._script), "http", str(self.port)]
        self._process = subprocess.Popen(command, env=clean_environment(), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=1)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


class RawServer:
    """Answers MCP over HTTP as a test says.

    Attributes:
        answers: by method, what is done with the writer for a message; the handshake works by itself.
        messages: what was sent to it, with the headers.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Json, asyncio.StreamWriter], Awaitable[None]]] = {}
        self.messages: list[tuple[Json, dict[str, str]]] = []
        self.methods: list[str] = []
        self.url = ""
        self._tasks: set[asyncio.Task] = set()

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"https://localhost:{port}/mcp" if tls else f"http://127.0.0.1:{port}/mcp"

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def list_tools(self, *tools: Json, **more: Any) -> None:
        """List these."""

        async def answer(message: Json, writer: asyncio.StreamWriter) -> None:
            await reply(writer, message, {"tools": list(tools), **more})

        self.answers["tools/list"] = answer

    def return_(self, result: Json) -> None:
        """Return this from every tool."""

        async def answer(message: Json, writer: asyncio.StreamWriter) -> None:
            await reply(writer, message, result)

        self.answers["tools/call"] = answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._answer(reader, writer)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if first.partition(" ")[0] != "POST":
            self.methods.append(first.partition(" ")[0])
            await send(writer, 405, b"")
            return
        message = json.loads(body)
        self.messages.append((message, headers))
        method = message.get("method", "")
        self.methods.append(method)
        if method in self.answers:
            await self.answers[method](message, writer)
        elif method == "initialize":
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            await reply(writer, message, result)
        elif "id" in message:
            await reply(writer, message, {})
        else:
            await send(writer, 202, b"")


async def send(writer: asyncio.StreamWriter, status: int, body: bytes, *headers: str) -> None:
    """Send an answer whole."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    await writer.drain()


async def reply(writer: asyncio.StreamWriter, message: Json, result: Json, *headers: str) -> None:
    """Answer a request."""
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    await send(writer, 200, body, "content-type: application/json", *headers)


async def open_stream(writer: asyncio.StreamWriter) -> None:
    """Begin an answer that is an event stream and ends with the connection."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    await writer.drain()


def event(message: Json) -> bytes:
    """Return a message as an event."""
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


class Bench:
    """Providers and toolkits, closed in the end."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._made: list[Any] = []

    def provider(self, servers: Mapping[str, Json] | None = None, **keys: Any) -> McpTools:
        """Return a provider that may call loopback addresses."""
        named = {label: McpServerConfig(**server) for label, server in (servers or {}).items()}
        config = McpConfig(servers=named, **{"allow_private_addresses": True, **keys})
        self._made.append(McpTools(config, self.metrics))
        return self._made[-1]

    def open(self, provider: McpTools, *tools: Json, items: list[Json] | None = None, **context: Any) -> "Kit":
        """Return the toolkit of a response."""
        declared = [{"type": "mcp", "server_label": "docs", "require_approval": "never", **tool} for tool in tools]
        provider.check([(f"tools[{index}]", tool) for index, tool in enumerate(declared)])
        told = {"principal": "local", "response_id": "resp_1", "include": frozenset(), "names": frozenset()}
        history = items or []
        made = Kit(
            provider.open(declared, ToolContext(**{**told, "items": history, "first_new": len(history), **context}))
        )
        self._made.append(made)
        return made

    def count(self, name: str, **labels: str) -> float:
        """Return the value of a metric."""
        return self.metrics.registry.get_sample_value(f"gateway_{name}", labels) or 0

    async def close(self) -> None:
        for one in reversed(self._made):
            await one.close()


class Kit:
    """A toolkit, with short ways to use it."""

    def __init__(self, toolkit: Any) -> None:
        self.toolkit = toolkit

    async def list(self) -> Listed:
        """Fetch the only listing."""
        (listing,) = self.toolkit.listings
        return await listing.fetch({})

    async def call(self, name: str, arguments: Any = None, label: str = "docs", **headers: str) -> HostedResult:
        """Call a tool; arguments that are no text are written as JSON."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        call = HostedCall(item_id="mcp_1", tool=stand_in(label, name), arguments=text, headers=headers)
        return await self.toolkit.run(call)

    async def close(self) -> None:
        await self.toolkit.close()
