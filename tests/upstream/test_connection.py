import asyncio
import gc
import socket
import struct
import threading
import weakref

import pytest

from gateway.protocol.errors import UpstreamError, UpstreamUnavailable
from gateway.upstream.connection import BROKEN, CLOSED_EARLY, NOT_HTTP, Connection, write_head

OK = b"HTTP/1.1 200 OK\r\n"
HEAD = write_head("GET", "/", {"Host": "test"})
ENDLESS = b"x" * 200_000


@pytest.fixture
def dial(raw_server, open_pool):
    """Return a maker of connections, each to a server of its own that plays these pieces and then what `after` does."""

    async def build(*pieces: bytes, after=None, buffer_bytes: int = 64 * 1024) -> Connection:
        async def serve(server, reader, writer):
            await server.read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.002)
            if after is not None:
                await after(reader, writer)
            else:
                await reader.read()

        server = await raw_server(serve)
        return await open_pool(server.url, buffer_bytes=buffer_bytes).acquire()

    return build


async def hang_up(reader, writer):
    """Send no more, and end the connection."""


async def reset(reader, writer):
    """End the connection without manners."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def ask(connection: Connection, body: bytes = b"") -> int:
    head = write_head("POST", "/", {"Content-Length": str(len(body))})
    await connection.call(head, body)
    return connection.status


async def read_all(connection: Connection) -> bytes:
    body = b""
    while data := await connection.read():
        body += data
    return body


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


# ---------------------------------------------------------------- requests


def test_head_of_a_request():
    assert write_head("GET", "/a?b", {"Host": "h", "X": "é"}) == b"GET /a?b HTTP/1.1\r\nHost: h\r\nX: \xe9\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nb", "\0", "€"])
def test_a_header_cannot_hold_another(value):
    with pytest.raises(ValueError, match=r"line breaks|latin-1"):
        write_head("GET", "/", {"X": value})


async def test_an_early_answer_ends_an_upload_that_the_server_does_not_take(raw_server, open_pool, answer):
    async def serve(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(answer("413 Payload Too Large", b"no"))
        await asyncio.Event().wait()

    connection = await open_pool((await raw_server(serve)).url).acquire()
    async with asyncio.timeout(20):
        assert await ask(connection, b"z" * 64_000_000) == 413
        assert await read_all(connection) == b"no"
    # What is left of the request would be taken for the next one.
    assert connection.is_complete
    assert not connection.is_reusable


async def test_the_end_of_a_request_that_was_left_out_is_never_made_up_for(raw_server, open_pool, answer):
    async def serve(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(answer("200 OK", b"ok"))
        while await reader.read(1 << 20):
            pass

    connection = await open_pool((await raw_server(serve)).url).acquire()
    assert await ask(connection, b"z" * 64_000_000) == 200
    assert await read_all(connection) == b"ok"
    await until(lambda: connection._transport.get_write_buffer_size() == 0)
    assert connection.is_open
    assert not connection.is_reusable


async def test_an_early_answer_to_a_request_whose_end_still_waits(raw_server, open_pool, answer):
    async def serve(server, reader, writer):
        reader._transport.pause_reading()
        writer.write(answer("200 OK", b"ok"))
        await asyncio.Event().wait()

    connection = await open_pool((await raw_server(serve)).url).acquire()
    connection._transport.set_write_buffer_limits(high=100_000_000)
    assert await ask(connection, b"z" * 32_000_000) == 200
    assert await read_all(connection) == b"ok"
    assert not connection.is_reusable


async def test_a_reset_ends_an_upload(raw_server, open_pool):
    async def serve(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reset(reader, writer)

    connection = await open_pool((await raw_server(serve)).url).acquire()
    async with asyncio.timeout(20):
        with pytest.raises(UpstreamUnavailable, match=CLOSED_EARLY):
            await ask(connection, b"z" * 64_000_000)


@pytest.mark.parametrize("explains", [True, False])
async def test_an_answer_that_a_reset_overtakes(open_pool, answer, monkeypatch, explains):
    """The server answers and is gone between two looks of the loop, so the next write fails before anything is read."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1000)
            if explains:
                peer.sendall(answer("413 Payload Too Large", b"no"))
        gone.set()

    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = await open_pool(f"http://127.0.0.1:{listener.getsockname()[1]}").acquire()
        serving = asyncio.create_task(asyncio.to_thread(serve))

        async def wait_without_looking() -> None:
            gone.wait(5)

        monkeypatch.setattr(connection._writable, "wait", wait_without_looking)
        await asyncio.sleep(0.01)
        if explains:
            assert await ask(connection, b"z" * 1_000_000) == 413
            assert await read_all(connection) == b"no"
        else:
            with pytest.raises(UpstreamUnavailable, match=CLOSED_EARLY):
                await ask(connection, b"z" * 1_000_000)
        await serving
    assert not connection.is_reusable


