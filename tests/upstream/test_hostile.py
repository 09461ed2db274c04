"""Servers that stall, dawdle, vanish or lie: every call ends, in time, with an error that says why."""

import asyncio
import socket
import struct

import pytest

from gateway.protocol.errors import UpstreamError, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable

LARGE = b"z" * 10_000_000
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def play(raw_server):
    """Return a maker of servers that read one request and then write these pieces, one every few milliseconds."""

    async def build(*pieces: bytes, for_ever: bytes = b"", hangs_up: bool = False):
        async def serve(server, reader, writer):
            await server.read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.005)
            while for_ever and not writer.is_closing():
                writer.write(for_ever)
                server.dripped += len(for_ever)
                await asyncio.sleep(0.005)
            if not hangs_up:
                await reader.read()

        server = await raw_server(serve)
        server.dripped = 0
        return server

    return build


async def fail(upstream, call, kind=UpstreamError) -> UpstreamError:
    """Make a call that must fail, be it while it is opened or while its answer is read."""
    async with asyncio.timeout(20):
        with pytest.raises(kind) as caught:
            await read(await upstream.open(call))
    return caught.value


async def read(exchange) -> bytes:
    body = b""
    try:
        while data := await exchange.read():
            body += data
    finally:
        await exchange.close()
    return body


def room(upstream) -> int:
    return upstream._pool._free.free


# ---------------------------------------------------------------- no answer


@pytest.mark.parametrize("body", [b"{}", LARGE])
async def test_a_server_that_accepts_and_does_nothing_else(connect, call, body):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream = await connect(f"http://127.0.0.1:{listener.getsockname()[1]}", first_byte_timeout=0.2)
        error = await fail(upstream, call(body), UpstreamTimeout)
    assert "did not begin to answer" in error.message
    assert room(upstream) == 1024


async def test_a_peer_that_vanished_in_the_middle_of_a_body(raw_server, connect, call):
    async def serve(server, reader, writer):
        await reader.read(1_000_000)
        reader._transport.pause_reading()
        await asyncio.sleep(3600)

    upstream = await connect((await raw_server(serve)).url, first_byte_timeout=0.3)
    error = await fail(upstream, call(LARGE), UpstreamTimeout)
    assert error.status == 504
    assert room(upstream) == 1024


