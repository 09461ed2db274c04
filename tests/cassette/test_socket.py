import asyncio
import json
import ssl
from contextlib import suppress

import pytest
from cassette.provider import Provider, provided

from gateway.cassette.bounds import Bounds
from gateway.cassette.format import Close, Frame, Head, Open, read_cassette
from gateway.cassette.recorder import BoundReached, MemorySink, Recorder
from gateway.cassette.redact import Redactor
from gateway.cassette.socket import Socket, TransportFailed

BOUNDS = Bounds(connect_seconds=5, close_seconds=0.2)


class Taken:
    """A socket, and what was recorded of it."""

    def __init__(self, url: str, bounds: Bounds = BOUNDS) -> None:
        self.sink = MemorySink()
        recorder = Recorder(self.sink, Redactor(), bounds)
        recorder.begin(Head())
        self.socket = Socket(url + "/v1/responses?key=abc", recorder, bounds)

    def find(self, kind):
        return [record for record in read_cassette(iter(self.sink.lines)).records if isinstance(record, kind)]


@pytest.mark.agents(138)
async def test_pings_pongs_and_fragments_are_kept_as_they_were():
    provider = Provider()

    async def greet(socket):
        await socket.send(["one ", "thr\u00e4e ", "two"])
        await socket.send(b"\xff\x00")
        pong = await socket.ping(b"are you there")
        await socket.send(json.dumps({"type": "last"}))
        provider.pong = pong

    provider.on_connect = greet
    async with provided(provider) as url:
        taken = Taken(url)
        await taken.socket.connect({"x-test": "1"})
        assert await taken.socket.receive() == "one thräe two"
        assert await taken.socket.receive() == '{"type": "last"}'
        await asyncio.wait_for(provider.pong, 5)
        await taken.socket.close()
    frames = taken.find(Frame)
    assert [(frame.dir, frame.op, frame.fin) for frame in frames if frame.op != 10] == [
        ("s2c", 1, False),
        ("s2c", 0, False),
        ("s2c", 0, False),
        ("s2c", 0, True),
        ("s2c", 2, True),
        ("s2c", 9, True),
        ("s2c", 1, True),
        ("c2s", 8, True),
        ("s2c", 8, True),
    ]
    assert frames[4].payload == b"\xff\x00"
    [pong] = [frame for frame in frames if frame.op == 10]
    assert (pong.dir, pong.payload) == ("c2s", b"are you there")
    assert [frame.n for frame in frames] == list(range(len(frames)))
    [opened] = taken.find(Open)
    assert opened.status == 101
    assert opened.url == url + "/v1/responses?key=***"
    assert opened.request_headers["x-test"] == "1"
    assert provider.headers[0].get("sec-websocket-extensions") is None
    [close] = taken.find(Close)
    assert (close.by, close.code, close.clean) == ("client", 1000, True)


async def test_a_server_that_says_goodbye():
    provider = Provider()
    provider.on_connect = lambda socket: socket.close(1008, "no more")
    async with provided(provider) as url:
        taken = Taken(url)
        await taken.socket.connect({})
        assert await taken.socket.receive() is None
        with pytest.raises(TransportFailed, match="has ended"):
            await taken.socket.send_text("{}")
        await taken.socket.close()
    [close] = taken.find(Close)
    assert (close.by, close.code, close.reason, close.clean) == ("server", 1008, "no more", True)


async def test_a_connection_that_is_cut():
    provider = Provider()

    async def cut(socket):
        socket.transport.abort()

    provider.on_connect = cut
    async with provided(provider) as url:
        taken = Taken(url)
        await taken.socket.connect({})
        with suppress(TransportFailed):  # a reset, or an end
            assert await taken.socket.receive() is None
        await taken.socket.close()
    [close] = taken.find(Close)
    assert (close.by, close.code, close.clean) == ("transport", None, False)


async def test_a_message_larger_than_it_may_be():
    provider = Provider()
    provider.on_connect = lambda socket: socket.send("x" * 2000)
    async with provided(provider) as url:
        taken = Taken(url, Bounds(max_frame_bytes=1000))
        await taken.socket.connect({})
        with pytest.raises(BoundReached, match="--max-frame-bytes"):
            await taken.socket.receive()
        await taken.socket.close()
    assert [frame.dir for frame in taken.find(Frame)][:1] == ["c2s"]


async def test_a_refused_upgrade_is_recorded_with_its_answer():
    def refuse(connection, request):
        return connection.respond(401, "who are you?\n")

    async with provided(Provider(), process_request=refuse) as url:
        taken = Taken(url)
        with pytest.raises(TransportFailed, match="status 401"):
            await taken.socket.connect({})
    [opened] = taken.find(Open)
    assert (opened.status, opened.extra) == (401, {"body": "who are you?\n"})


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"nonsense\r\n\r\n", b"", None])
async def test_what_is_no_websocket(answer):
    ended = asyncio.Event()

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
        else:
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        taken = Taken(url, Bounds(connect_seconds=0.3))
        with pytest.raises(TransportFailed):
            await taken.socket.connect({})
        taken.socket.abort()
        await ended.wait()
    assert len(taken.find(Open)) == 1


async def test_tls(tls):
    server, client = tls
    async with provided(Provider(), ssl=server) as url:
        secure = url.replace("ws:", "wss:")
        taken = Taken(secure)
        await taken.socket.connect({}, client)
        await taken.socket.close()
        assert taken.find(Open)[0].status == 101
        distrustful = Taken(secure)
        with pytest.raises(TransportFailed, match="not trusted"):
            await distrustful.socket.connect({}, ssl.create_default_context())