async def test_nothing_is_sent_on_a_lost_connection(dial):
    connection = await dial()
    connection.abort()
    with pytest.raises(UpstreamUnavailable):
        await connection.call(HEAD, b"")
    await until(lambda: connection._lost)
    with pytest.raises(UpstreamUnavailable):
        await connection.call(HEAD, b"")
    connection.abort()


# ---------------------------------------------------------------- heads


async def test_an_answer_in_single_bytes(dial, answer):
    whole = answer("200 OK", b"hello", "X-One: 1")
    connection = await dial(*(whole[at : at + 1] for at in range(len(whole))))
    assert await ask(connection) == 200
    assert connection.headers == {"content-length": "5", "x-one": "1"}
    assert await read_all(connection) == b"hello"
    assert connection.is_reusable


async def test_repeated_headers_are_joined(dial, answer):
    connection = await dial(answer("200 OK", b"", "X-A: 1", "x-a: 2", "X-A: \xff"))
    await ask(connection)
    assert connection.headers["x-a"] == "1, 2, Ã¿"


async def test_each_answer_has_the_headers_of_its_own_head(raw_server, open_pool, answer):
    async def serve(server, reader, writer):
        for _ in range(3):
            for fields in ([], ["X: 1"], ["X: 1"], ["x: 1"], ["X: 1", "X: 1"], ["Y: 1"]):
                await server.read_request(reader)
                writer.write(b"HTTP/1.1 103 Early Hints\r\nX: hint\r\n\r\n" + answer("200 OK", b"", *fields))

    connection = await open_pool((await raw_server(serve)).url).acquire()
    for _ in range(3):
        found = []
        for _ in range(6):
            await ask(connection)
            found.append({name: value for name, value in connection.headers.items() if name != "content-length"})
            assert (b"X", b"hint") not in connection.raw_headers
        assert found == [{}, {"x": "1"}, {"x": "1"}, {"x": "1"}, {"x": "1, 1"}, {"y": "1"}]


@pytest.mark.parametrize("together", [True, False])
async def test_a_head_larger_than_allowed_is_refused_however_it_arrives(raw_server, open_pool, answer, together):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        whole = answer("200 OK", b"hi", f"X: {'y' * 500}")
        for piece in [whole] if together else [whole[:520], whole[520:]]:
            writer.write(piece)
            await asyncio.sleep(0.002)
        await reader.read()

    connection = await open_pool((await raw_server(serve)).url, max_header_bytes=500).acquire()
    with pytest.raises(UpstreamError, match="max_header_bytes"):
        await ask(connection)
    assert not connection.is_open


async def test_interim_answers_are_passed_over(dial, answer):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\nContent-Length: 5\r\n\r\n"
    connection = await dial(b"HTTP/1.1 100 Continue\r\n\r\n" + early, early + answer("200 OK", b"hi", "A: b"))
    assert await ask(connection) == 200
    assert connection.headers == {"content-length": "2", "a": "b"}
    assert await read_all(connection) == b"hi"
    assert connection.is_reusable