@pytest.mark.parametrize("size", [2, 100_000, 10_000_000])
@pytest.mark.parametrize("resets", [False, True])
async def test_a_server_that_hangs_up_before_it_read_the_body(raw_server, connect, call, size, resets):
    async def serve(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if resets:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    server = await raw_server(serve)
    upstream = await connect(server.url)
    error = await fail(upstream, call(b"z" * size), UpstreamUnavailable)
    assert (error.status, error.code) == (502, "upstream_unavailable")
    assert server.connections == 1


@pytest.mark.parametrize("piece", [b"HTT", b"HTTP/1.1 200", OK, OK + b"Content-Type: app", OK + b"X: 1\r\n"])
async def test_an_answer_that_stops_within_its_head(play, connect, call, piece):
    upstream = await connect((await play(piece)).url, first_byte_timeout=0.2)
    assert "did not begin to answer" in (await fail(upstream, call(), UpstreamTimeout)).message
    upstream = await connect((await play(piece, hangs_up=True)).url)
    assert "before it answered" in (await fail(upstream, call(), UpstreamUnavailable)).message


@pytest.mark.parametrize(
    ("begin", "drip"),
    [(OK + b"X: ", b"a"), (OK, b"X: 1\r\n"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")],
)
class TestHeadsWithoutEnd:
    """One byte, header or interim answer after the other."""

    async def test_bounded_in_time(self, play, connect, call, begin, drip):
        upstream = await connect((await play(begin, for_ever=drip)).url, first_byte_timeout=0.3)
        assert "did not begin to answer" in (await fail(upstream, call(), UpstreamTimeout)).message

    async def test_bounded_in_bytes(self, play, connect, call, begin, drip):
        server = await play(begin, for_ever=drip)
        upstream = await connect(server.url, max_header_bytes=60)
        assert "max_header_bytes" in (await fail(upstream, call())).message
        assert server.dripped <= 200


async def test_a_head_within_the_bound(play, connect, call, answer):
    long = answer("200 OK", b"x" * 100_000, f"X: {'y' * 5000}")
    upstream = await connect((await play(long)).url, max_header_bytes=5100)
    assert len(await read(await upstream.open(call()))) == 100_000
    upstream = await connect((await play(long)).url, max_header_bytes=5000, read_slice_bytes=1000)
    assert "max_header_bytes" in (await fail(upstream, call())).message


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("head", [b"Content-Length: 1000000\r\n\r\n", b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
async def test_a_body_that_drips_for_ever(play, connect, call, head):
    drip = b"1\r\nx\r\n" if b"chunked" in head else b"x"
    server = await play(OK + head, for_ever=drip)
    upstream = await connect(server.url, idle_timeout=20.0, total_timeout=0.3)
    assert "total_timeout_seconds" in (await fail(upstream, call(), UpstreamTimeout)).message
    assert room(upstream) == 1024


async def test_an_explanation_that_drips_for_ever(play, connect, call):
    server = await play(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1000000\r\n\r\n", for_ever=b"x")
    upstream = await connect(server.url, total_timeout=1.0)
    assert (await fail(upstream, call(), UpstreamRefused)).status == 400


@pytest.mark.parametrize(("status", "seen"), [(400, 400), (429, 429), (503, 503), (500, 502)])
async def test_an_explanation_that_is_cut_off_leaves_the_status(play, connect, call, status, seen):
    head = f"HTTP/1.1 {status} No\r\nContent-Length: 100\r\nRetry-After: 7\r\n\r\n".encode()
    upstream = await connect((await play(head + b'{"error":', hangs_up=True)).url)
    error = await fail(upstream, call(), UpstreamRefused)
    assert (error.status, error.upstream_status, error.retry_after) == (seen, status, 7)


async def test_a_length_that_promises_too_much(play, connect, call):
    pieces = OK + b"Content-Length: 10\r\n\r\n{}"
    upstream = await connect((await play(pieces, hangs_up=True)).url)
    assert "broke off" in (await fail(upstream, call())).message
    upstream = await connect((await play(pieces)).url, idle_timeout=0.1)
    assert "idle_timeout_seconds" in (await fail(upstream, call(), UpstreamTimeout)).message


async def test_a_length_that_promises_too_little(play, connect, call):
    server = await play(OK + b'Content-Length: 2\r\n\r\n{}, "more": "than was said"}')
    upstream = await connect(server.url)
    for connections in (1, 2):
        assert await read(await upstream.open(call())) == b"{}"
        assert server.connections == connections


@pytest.mark.parametrize(
    "garbage",
    [
        b"zz\r\n",
        b"-1\r\nx\r\n",
        b"ffffffffffffffffff\r\n",
        b"5\r\nabc\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"1;" + b"x" * 100_000,
    ],
)
async def test_chunks_that_are_none(play, connect, call, garbage):
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
    upstream = await connect((await play(head, garbage)).url)
    assert (await fail(upstream, call())).status == 502
    assert room(upstream) == 1024


async def test_a_line_of_a_mebibyte_arrives_in_bounded_reads(play, connect, call):
    line = b"data: " + b"x" * (1 << 20)
    head = OK + b"Content-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(line)
    upstream = await connect((await play(head, line)).url, read_slice_bytes=10_000)
    exchange = await upstream.open(call(stream=True))
    pieces = []
    while data := await exchange.read():
        pieces.append(data)
    assert b"".join(pieces) == line
    assert max(map(len, pieces)) <= 10_000
