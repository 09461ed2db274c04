"""Client connections under TLS, over real sockets: what they promise without it, they promise with it."""

import asyncio
import socket
import time

import pytest
from transport.socket_site import CLOSE, TEXT, frame, socket_site
from transport.sockets import GET, LONG, Tls, post

from gateway.transport import protocol

SHORT = 0.15
MUCH = 5_000_000


@pytest.fixture(scope="module")
def tls():
    return Tls()


async def test_requests_are_answered_one_after_the_other(serve, tls):
    site = await serve(tls)
    client = await site.connect()
    for body in (b"hello", b"x" * MUCH):
        await client.send(post(body))
        assert (await client.answer())[2] == body
    assert site.app.connection.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert site.app.connection.scheme == "https"
    assert site.app.connection.client[0] == "127.0.0.1"


async def test_a_body_is_written_past_the_layers_of_the_app(serve, tls):
    site = await serve(tls)
    client = await site.connect()
    await client.send(post(b"", "last"))
    await client.until(b"9" * 65_536 + b"\r\n0\r\n\r\n")
    assert site.app.waits > 0


async def test_what_is_no_request_is_answered_before_the_connection_ends(serve, tls):
    site = await serve(tls, header_timeout_seconds=SHORT)
    client = await site.connect()
    await client.send(b"GET /ec")
    assert "header_timeout_seconds" in await client.refusal(408, "request_timeout")
    await site.empty()


async def test_who_does_not_shake_hands_has_the_time_of_a_head(serve, tls):
    site = await serve(tls, header_timeout_seconds=SHORT)
    reader, writer = await asyncio.open_connection(*site.address)
    async with asyncio.timeout(LONG):
        assert await reader.read() == b""
    writer.close()
    await site.empty()


async def test_plain_http_is_hung_up_on(serve, tls):
    site = await serve(tls)
    reader, writer = await asyncio.open_connection(*site.address)
    writer.write(GET)
    async with asyncio.timeout(LONG):
        assert b"HTTP" not in await reader.read()
    writer.close()
    await site.empty()
    assert site.app.seen == []


async def test_far_too_many_connections_end_before_the_handshake(serve, tls, monkeypatch):
    monkeypatch.setattr(protocol, "_SPARE_CONNECTIONS", 0)
    site = await serve(tls, max_connections=1)
    await site.connect()
    with pytest.raises(ConnectionError):
        await site.connect()
    assert len(site.state.connections) <= 1


async def test_a_client_that_does_not_read_is_cut_off(serve, tls):
    site = await serve(tls, send_deadline_seconds=SHORT)
    client = await site.connect()
    client.writer.transport.pause_reading()
    await client.send(post(b"", f"mass/{MUCH}"))
    await site.empty()


def read_slowly(address, context, request):
    """Read to the end, in small pieces; returns how much it was. The event loop's own TLS would read ahead."""
    plain = socket.create_connection(address, LONG)
    with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as client:
        client.sendall(request)
        size = 0
        while part := client.recv(16_384):
            size += len(part)
            time.sleep(0.007)
        return size


async def test_a_client_that_reads_slowly_gets_everything_and_is_told_that_it_was_all(serve, tls):
    site = await serve(tls, send_deadline_seconds=1.0, idle_connection_seconds=0.01)
    size = await asyncio.to_thread(read_slowly, site.address, tls.client, post(b"", "mass/3000000"))
    assert size > 3_000_000


@pytest.mark.parametrize("ends", ["by word", "without a word"])
async def test_a_client_that_leaves_is_noticed(serve, tls, ends):
    site = await serve(tls)
    client = await site.hold()
    if ends == "by word":
        client.writer.close()
    else:
        client.close()
    await asyncio.wait_for(site.app.left.wait(), LONG)
    await site.empty()


async def test_an_answer_can_be_broken_off(serve, tls):
    site = await serve(tls)
    client = await site.connect()
    await client.send(post(b"", "torn/"))
    assert (await client.rest()).endswith(b"half\r\n")


async def test_websockets(tls):
    async with socket_site(tls=tls) as site:
        client, server = await site.open()
        assert site.app.scopes[0]["scheme"] == "wss"
        await client.send(frame(TEXT, b"up" * 50_000), frame(TEXT, b"and up"))
        assert [await server.read(), await server.read()] == ["up" * 50_000, "and up"]
        server.write([b"down", b"and down"])
        assert await client.texts(2) == [b"down", b"and down"]
        closing = asyncio.create_task(server.close(1000, "enough"))
        opcode, payload = await client.frame()
        assert (opcode, payload[2:]) == (CLOSE, b"enough")
        await client.send(frame(CLOSE, payload))
        await asyncio.wait_for(closing, LONG)
        assert await client.rest() == b""


async def test_what_arrives_while_too_much_waits_is_read_later(tls):
    async with socket_site(tls=tls, max_message_bytes=100_000) as site:
        client, server = await site.open()
        texts = [b"%d" % number * 10_000 for number in range(100)]
        client.writer.write(b"".join(frame(TEXT, text) for text in texts))
        while not server.read_paused:
            await asyncio.sleep(0.01)
        assert [(await server.read()).encode() for _ in texts] == texts


async def test_a_websocket_message_that_is_too_large_is_answered(tls):
    async with socket_site(tls=tls, max_message_bytes=1000) as site:
        client, _ = await site.open()
        await client.send(frame(TEXT, b"x" * 1001))
        await client.too_large()
        assert await client.close_code() == 1009
        assert await client.rest() == b""


async def test_a_websocket_client_has_to_catch_up_and_is_cut_off_when_it_does_not(tls):
    async with socket_site(tls=tls, send_deadline_seconds=SHORT) as site:
        client, server = await site.open()
        client.writer.transport.pause_reading()
        server.write([b"x" * MUCH])
        assert server.write_paused
        await site.empty()
        assert server.close_code == 1008