@pytest.mark.parametrize(
    "rubbish",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"\0" * 100,
        OK + b"".join(b"x-%d: 1\r\n" % number for number in range(300)) + b"\r\n",
        OK + b"x: 1\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 200 " + ENDLESS,
        OK + b"X: " + ENDLESS,
        OK + ENDLESS,
        OK + b"X: 1\r\n" * 50_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    ],
)
async def test_what_is_no_answer_is_given_up(dial, rubbish):
    connection = await dial(rubbish)
    with pytest.raises(UpstreamError, match=f"{NOT_HTTP}|max_header_bytes"):
        await ask(connection)
    assert not connection.is_open


async def test_a_head_may_be_large(dial, answer):
    headers = [f"x-{number}: {'y' * 200}" for number in range(200)]
    connection = await dial(answer("200 OK", b"x" * 200_000, *headers))
    assert await ask(connection) == 200
    assert len(await read_all(connection)) == 200_000
    assert connection.is_reusable


@pytest.mark.parametrize("pieces", [[], [b"HTTP/1."], [OK + b"Content-Le"], [b"HTTP/1.1 100 Continue\r\n\r\n"]])
@pytest.mark.parametrize("after", [hang_up, reset])
async def test_half_a_head(dial, pieces, after):
    connection = await dial(*pieces, after=after)
    with pytest.raises(UpstreamUnavailable, match=CLOSED_EARLY):
        await ask(connection)


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_answers_without_a_body(dial, status):
    connection = await dial(f"HTTP/1.1 {status}\r\n\r\n".encode())
    await ask(connection)
    assert await read_all(connection) == b""
    assert connection.is_reusable


async def test_chunks_and_trailers(dial):
    connection = await dial(
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        b"2;ext=1\r\nhe\r\n3\r\nl",
        b"lo\r\n0\r\nContent-Type: text/evil\r\n",
        b"X-More: 1\r\n\r\n",
    )
    await ask(connection)
    assert await read_all(connection) == b"hello"
    assert connection.headers == {"transfer-encoding": "chunked"}
    assert connection.is_reusable


async def test_a_body_of_many_tiny_chunks_is_no_rubbish(dial):
    chunks = b"1\r\nx\r\n" * 100_000
    connection = await dial(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    await ask(connection)
    assert await read_all(connection) == b"x" * 100_000


@pytest.mark.parametrize(
    "rest", [b"2;" + ENDLESS, b"0\r\nX: " + ENDLESS, b"0\r\n" + b"X: 1\r\n" * 300 + b"\r\n", b"ZZ\r\n", b"-1\r\n"]
)
async def test_framing_without_end_or_sense_breaks_the_answer(dial, rest):
    connection = await dial(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", rest)
    await ask(connection)
    with pytest.raises(UpstreamError, match=BROKEN):
        await read_all(connection)
    assert not connection.is_open


@pytest.mark.parametrize("head", [b"Transfer-Encoding: Chunked\r\n\r\n5\r\nhel", b"Content-Length: 5\r\n\r\nhel"])
@pytest.mark.parametrize("after", [hang_up, reset])
async def test_a_cut_body_gives_what_arrived_and_then_the_error(dial, head, after):
    connection = await dial(OK + head, after=after)
    await ask(connection)
    assert await connection.read() == b"hel"
    for _ in range(2):
        with pytest.raises(UpstreamError, match=BROKEN):
            await connection.read()


async def test_a_body_that_ends_with_the_connection(dial):
    connection = await dial(OK + b"\r\n", b"hel", b"lo", after=hang_up)
    await ask(connection)
    assert await read_all(connection) == b"hello"
    assert not connection.is_reusable


async def test_a_reset_is_no_end_of_a_body(dial):
    connection = await dial(OK + b"\r\n", b"hel", after=reset)
    await ask(connection)
    with pytest.raises(UpstreamError, match=BROKEN):
        await read_all(connection)


async def test_our_own_leaving_is_no_end_of_a_body(dial):
    connection = await dial(OK + b"\r\n", b"hel")
    await ask(connection)
    assert await connection.read() == b"hel"
    connection.abort()
    with pytest.raises(UpstreamError, match=BROKEN):
        await connection.read()
    assert not connection.is_complete


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n"],
)
async def test_a_server_that_wants_to_close_is_left_alone(dial, head):
    connection = await dial(head + b"\r\nhi")
    await ask(connection)
    assert await read_all(connection) == b"hi"
    assert not connection.is_reusable


async def test_what_nobody_takes_stays_with_the_server(raw_server, open_pool):
    sent = 0

    async def serve(server, reader, writer):
        nonlocal sent
        await server.read_request(reader)
        writer.write(OK + b"Content-Length: 100000000\r\n\r\n")
        while sent < 100_000_000:
            writer.write(b"x" * 100_000)
            sent += 100_000
            await writer.drain()

    connection = await open_pool((await raw_server(serve)).url, buffer_bytes=1000).acquire()
    await ask(connection)
    await asyncio.sleep(0.2)
    assert sent < 50_000_000
    size = 0
    for _ in range(100):
        piece = await connection.read()
        assert len(piece) <= 1000
        size += len(piece)
    assert size > 1000


async def test_a_wait_can_be_left_and_taken_up_again(dial):
    async def go_on(reader, writer):
        await told.wait()
        writer.write(b"hi")

    told = asyncio.Event()
    connection = await dial(OK + b"Content-Length: 2\r\n\r\n", after=go_on)
    await ask(connection)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await connection.read()
    told.set()
    assert await read_all(connection) == b"hi"


# ---------------------------------------------------------------- what nobody asked for


async def test_a_server_that_speaks_first_is_left(raw_server, open_pool, answer):
    async def serve(server, reader, writer):
        writer.write(answer("408 Request Timeout"))
        await reader.read()

    connection = await open_pool((await raw_server(serve)).url).acquire()
    await until(lambda: not connection.is_open)
    with pytest.raises(UpstreamUnavailable):
        await ask(connection)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"rubbish", b"\0"])
