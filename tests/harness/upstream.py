"""A scripted inference server on raw sockets, in a thread of its own, so that every byte and every hang-up is ours.

Each script is a coroutine registered under a model name; the gateway forwards the model, so it selects the script
without any side channel. Tests read `Upstream.requests` afterwards.
"""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

_MODELS = {"object": "list", "data": [{"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}]}


@dataclass
class Request:
    """One call as it arrived, with what became of it.

    Attributes:
        gone_at: monotonic seconds at which the caller hung up before the script was done, or None.
        left: set once the caller hung up before the script was done.
        finished: the script ran to its end; read it once `ended` is set.
        ended: set when the script is over, whichever way.
    """

    path: str
    query: str
    headers: dict[str, str]
    raw: bytes
    gone_at: float | None = None
    finished: bool = False
    left: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    def seconds_to_notice(self, since: float, timeout: float = 20.0) -> float:
        """Return how long after `since` the caller hung up; fails when it never did."""
        assert self.left.wait(timeout), f"the upstream call still ran {timeout} s after the client had left"
        assert self.gone_at is not None
        return self.gone_at - since


class Reply:
    """Writes one HTTP answer piece by piece; every `send` is one HTTP chunk."""

    def __init__(self, writer: asyncio.StreamWriter, request: Request) -> None:
        self._writer = writer
        self._chunked = False
        self.request = request

    async def head(
        self, status: int = 200, content_type: str = "text/event-stream", length: int | None = None, **headers: str
    ) -> None:
        """Write the status line and the headers; a body of unknown length is chunked."""
        self._chunked = length is None
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = [f"HTTP/1.1 {status} Scripted", f"Content-Type: {content_type}", framing]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        await self._writer.drain()

    async def send(self, data: bytes) -> None:
        """Write one piece of the body."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        await self._writer.drain()

    async def end(self) -> None:
        """Write the clean end of a chunked body."""
        if self._chunked:
            self._writer.write(b"0\r\n\r\n")
            await self._writer.drain()

    async def whole(
        self, body: bytes, status: int = 200, content_type: str = "application/json", **headers: str
    ) -> None:
        """Write a complete answer of known length."""
        await self.head(status, content_type, len(body), **headers)
        await self.send(body)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        """Write a complete JSON answer."""
        await self.whole(json.dumps(value, ensure_ascii=False).encode(), status, **headers)

    async def stream(self, *pieces: bytes) -> None:
        """Write a complete event stream, one HTTP chunk per piece."""
        await self.head()
        for piece in pieces:
            await self.send(piece)
        await self.end()

    def cut(self) -> None:
        """Close the connection after what was written so far, without an end of the body."""
        self._writer.close()


Script = Callable[[Request, Reply], Awaitable[None]]


class Upstream:
    """The server; use it as a context manager.

    Args:
        version: what `GET /version` answers; None answers 404, as servers other than vLLM do.
        port: listening port, 0 for any free one.
    """

    def __init__(self, version: str | None = "0.32.0", port: int = 0) -> None:
        self.requests: list[Request] = []
        self._scripts: dict[str, Script] = {}
        self._fallback: Script | None = None
        self._routes: dict[str, Script] = {}
        self._version = version
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-upstream", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, model: str, script: Script) -> str:
        """Answer calls for `model` with `script`; returns the model's name."""
        self._scripts[model] = script
        return model

    def otherwise(self, script: Script) -> None:
        """Answer calls for any other model with `script`."""
        self._fallback = script

    def route(self, path: str, script: Script) -> None:
        """Answer calls of another path with `script`, whatever they hold."""
        self._routes[path] = script

    @property
    def open_calls(self) -> int:
        """Calls whose script still runs."""
        return sum(not request.ended.is_set() for request in list(self.requests))

    def calls(self, model: str) -> list[Request]:
        """Return the calls for one model in the order of arrival."""
        return [request for request in list(self.requests) if request.body.get("model") == model]

    def await_call(self, model: str, timeout: float = 20.0) -> Request:
        """Return the first call for `model`, waiting for it to arrive."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if found := self.calls(model):
                return found[0]
            time.sleep(0.005)
        raise AssertionError(f"no call for {model} reached the upstream within {timeout} s")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while not writer.is_closing() and (request := await _read_request(reader)) is not None:
                await self._answer(request, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the gateway dropped the connection, or the server stops
        finally:
            writer.close()
            self._connections.discard(task)

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reply = Reply(writer, request)
        if request.path == "/health":
            await reply.whole(b"")
        elif request.path == "/version" and self._version is not None:
            await reply.json({"version": self._version})
        elif request.path == "/v1/models":
            await reply.json(_MODELS)
        elif request.path == "/v1/responses":
            self.requests.append(request)
            script = self._scripts.get(request.body.get("model", ""), self._fallback)
            if script is None:
                await reply.json({"error": {"message": "no such model", "type": "NotFoundError", "code": 404}}, 404)
            else:
                await self._play(script, request, reply, reader)
        elif request.path in self._routes:
            self.requests.append(request)
            await self._play(self._routes[request.path], request, reply, reader)
        else:
            await reply.json({"detail": "Not Found"}, 404)

    async def _play(self, script: Script, request: Request, reply: Reply, reader: asyncio.StreamReader) -> None:
        """Run the script until it ends or the caller hangs up."""
        playing = asyncio.ensure_future(script(request, reply))
        hangup = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({playing, hangup}, return_when=asyncio.FIRST_COMPLETED)
            # A script that is in the middle of a send may notice first.
            if not playing.done() or isinstance(playing.exception(), ConnectionError):
                request.gone_at = time.monotonic()
                request.left.set()
        finally:
            for task in (playing, hangup):
                if not task.done():
                    task.cancel()
            await asyncio.gather(playing, hangup, return_exceptions=True)
        request.finished = not playing.cancelled() and playing.exception() is None
        request.ended.set()
        if not request.finished:
            raise ConnectionResetError


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read one request with its whole body, or None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path, _, query = first.split(" ")[1].partition("?")
    return Request(path=path, query=query, headers=headers, raw=body)
