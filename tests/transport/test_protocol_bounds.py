"""One client connection, over real sockets: how long it may be idle, how large a head, and how slow a reader."""

import asyncio
from contextlib import suppress

import pytest
from transport.sockets import GET, LONG, post

from gateway.transport import protocol

SHORT = 0.15
STALL = 0.1


# ---------------------------------------------------------------- bounds of a head


def large(size):
    return b"GET /echo HTTP/1.1\r\nHost: a\r\nX-A: %b\r\n\r\n" % (b"a" * size)


@pytest.mark.parametrize("cut", [100, 100_000])
async def test_a_head_within_the_limit_is_taken(serve, cut):
    site = await serve(max_header_bytes=1000)
    client = await site.connect()
    head = large(900)
    await client.send(*(head[at : at + cut] for at in range(0, len(head), cut)))
    assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        [large(1000)],
        [large(1000)[:500], large(1000)[500:]],
        [large(2000)[:1500]],
        [b"GET /echo HTTP/1.1\r\nX-A: ", *[b"a" * 600] * 4],
        [b"GET /", *[b"a" * 600] * 4],
        [b"GET /echo HTTP/1.1\r\n", *[b"X: %b\r\n" % (b"a" * 90)] * 30],
        [b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: ", *[b"a" * 600] * 4],
        [b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=", *[b"a" * 600] * 4],
    ],
    ids=[
        "whole",
        "in two",
        "begun",
        "endless header",
        "endless URL",
        "endless headers",
        "endless trailer",
        "endless extension",
    ],
)
async def test_a_head_above_the_limit_is_refused_with_its_key(serve, sent):
    site = await serve(max_header_bytes=1000)
    client = await site.connect()
    await client.send(*sent)
    message = await client.refusal(431, "request_header_too_large")
    assert "1000 bytes ([server] max_header_bytes)" in message
    assert site.app.seen == []


async def test_a_large_body_is_no_large_head(serve):
    site = await serve(max_header_bytes=1000)
    client = await site.connect()
    await client.send(post(b"x" * 5000)[:3000], post(b"x" * 5000)[3000:])
    assert len((await client.answer())[2]) == 5000


@pytest.mark.parametrize("sent", [[b"GET /ec"], [b"GET /echo HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n", b"Z: "]])
async def test_a_head_that_does_not_complete_is_refused(serve, sent):
    site = await serve()
    client = await site.connect()
    site.bound(header_timeout_seconds=SHORT)
    await client.send(*sent)
    assert "header_timeout_seconds" in await client.refusal(408, "request_timeout")
    await site.empty()


async def test_a_head_that_trickles_in_is_refused_all_the_same(serve):
    site = await serve()
    client = await site.connect()
    site.bound(header_timeout_seconds=SHORT)
    trickle = asyncio.create_task(client.send(b"GET /", *[b"x"] * 10_000))
    await client.refusal(408, "request_timeout")
    trickle.cancel()


# ---------------------------------------------------------------- idle connections


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
async def test_a_connection_that_never_asks_is_closed(serve, sent):
    site = await serve(header_timeout_seconds=SHORT)
    client = await site.connect()
    await client.send(sent)
    assert await client.rest() == b""
    await site.empty()


async def test_a_connection_that_was_answered_is_closed_when_it_is_idle(serve):
    site = await serve(idle_connection_seconds=SHORT)
    client = await site.connect()
    await client.send(GET)
    assert (await client.answer())[0] == 200
    assert await client.rest() == b""
    await site.empty()


async def test_blank_lines_are_no_sign_of_life(serve):
    site = await serve(idle_connection_seconds=SHORT)
    client = await site.connect()
    await client.send(GET)
    await client.answer()
    trickle = asyncio.create_task(client.send(*[b"\r\n"] * 10_000))
    # What is still on its way when the connection closes may have it reset.
    with suppress(ConnectionError):
        assert await client.rest() == b""
    trickle.cancel()
    await asyncio.wait({trickle})
    assert trickle.cancelled() or trickle.exception()


async def test_a_running_response_is_not_idle(serve):
    site = await serve(idle_connection_seconds=SHORT)
    client = await site.hold()
    (connection,) = site.state.connections
    # Neither waits for the client's next head.
    assert connection.timeout_keep_alive_task is None
    await asyncio.sleep(2 * SHORT)
    site.app.release.set()
    assert (await client.rest()).endswith(b"ended\r\n0\r\n\r\n")


# ---------------------------------------------------------------- too many connections


async def test_a_connection_too_many_has_one_request_and_is_marked(serve):
    site = await serve(max_connections=1)
    first, second = await site.connect(), await site.connect()
    await first.send(GET)
    await second.send(GET)
    assert (await first.answer())[1].get("connection") is None
    assert (await second.answer())[1]["connection"] == "close"
    assert await second.rest() == b""
    assert sorted(site.app.surplus) == [False, True]
    third = await site.connect()
    await first.send(GET)
    await first.answer()
    assert site.app.surplus[-1] is False
    third.close()


async def test_far_too_many_connections_are_refused_at_once(serve, monkeypatch):
    monkeypatch.setattr(protocol, "_SPARE_CONNECTIONS", 2)
    site = await serve(max_connections=1)
    for _ in range(3):
        await site.connect()
    beyond = await site.connect()
    assert "max_connections" in await beyond.refusal(503, "server_is_overloaded")


# ---------------------------------------------------------------- clients that do not read


@pytest.mark.parametrize("path", ["mass/5000000", "mass/150000", "crash"])
async def test_a_client_that_does_not_read_is_cut_off(serve, path):
    site = await serve(send_deadline_seconds=STALL)
    client = await site.connect()
    client.writer.transport.pause_reading()
    await client.send(post(b"", path))
    await site.empty()


async def test_a_client_that_does_not_read_keeps_nobody_from_closing(serve):
    site = await serve(send_deadline_seconds=STALL, idle_connection_seconds=0.01)
    client = await site.connect()
    client.writer.transport.pause_reading()
    await client.send(post(b"", "mass/5000000"))
    await site.empty()


async def test_a_client_that_reads_slowly_gets_everything(serve):
    site = await serve(send_deadline_seconds=1.0, idle_connection_seconds=0.01)
    client = await site.connect()
    await client.send(post(b"", "mass/3000000"))
    size = 0
    async with asyncio.timeout(LONG):
        while part := await client.reader.read(65_536):
            size += len(part)
            await asyncio.sleep(0.02)
    assert size > 3_000_000
