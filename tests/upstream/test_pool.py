import asyncio
import ssl

import pytest
import trustme

from gateway.protocol.errors import UpstreamTimeout, UpstreamUnavailable
from gateway.upstream.connection import write_head
from gateway.upstream.failures import NotConnected

HEAD = write_head("GET", "/", {"Host": "test"})


@pytest.fixture
async def ok_server(raw_server, answer):
    """Return a server that answers everything with `ok`."""

    async def serve(server, reader, writer):
        while True:
            await server.read_request(reader)
            writer.write(answer("200 OK", b"ok"))

    return await raw_server(serve)


@pytest.fixture
async def mute_server(raw_server):
    """Return a server that reads and says nothing."""

    async def serve(server, reader, writer):
        await reader.read()

    return await raw_server(serve)


async def use(connection) -> bytes:
    await connection.call(HEAD, b"")
    body = b""
    while data := await connection.read():
        body += data
    return body


async def use_once(pool) -> bytes:
    connection = await pool.acquire()
    try:
        return await use(connection)
    finally:
        pool.release(connection)


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def room(pool) -> int:
    return pool._free.free


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "place", "host", "path"),
    [
        ("http://a", ("a", 80), "a", ""),
        ("http://a:8000/base/", ("a", 8000), "a:8000", "/base"),
        ("https://[::1]/x", ("::1", 443), "[::1]", "/x"),
        ("http://me:secret@a:1", ("a", 1), "a:1", ""),
    ],
)
async def test_address(open_pool, url, place, host, path):
    pool = open_pool(url)
    assert (pool.address, pool.host_header, pool.base_path) == (place, host, path)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "a" * 64 + ".invalid", "nowhere.invalid"])
async def test_a_server_that_is_not_there(open_pool, host):
    pool = open_pool(f"http://{host}")
    with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
        await pool.acquire()
    assert room(pool) == 2


# ---------------------------------------------------------------- reuse


async def test_the_newest_connection_is_used_again(ok_server, open_pool):
    pool = open_pool(ok_server.url)
    first, second = await pool.acquire(), await pool.acquire()
    for connection in (first, second):
        assert await use(connection) == b"ok"
        pool.release(connection)
    assert await pool.acquire() is second
    assert ok_server.connections == 2


async def test_connections_grow_old(ok_server, open_pool):
    pool = open_pool(ok_server.url, keepalive=0.05)
    connections = [await pool.acquire(), await pool.acquire()]
    for connection in connections:
        await use(connection)
        pool.release(connection)
    await asyncio.sleep(0.1)
    assert await pool.acquire() not in connections
    await until(lambda: len(pool._all) == 1)


async def test_connections_the_server_closed_are_forgotten(raw_server, open_pool, answer):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("200 OK", b"ok"))

    pool = open_pool((await raw_server(serve)).url)
    connection = await pool.acquire()
    await use(connection)
    pool.release(connection)
    await until(lambda: not pool._all)
    assert not pool._idle


async def test_a_connection_that_is_closing_is_not_used(ok_server, open_pool):
    pool = open_pool(ok_server.url)
    connection = await pool.acquire()
    await use(connection)
    pool.release(connection)
    connection.abort()
    assert await pool.acquire() is not connection


async def test_connections_closed_as_soon_as_accepted_leave_nothing(raw_server, open_pool):
    async def serve(server, reader, writer):
        pass

    pool = open_pool((await raw_server(serve)).url)
    for _ in range(20):
        with pytest.raises(UpstreamUnavailable):
            await use_once(pool)
    await until(lambda: not pool._all)
    assert room(pool) == 2


async def test_a_connection_lost_while_it_was_made_leaves_nothing(mute_server, open_pool, monkeypatch):
    pool = open_pool(mute_server.url)
    create = asyncio.get_running_loop().create_connection

    async def create_and_lose(*place, **options):
        transport, connection = await create(*place, **options)
        connection.abort()
        await until(lambda: connection._lost)
        return transport, connection

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_and_lose)
    with pytest.raises(NotConnected):
        await pool.acquire()
    assert not pool._all
    assert room(pool) == 2


# ---------------------------------------------------------------- retiring


async def test_a_retired_connection_comes_back_when_its_answer_ends(raw_server, open_pool):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        await told.wait()
        writer.write(b"k")
        await reader.read()

    told = asyncio.Event()
    pool = open_pool((await raw_server(serve)).url)
    connection = await pool.acquire()
    await connection.call(HEAD, b"")
    pool.retire(connection)
    assert room(pool) == 1
    told.set()
    await until(lambda: room(pool) == 2)
    assert await pool.acquire() is connection