async def test_more_than_the_answer_belongs_to_nobody(dial, answer, apart, more):
    good = answer("200 OK", b"good", "X: 1")
    connection = await dial(*([good, more] if apart else [good + more]))
    assert await ask(connection) == 200
    assert await read_all(connection) == b"good"
    assert (connection.status, connection.headers["x"]) == (200, "1")
    await until(lambda: not connection.is_open)
    assert not connection.is_reusable


# ---------------------------------------------------------------- the rest of an answer


async def test_the_rest_is_thrown_away_until_the_end(dial):
    async def go_on(reader, writer):
        await told.wait()
        writer.write(b"l" * 100_000)
        await reader.read()

    told, ended = asyncio.Event(), []
    connection = await dial(OK + b"Content-Length: 100100\r\n\r\n" + b"x" * 100, after=go_on, buffer_bytes=100)
    await ask(connection)
    connection.discard(lambda connection: ended.append(connection.is_reusable))
    assert ended == []
    told.set()
    await until(lambda: ended)
    assert ended == [True]


async def test_the_rest_of_a_complete_answer_ends_at_once(dial, answer):
    ended = []
    connection = await dial(answer("200 OK", b"hi"))
    await ask(connection)
    await until(lambda: connection.is_complete)
    connection.discard(lambda connection: ended.append(connection.is_reusable))
    assert ended == [True]


async def test_the_rest_ends_with_the_connection_at_the_latest(dial):
    ended = []
    connection = await dial(OK + b"Content-Length: 5\r\n\r\nhi")
    await ask(connection)
    connection.discard(lambda connection: ended.append(connection.is_reusable))
    connection.abort()
    await until(lambda: ended)
    connection.discard(lambda connection: ended.append(connection.is_reusable))
    assert ended == [False, False]


async def test_a_lost_connection_frees_its_buffer_at_once(dial, answer):
    gc.collect()
    gc.disable()
    try:
        connection = await dial(answer("200 OK", b"hi"))
        await ask(connection)
        connection.abort()
        while not connection._lost:
            await asyncio.sleep(0.005)
        gone = weakref.ref(connection)
        del connection
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()
