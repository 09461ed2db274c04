import asyncio

import pytest
from transport.socket_site import BINARY, TEXT, frame, socket_site

from gateway.transport.inbox import Inbox


def event(text):
    return {"type": "websocket.receive", "text": text}


async def waiting(inbox, take):
    """Return a task that reads, when it waits."""
    reading = asyncio.create_task(inbox.read(take))
    await asyncio.sleep(0)
    return reading


async def test_a_reader_that_waits_is_offered_what_comes():
    taken, inbox = [], Inbox()
    reading = await waiting(inbox, lambda text: taken.append(text) is None)
    assert [inbox.offer("one"), inbox.offer("two")] == [True, True]
    assert taken == ["one", "two"]
    assert not reading.done()
    inbox.put_nowait(event("three"))
    assert await reading == event("three")


async def test_nothing_is_offered_past_what_waits():
    taken, inbox = [], Inbox()
    assert not inbox.offer("nobody reads")
    reading = await waiting(inbox, taken.append)
    inbox.put_nowait(event("first"))
    assert not inbox.offer("second")
    inbox.put_nowait(event("second"))
    assert [await reading, await inbox.read(taken.append)] == [event("first"), event("second")]
    assert not taken


async def test_nothing_is_offered_to_a_reader_that_has_given_up():
    taken, inbox = [], Inbox()
    reading = await waiting(inbox, taken.append)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not inbox.offer("late")
    assert not taken


async def test_what_waits_weighs_something():
    inbox = Inbox()
    inbox.put_nowait({"type": "websocket.connect"})
    assert inbox.weight == 0
    inbox.put_nowait(event("x" * 1000))
    inbox.put_nowait({"type": "websocket.receive", "bytes": b""})
    assert 1000 < inbox.weight < 2000
    for _ in range(3):
        await inbox.read(None)
    assert inbox.weight == 0


async def begin(site):
    """Return both ends behind a first message, which is found behind the handshake and always read."""
    client, socket = await site.open()
    await client.send(frame(TEXT, b"first"))
    assert await socket.read() == "first"
    return client, socket


async def test_what_comes_alone_is_taken_and_all_else_is_read():
    taken = []

    def take(text):
        taken.append(text)
        return text != "no"

    async with socket_site() as site:
        client, socket = await begin(site)
        reading = asyncio.create_task(socket.read(take))
        await client.send(frame(TEXT, b"one"), frame(TEXT, "zw\u00f6lf".encode()), frame(TEXT, b"no"))
        assert await reading == "no"
        assert taken == ["one", "zw\u00f6lf", "no"]
        reading = asyncio.create_task(socket.read(take))
        await client.send(frame(TEXT, b"two") + frame(TEXT, b"three"))
        assert [await reading, await socket.read(take)] == ["two", "three"]
        reading = asyncio.create_task(socket.read(take))
        await client.send(frame(BINARY, b"bytes"))
        assert await reading == b"bytes"
        assert taken == ["one", "zw\u00f6lf", "no"]


async def test_a_failure_to_take_ends_the_connection(caplog):
    def take(text):
        raise ValueError(text)

    async with socket_site() as site:
        client, socket = await begin(site)
        reading = asyncio.create_task(socket.read(take))
        await client.send(frame(TEXT, b"one"))
        assert await client.close_code() == 1011
        assert await reading is None
        assert "unexpected error" in caplog.text
