"""A server in this process that takes WebSockets, and raw clients with a frame codec of their own."""

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

import uvicorn
from transport.sockets import open_stream, under_tls
from uvicorn.server import ServerState

from gateway.config.schema import ServerConfig, WebSocketConfig
from gateway.transport.protocol import ConnectionProtocol
from gateway.transport.socket import find_socket
from gateway.transport.socket_protocol import SocketProtocol

LONG = 20.0
SHORT = 0.15
CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_MASK = b"\x01\x02\x03\x04"
_SETTINGS = {
    "send_deadline_seconds": LONG,
    "max_message_bytes": 1 << 20,
    "ping_interval_seconds": LONG,
    "pong_timeout_seconds": LONG,
    "close_timeout_seconds": LONG,
}


def upgrade(*headers, key="dGhlIHNhbXBsZSBub25jZQ==", version=13):
    lines = ["GET /v1/responses?a=b HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Version: {version}"] + ([f"Sec-WebSocket-Key: {key}"] if key else [])
    return "\r\n".join([*lines, *headers, "", ""]).encode()


def frame(opcode, payload=b"", *, fin=True, masked=True, declared=None, reserved=0):
    size = len(payload) if declared is None else declared
    first, bit = opcode | (0x80 if fin else 0) | reserved, 0x80 if masked else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 1 << 16:
        head = struct.pack(">BBH", first, bit | 126, size)
    else:
        head = struct.pack(">BBQ", first, bit | 127, size)
    if not masked:
        return head + payload
    mask = int.from_bytes((_MASK * (len(payload) // 4 + 1))[: len(payload)])
    return head + _MASK + (int.from_bytes(payload) ^ mask).to_bytes(len(payload))


def close_frame(code=None, reason=b""):
    return frame(CLOSE, b"" if code is None else struct.pack(">H", code) + reason)


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class App:
    """Accepts, lends its socket to the test and stays until it is told to leave.

    Attributes:
        answer: sends something other than an acceptance.
        ending: raises something at the end.
        sockets: what was lent.
        leave: lets every call end.
    """

    def __init__(self):
        self.answer = None
        self.ending = None
        self.scopes = []
        self.began = asyncio.Event()
        self.proceed = asyncio.Event()
        self.proceed.set()
        self.sockets = asyncio.Queue()
        self.leave = asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            await self.answer_http(scope, send)
            return
        assert (await receive())["type"] == "websocket.connect"
        self.scopes.append(scope)
        self.began.set()
        await self.proceed.wait()
        if self.answer is not None:
            await self.answer(send)
            return
        await send({"type": "websocket.accept", "headers": [(b"x-request-id", b"req_1")]})
        self.sockets.put_nowait(find_socket(scope))
        await self.leave.wait()
        if self.ending is not None:
            raise self.ending

    async def answer_http(self, scope, send):
        """Answer with as many bytes as the query says."""
        self.scopes.append(scope)
        size = int(scope["query_string"] or 0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": b"x" * size})


class Client:
    """A raw connection."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def send(self, *parts):
        for part in parts:
            self.writer.write(part)
            await asyncio.sleep(0.01)

    async def head(self):
        """Read the head of an answer: its status and headers."""
        async with asyncio.timeout(LONG):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        return int(head.split()[1]), dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])

    async def frame(self):
        """Read a whole frame: its opcode and payload."""
        async with asyncio.timeout(LONG):
            first, size = await self.reader.readexactly(2)
            assert first & 0xF0 == 0x80
            if size > 125:
                wide = 2 if size == 126 else 8
                size = int.from_bytes(await self.reader.readexactly(wide))
            return first & 0x0F, await self.reader.readexactly(size)

    async def texts(self, count):
        got = [await self.frame() for _ in range(count)]
        assert {opcode for opcode, _ in got} <= {TEXT}
        return [payload for _, payload in got]

    async def too_large(self):
        """Read what a client is told of a message that is too large."""
        (payload,) = await self.texts(1)
        answer = json.loads(payload)
        assert (answer["type"], answer["status"]) == ("error", 413)
        assert "[websocket] max_message_bytes" in answer["error"]["message"]

    async def close_code(self):
        """Read Close and return its code, None if it has none."""
        opcode, payload = await self.frame()
        assert opcode == CLOSE
        return int.from_bytes(payload[:2]) if payload else None

    async def rest(self):
        """Read to the end of the connection."""
        async with asyncio.timeout(LONG):
            return await self.reader.read()

    def end(self):
        self.writer.transport.abort()


class SocketSite:
    """A server in this process."""

    def __init__(self, settings, server, tls=None):
        self.app = App()
        self.tls = tls
        self.state = ServerState()
        self.settings = WebSocketConfig(**(_SETTINGS | settings))
        self.server_settings = ServerConfig(**server)
        self.refusals = []
        self.clients = []

    async def start(self):
        build = partial(
            SocketProtocol,
            settings=self.settings,
            close_grace_seconds=self.server_settings.close_grace_seconds,
            note_refusal=self._note,
        )
        # What uvicorn would do by itself must not happen.
        config = uvicorn.Config(
            self.app, log_config=None, ws=build, lifespan="off", ws_max_size=7, ws_ping_interval=0.01
        )
        config.load()
        http = partial(ConnectionProtocol, config, self.state, {}, settings=self.server_settings)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        listener.bind(("127.0.0.1", 0))
        self.server = await asyncio.get_running_loop().create_server(under_tls(http, self.tls), sock=listener)
        self.address = listener.getsockname()

    def _note(self, error):
        self.refusals.append(error.status)
        return "req_refused"

    async def connect(self, head=None):
        """Connect, and send what is not an upgrade by the book."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        self.clients.append(Client(*await open_stream(sock, self.tls)))
        if head is not None:
            await self.clients[-1].send(head)
        return self.clients[-1]

    async def open(self):
        """Open a WebSocket; returns both of its ends."""
        client = await self.connect(upgrade())
        assert (await client.head())[0] == 101
        return client, await asyncio.wait_for(self.app.sockets.get(), LONG)

    async def empty(self):
        """Wait until no connection is left."""
        await until(lambda: not self.state.connections)

    async def close(self):
        for client in self.clients:
            client.end()
        self.server.close()
        self.app.proceed.set()
        self.app.leave.set()
        await until(lambda: not self.state.connections and not self.state.tasks)


async def until(condition):
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def socket_site(*, server=MappingProxyType({}), tls=None, **settings):
    """Serve with these bounds of `[websocket]` and `[server]`, otherwise generous ones; nothing outlives the test."""
    site = SocketSite(settings, {"close_grace_seconds": LONG, **server}, tls)
    await site.start()
    try:
        yield site
    finally:
        await site.close()


async def files_at_rest():
    """Count the open files after a first WebSocket has come and gone: a loop opens some for itself."""
    async with socket_site() as site:
        client, _ = await site.open()
        client.end()
        await site.empty()
    await asyncio.sleep(0.01)
    return open_files()
