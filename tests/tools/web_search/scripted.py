"""A search provider that answers as a test says, and remembers what it was asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

KEY = "s3cret-key"
Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(document: object, status: str = "200 OK", headers: str = "") -> Reply:
    """Reply with JSON, or with bytes as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()

    async def reply(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return reply


def results(*names: str) -> dict:
    """The JSON of a provider that found a page for each name."""
    return {
        "results": [
            {"url": f"https://{name}.example/", "title": f"Page {name}", "content": f"About {name}."} for name in names
        ]
    }


@dataclass
class Asked:
    """One request that the provider got."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedProvider:
    """Replies with `replies` by the query's text, else with `reply`."""

    url: str = ""
    reply: Reply = field(default_factory=lambda: answer(results("one", "two")))
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    sent: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await self._read(reader)
                self.asked.append(asked)
                words = asked.query.get("q", [""])[0] or (json.loads(asked.body)["query"] if asked.body else "")
                await self.replies.get(words, self.reply)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        parts = urlsplit(target)
        return Asked(method, parts.path, parse_qs(parts.query), headers, body)
