import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.cassette.bounds import Bounds
from gateway.cassette.exchange import post
from gateway.cassette.format import Head, Http, read_cassette
from gateway.cassette.recorder import BoundReached, MemorySink, Recorder
from gateway.cassette.redact import Redactor
from gateway.cassette.socket import TransportFailed

ANSWER = b"HTTP/1.1 200 OK\r\nset-cookie: a=1\r\nvary: b\r\nvary: c\r\ncontent-length: 4\r\n\r\n"


@asynccontextmanager
async def answering(*pieces: bytes, tls=None, stays=False):
    """Serve the same bytes to every request; yield the URL."""
    ended = []

    async def handle(reader, writer):
        ended.append(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"{}")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if stays:
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        scheme = "https" if tls else "http"
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/responses?token=abc"
        if ended:
            await asyncio.wait(ended, timeout=20)


class Exchange:
    """Posts `{}` and keeps what is recorded."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._sink = MemorySink()
        self._bounds = bounds or Bounds(step_seconds=5)
        self._recorder = Recorder(self._sink, Redactor(), self._bounds)
        self._recorder.begin(Head())

    async def post(self, url, tls=None):
        headers = {"authorization": "Bearer abc"}
        return await post(url, headers, b"{}", recorder=self._recorder, bounds=self._bounds, tls=tls)

    @property
    def pieces(self) -> list[Http]:
        return [record for record in read_cassette(iter(self._sink.lines)).records if isinstance(record, Http)]


async def test_an_exchange_is_recorded_as_it_was_read():
    exchange = Exchange()
    async with answering(ANSWER, b"ab", b"cd") as url:
        status, headers, body = await exchange.post(url)
    assert (status, headers["vary"], body) == (200, "b, c", b"abcd")
    request, head, *chunks, last = exchange.pieces
    assert (request.dir, request.method, request.path, request.body) == ("c2s", "POST", "/v1/responses?token=***", "{}")
    assert request.headers["authorization"] == "Bearer ***"
    assert (head.status, head.headers["set-cookie"]) == (200, "***")
    assert "".join(chunk.chunk for chunk in chunks) == "abcd"
    assert (last.chunk, last.fin) == ("", True)


async def test_tls(tls):
    server, client = tls
    async with answering(ANSWER, b"abcd", tls=server) as url:
        assert (await Exchange().post(url, client))[0] == 200
        with pytest.raises(TransportFailed):
            await Exchange().post(url)


@pytest.mark.parametrize("pieces", [(), (b"nonsense\r\n\r\n",), (ANSWER, b"ab")])
async def test_what_is_no_whole_answer(pieces):
    exchange = Exchange()
    async with answering(*pieces) as url:
        with pytest.raises(TransportFailed):
            await exchange.post(url)
    assert not any(piece.fin for piece in exchange.pieces)


async def test_an_answer_is_bounded_in_size_and_time():
    async with answering(ANSWER, b"abcd") as url:
        with pytest.raises(BoundReached, match="--max-frame-bytes"):
            await Exchange(Bounds(max_frame_bytes=3)).post(url)
    async with answering(stays=True) as url:
        with pytest.raises(TransportFailed, match="in time"):
            await Exchange(Bounds(step_seconds=0.1, connect_seconds=1)).post(url)


async def test_nobody_there():
    with pytest.raises(TransportFailed):
        await Exchange().post("http://127.0.0.1:9/v1/responses")
