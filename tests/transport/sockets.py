"""A server in this process around the gateway's connections, and raw clients of it."""

import asyncio
import json
import socket
import ssl
from functools import partial

import trustme
import uvicorn
from msgspec import structs
from uvicorn.server import ServerState

from gateway.config.schema import ServerConfig
from gateway.transport.connection import CONNECTION_EXTENSION, SURPLUS_EXTENSION
from gateway.transport.protocol import ConnectionProtocol
from gateway.transport.tls import TlsConnection

LONG = 20.0
GET = b"GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(body=b"hello", path="echo", *headers):
    lines = [f"POST /{path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def wait_for_disconnect(receive, left):
    while (await receive())["type"] != "http.disconnect":
        pass
    left()


class App:
    """Answers by the path: `/echo` the body, `/hold` a first byte at once and a last one when told, `/mass/N` N bytes.

    Attributes:
        lends: `/hold` notices its client's leaving by the connection itself, not by `receive`.
        seen: path and body of every request, and whether its client left.
        release: lets `/hold` go on.
        left: set when a client of `/hold` has left.
    """

    def __init__(self):
        self.lends = True
        self.seen = []
        self.surplus = []
        self.waits = 0
        self.headers = []
        self.taken_bodies = []
        self.release = asyncio.Event()
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, scope, receive, send):
        path = scope["path"]
        self.surplus.append(SURPLUS_EXTENSION in scope.get("extensions", {}))
        self.headers.append(scope["headers"])
        self.connection = scope["extensions"][CONNECTION_EXTENSION]
        self.write_body = self.connection.write_body
        self.taken_bodies.append(self.connection.take_body() if path == "/take" else None)
        body, more = b"", path not in {"/early", "/take"}
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            body += message["body"]
            more = message["more_body"]
        self.seen.append((path, body))
        self.arrived.set()
        await getattr(self, path.split("/")[1])(path, body, receive, send)

    async def echo(self, path, body, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    early = echo

    async def take(self, path, body, receive, send):
        """Answer with the rest of a body whose beginning could not be taken whole, or with what could."""
        taken = self.taken_bodies[-1]
        while taken is None:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        await self.echo(path, body if taken is None else b"taken " + taken, receive, send)

    async def mass(self, path, body, receive, send):
        await self.echo(path, b"x" * int(path.rpartition("/")[2]), receive, send)

    async def flood(self, path, body, receive, send):
        """Write past the app's layers until the client must catch up, then end the body through them."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        pieces = 0
        while self.write_body(b"x" * 65_536):
            pieces += 1
        self.taken = pieces * 65_536
        await send({"type": "http.response.body", "body": b"end"})

    async def last(self, path, body, receive, send):
        """Write past the app's layers to the end, in as many goes as the client needs."""
        room = asyncio.Event()
        self.connection.watch(self.left.set, room.set)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(100):
            while not self.write_body(b"%d" % (number % 10) * 65_536, last=number == 99):
                self.waits += 1
                room.clear()
                await room.wait()
        self.connection.watch(None)

    async def torn(self, path, body, receive, send):
        """Break off in the middle, which cannot be done before there is one, nor twice."""
        self.torn_off = [self.connection.break_off()]
        headers = [(b"content-length", b"%d" % int(length))] if (length := path.rpartition("/")[2]) else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        self.torn_off += [self.connection.break_off()]
        await send({"type": "http.response.body", "body": b"of it", "more_body": False})

    async def crash(self, path, body, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 5_000_000, "more_body": True})

    async def wait(self, path, body, receive, send):
        await self.hold(path, body, receive, send, eager=False)

    async def hold(self, path, body, receive, send, eager=True):
        if eager:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        told = asyncio.create_task(self.release.wait())

        def leave():
            self.left.set()
            told.cancel()

        waiting = None if self.lends else asyncio.create_task(wait_for_disconnect(receive, leave))
        if waiting is None:
            self.connection.watch(leave)
        await asyncio.wait({told})
        if waiting is None:
            self.connection.watch(None)
        else:
            waiting.cancel()
        if not self.left.is_set():
            if not eager:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ended"})


class Client:
    """A raw connection to the server."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def send(self, *parts):
        for part in parts:
            self.writer.write(part)
            await asyncio.sleep(0.01)

    async def answer(self):
        """Read one answer: status, headers and body."""
        async with asyncio.timeout(LONG):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head.split()[1]), headers, body

    async def refusal(self, status, code):
        """Read an error and the end of the connection."""
        got, headers, body = await self.answer()
        error = json.loads(body)["error"]
        assert (got, error["code"], headers["connection"]) == (status, code, "close")
        assert headers["content-type"] == "application/json"
        assert await self.rest() == b""
        return error["message"]

    async def until(self, end):
        """Read until what has come ends so."""
        got = b""
        async with asyncio.timeout(LONG):
            while not got.endswith(end):
                got += await self.reader.read(1 << 20)
        return got

    async def rest(self):
        """Read to the end of the connection."""
        async with asyncio.timeout(LONG):
            return await self.reader.read()

    def close(self):
        self.writer.transport.abort()


class Tls:
    """A certificate for this machine, and how each end uses it."""

    def __init__(self):
        authority = trustme.CA()
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(self.server)
        self.client = ssl.create_default_context()
        authority.configure_trust(self.client)


def under_tls(build, tls):
    """Return what builds a server's connections, encrypted where there is a certificate."""
    return build if tls is None else lambda: TlsConnection(tls.server, build())


async def open_stream(sock, tls):
    """Return reader and writer of a connected socket."""
    options = {} if tls is None else {"ssl": tls.client, "server_hostname": "localhost"}
    return await asyncio.open_connection(sock=sock, limit=16_384, **options)


class Site:
    """A server in this process."""

    def __init__(self, settings, tls=None):
        self.app = App()
        self.tls = tls
        self.state = ServerState()
        self.settings = ServerConfig(**settings)
        self.clients = []

    async def start(self):
        config = uvicorn.Config(self.app, log_config=None, ws="none", lifespan="off")
        config.load()
        build = partial(ConnectionProtocol, config, self.state, {}, settings=self.settings)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        listener.bind(("127.0.0.1", 0))
        self.server = await asyncio.get_running_loop().create_server(under_tls(build, self.tls), sock=listener)
        self.address = listener.getsockname()

    async def connect(self):
        count = len(self.state.connections)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        self.clients.append(Client(*await open_stream(sock, self.tls)))
        while len(self.state.connections) == count:
            await asyncio.sleep(0)
        return self.clients[-1]

    def bound(self, **settings):
        """Have other `[server]` keys for the connections that are open, from their next timer on."""
        for connection in self.state.connections:
            connection._settings = structs.replace(connection._settings, **settings)

    async def hold(self, path="hold"):
        """Have a response running; returns its client."""
        client = await self.connect()
        await client.send(post(b"", path))
        await asyncio.wait_for(self.app.arrived.wait(), LONG)
        return client

    async def empty(self):
        """Wait until no connection and no handler is left."""
        async with asyncio.timeout(LONG):
            while self.state.connections or self.state.tasks:
                await asyncio.sleep(0.01)

    async def close(self):
        for client in self.clients:
            client.close()
        self.server.close()
        await self.empty()