async def test_a_retired_connection_whose_answer_does_not_end_is_closed(raw_server, open_pool, monkeypatch):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        await reader.read()

    monkeypatch.setattr("gateway.upstream.pool._REST_SECONDS", 0.05)
    pool = open_pool((await raw_server(serve)).url)
    connection = await pool.acquire()
    await connection.call(HEAD, b"")
    pool.retire(connection)
    await until(lambda: room(pool) == 2)
    assert not pool._all
    assert not pool._idle


# ---------------------------------------------------------------- room


async def test_a_call_waits_for_room_and_no_longer_than_allowed(ok_server, open_pool):
    pool = open_pool(ok_server.url, limit=1)
    connection = await pool.acquire()
    pool.reconfigure(connect_timeout=0.1)
    with pytest.raises(UpstreamTimeout, match=r"No connection .* within 0\.1 seconds"):
        await pool.acquire()
    pool.reconfigure(connect_timeout=20.0)
    waiting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    await use(connection)
    pool.release(connection)
    assert await waiting is connection


async def test_one_who_stops_waiting_leaves_the_room_to_the_next(ok_server, open_pool):
    pool = open_pool(ok_server.url, limit=1)
    connection = await pool.acquire()
    first, second = (asyncio.create_task(pool.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    pool.release(connection)
    first.cancel()
    async with asyncio.timeout(20):
        pool.release(await second)
    assert first.cancelled()
    assert room(pool) == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_leaving_at_any_moment_leaves_nothing_behind(ok_server, mute_server, connect, call, answers):
    upstream = await connect((ok_server if answers else mute_server).url, max_connections=2)
    pool = upstream._pool
    for ticks in range(25):
        opening = asyncio.create_task(upstream.open(call(b"x" * 300_000)))
        for _ in range(ticks):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening}, timeout=20)
        if not opening.cancelled():
            await opening.result().close()
        assert room(pool) == 2
    await until(lambda: len(pool._all) == len(pool._idle))


@pytest.mark.parametrize("ticks", range(12))
async def test_timeouts_at_any_moment_leave_nothing_behind(mute_server, connect, call, ticks):
    upstream = await connect(mute_server.url, max_connections=1, first_byte_timeout=0.0005 * ticks + 0.0001)
    with pytest.raises(UpstreamTimeout):
        await upstream.open(call())
    assert room(upstream._pool) == 1
    await until(lambda: not upstream._pool._all)


# ---------------------------------------------------------------- closing


async def test_closing_ends_every_call(mute_server, open_pool):
    pool = open_pool(mute_server.url)
    connection = await pool.acquire()
    calling = asyncio.create_task(connection.call(HEAD, b""))
    await asyncio.sleep(0)
    pool.close()
    with pytest.raises(UpstreamUnavailable, match="before it answered"):
        await calling
    pool.release(connection)
    with pytest.raises(UpstreamUnavailable, match="closed"):
        await pool.acquire()
    assert room(pool) == 2
    await asyncio.sleep(0.02)
    assert mute_server.connections == 1


async def test_closing_ends_those_who_wait_for_room(ok_server, open_pool):
    pool = open_pool(ok_server.url, limit=1)
    connection = await pool.acquire()
    waiting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    pool.close()
    pool.release(connection)
    with pytest.raises(UpstreamUnavailable, match="closed"):
        await waiting
    assert room(pool) == 1


async def test_closing_ends_those_who_connect(ok_server, open_pool):
    pool = open_pool(ok_server.url)
    connecting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    pool.close()
    with pytest.raises(UpstreamUnavailable, match="closed"):
        await connecting
    await until(lambda: not pool._all)
    assert room(pool) == 2


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def tls_server(authority):
    """Return the URL of a TLS server that answers with a long body, once for each connection."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000)
        await reader.read()
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield f"https://localhost:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_tls(tls_server, open_pool, authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    pool = open_pool(tls_server, tls=context, buffer_bytes=1000)
    connection = await pool.acquire()
    assert len(await use(connection)) == 1_000_000
    pool.release(connection)
    assert await pool.acquire() is connection
    connection.abort()
    await until(lambda: not pool._all)


async def test_a_certificate_nobody_vouches_for(tls_server, open_pool):
    pool = open_pool(tls_server)
    with pytest.raises(UpstreamUnavailable, match="certificate is not trusted"):
        await pool.acquire()
    assert room(pool) == 2


async def test_a_server_without_tls(raw_server, open_pool):
    async def serve(server, reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    pool = open_pool((await raw_server(serve)).url.replace("http:", "https:"))
    with pytest.raises(UpstreamUnavailable, match="does not speak TLS"):
        await pool.acquire()
