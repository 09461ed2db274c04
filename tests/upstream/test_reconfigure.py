"""A client that gets other settings while it runs."""

import asyncio

import pytest
from msgspec import structs

from gateway.protocol.errors import UpstreamError, UpstreamTimeout


async def serve_always(server, reader, writer):
    while True:
        await server.read_request(reader)
        writer.write(server.answer)


@pytest.fixture
async def server(raw_server, answer):
    server = await raw_server(serve_always)
    server.answer = answer("200 OK", b"{}")
    return server


def authorization(head):
    lines = (line.partition(b": ") for line in head.lower().split(b"\r\n"))
    return next((value.decode() for name, _, value in lines if name == b"authorization"), None)


async def test_a_changed_key_goes_out_with_the_next_call_and_probe(server, connect, call, read_all):
    upstream = await connect(server.url, api_key="one")
    for key in ("one", "two", None, "three"):
        upstream.reconfigure(structs.replace(upstream._settings, api_key=key))
        await read_all(await upstream.open(call()))
        await upstream.probe()
        sent = f"bearer {key}" if key else None
        assert [authorization(head) for head, _ in server.requests[-2:]] == [sent, sent]


async def test_neither_the_key_nor_the_former_one_is_ever_told(server, connect, call, answer):
    upstream = await connect(server.url, api_key="one-secret")
    upstream.reconfigure(structs.replace(upstream._settings, api_key="two-secret"))
    # Another change without a key must not make the former one known.
    upstream.reconfigure(structs.replace(upstream._settings, idle_timeout=1.0))
    assert upstream.redact("one-secret two-secret") == "[redacted] [redacted]"
    server.answer = answer("401 Unauthorized", b'{"error": {"message": "two-secret is wrong"}}')
    for asking in (upstream.open(call()), upstream.models()):
        with pytest.raises(UpstreamError) as refused:
            await asking
        assert "two-secret" not in refused.value.message


async def test_timeouts_hold_for_the_next_call_and_not_for_a_running_one(raw_server, connect, call, read_all):
    given_up = asyncio.Event()

    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        await given_up.wait()
        writer.write(b"cd")

    server = await raw_server(serve)
    upstream = await connect(server.url, idle_timeout=30.0)
    running = await upstream.open(call())
    upstream.reconfigure(structs.replace(upstream._settings, idle_timeout=0.05))
    later = await upstream.open(call())
    reading = asyncio.create_task(read_all(running))
    with pytest.raises(UpstreamTimeout, match=r"0\.05 seconds"):
        await read_all(later)
    given_up.set()
    assert await reading == b"abcd"
    await running.close()
    await later.close()


async def test_the_first_byte_is_waited_for_as_long_as_is_said_now(raw_server, connect, call):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        await asyncio.sleep(30)

    server = await raw_server(serve)
    upstream = await connect(server.url)
    upstream.reconfigure(structs.replace(upstream._settings, first_byte_timeout=0.05))
    with pytest.raises(UpstreamTimeout, match=r"0\.05 seconds"):
        await upstream.open(call())


async def test_questions_beside_the_inferences_have_their_new_bounds(server, connect, answer):
    upstream = await connect(server.url, models_cache=3600.0)
    server.answer = answer("200 OK", b'{"data": []}')
    upstream.reconfigure(
        structs.replace(upstream._settings, models_cache=0.0, max_json_bytes=20, probe_timeout=7.0, health_interval=9.0)
    )
    await upstream.models()
    server.answer = answer("200 OK", b'{"data": [{"id": "far too long"}]}')
    with pytest.raises(UpstreamError, match="20 bytes"):
        await upstream.models()
    assert (upstream._control._timeout_seconds, upstream._monitor._interval) == (7.0, 9.0)


async def test_connections_are_waited_for_as_long_as_is_said_now(server, connect, call):
    upstream = await connect(server.url, max_connections=1, connect_timeout=30.0, connect_retries=0)
    running = await upstream.open(call())
    upstream.reconfigure(structs.replace(upstream._settings, connect_timeout=0.05))
    with pytest.raises(UpstreamTimeout, match=r"0\.05 seconds"):
        await upstream.open(call())
    await running.close()
