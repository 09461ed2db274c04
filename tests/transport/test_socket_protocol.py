"""One WebSocket, over real sockets: the handshake, messages both ways, and how it ends."""

import asyncio
import json
from contextvars import ContextVar

import pytest
from transport.socket_site import (
    BINARY,
    CLOSE,
    CONT,
    LONG,
    PING,
    PONG,
    SHORT,
    TEXT,
    close_frame,
    frame,
    socket_site,
    until,
    upgrade,
)
from uvicorn.protocols.utils import ClientDisconnected

# ---------------------------------------------------------------- the handshake


async def test_an_upgrade_is_accepted_without_extensions():
    async with socket_site() as site:
        client = await site.connect(upgrade("Sec-WebSocket-Extensions: permessage-deflate", "X-A: b"))
        status, headers = await client.head()
        assert status == 101
        assert headers["sec-websocket-accept"] == "s3pplmbitxaq9kygzzhzrbk+xoo="
        assert headers["x-request-id"] == "req_1"
        assert "sec-websocket-extensions" not in headers
        scope = site.app.scopes[0]
        assert (scope["path"], scope["query_string"]) == ("/v1/responses", b"a=b")
        assert (b"x-a", b"b") in scope["headers"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (upgrade(key=None), 400),
        (upgrade(key="short"), 400),
        (upgrade(version=8), 400),
        (upgrade("Content-Length: 3") + b"abc", 400),
        (upgrade("X-A: " + "a" * 9000), 431),
        (upgrade(*(f"X-{number}: a" for number in range(130))), 431),
    ],
    ids=["no key", "bad key", "old version", "body", "long header", "many headers"],
)
async def test_a_wrong_upgrade_is_refused_in_our_words(head, status):
    async with socket_site() as site:
        client = await site.connect(head)
        got, headers = await client.head()
        error = json.loads(await client.rest())["error"]
        assert (got, error["type"], error["code"]) == (status, "invalid_request_error", "invalid_upgrade")
        assert error["message"].endswith(".")
        assert headers["content-type"] == "application/json"
        assert (headers["connection"], headers["sec-websocket-version"]) == ("close", "13")
        assert (headers["x-request-id"], site.refusals) == ("req_refused", [status])
        assert site.app.scopes == []
        await site.empty()


async def test_a_client_that_has_left_is_no_longer_answered():
    refused = []

    async def accept(send):
        try:
            await send({"type": "websocket.accept"})
        except ClientDisconnected as error:
            refused.append(error)
            raise

    async with socket_site() as site:
        site.app.answer = accept
        site.app.proceed.clear()
        client = await site.connect(upgrade())
        await site.app.began.wait()
        client.writer.close()
        await site.empty()
        site.app.proceed.set()
        await until(lambda: not site.state.tasks)
        assert len(refused) == 1


async def test_the_app_runs_in_a_context_of_its_own():
    number = ContextVar("number", default=0)
    seen = []

    async def look(send):
        seen.append(number.get())
        await send({"type": "websocket.close"})

    number.set(1)
    async with socket_site() as site:
        site.app.answer = look
        client = await site.connect(upgrade())
        assert (await client.head())[0] == 403
    assert seen == [0]


async def test_the_app_may_deny_an_upgrade():
    async def deny(send):
        headers = [(b"content-type", b"application/json"), (b"x-request-id", b"req_2")]
        await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": b'{"error":1}'})

    async with socket_site() as site:
        site.app.answer = deny
        client = await site.connect(upgrade())
        status, headers = await client.head()
        assert (status, headers["x-request-id"], await client.rest()) == (401, "req_2", b'{"error":1}')
        assert site.refusals == []
        await site.empty()


async def test_an_app_that_does_not_answer_has_failed(caplog):
    async def crash(send):
        raise ValueError

    async with socket_site() as site:
        site.app.answer = crash
        client = await site.connect(upgrade())
        assert (await client.head())[0] == 500
        assert "unexpected error" in caplog.text


async def test_what_comes_before_the_acceptance_waits_for_it():
    async with socket_site() as site:
        site.app.proceed.clear()
        client = await site.connect(upgrade())
        await client.send(frame(PING, b"early"), frame(TEXT, b"hello"))
        site.app.proceed.set()
        assert (await client.head())[0] == 101
        socket = await site.app.sockets.get()
        assert await socket.read() == "hello"
        assert socket.write([b"first"])
        assert await client.frame() == (TEXT, b"first")


@pytest.mark.parametrize("sent", [close_frame(1000), frame(TEXT, b"\xff"), frame(3), frame(TEXT, declared=1 << 62)])
async def test_what_ends_before_the_acceptance_is_just_closed(sent):
    async with socket_site() as site:
        site.app.proceed.clear()
        client = await site.connect(upgrade())
        await client.send(sent)
        assert await client.rest() == b""
        site.app.proceed.set()
        await until(lambda: not site.state.tasks)


# ---------------------------------------------------------------- messages


async def test_messages_arrive_whole_and_in_order():
    async with socket_site() as site:
        client, socket = await site.open()
        parts = [
            frame(TEXT, "grüße €".encode()),
            frame(BINARY, b"\xff\x00"),
            frame(TEXT, b"", fin=False) + frame(CONT, b"", fin=False) + frame(CONT, "€".encode()[:1], fin=False),
            frame(PING, b"between"),
            frame(CONT, "€".encode()[1:], fin=False) + frame(CONT),
            frame(BINARY, b"a", fin=False) + frame(CONT, b"b"),
            frame(TEXT),
        ]
        stream = b"".join(parts)
        await client.send(*(stream[at : at + 3] for at in range(0, len(stream), 3)))
        got = [await asyncio.wait_for(socket.read(), LONG) for _ in range(5)]
        assert got == ["grüße €", b"\xff\x00", "€", b"ab", ""]
        assert await client.frame() == (PONG, b"between")


async def test_a_thousand_frames_in_one_write_arrive_as_they_are():
    payloads = [b"%d" % number * (number % 90) for number in range(1000)]
    async with socket_site() as site:
        client, socket = await site.open()
        assert socket.write(payloads)
        assert await client.texts(1000) == payloads
        assert socket.write([])
        assert socket.write([b"next"])
        assert await client.texts(1) == [b"next"]


@pytest.mark.parametrize("size", [65_535, 65_536, 3_000_000])
async def test_large_frames_leave_whole(size):
    async with socket_site() as site:
        client, socket = await site.open()
        payload = b"x" * (size - 1) + b"!"
        assert socket.write([payload, b"then"])
        assert await client.texts(2) == [payload, b"then"]


async def test_a_message_as_large_as_allowed_is_read():
    async with socket_site(max_message_bytes=1000) as site:
        client, socket = await site.open()
        await client.send(frame(TEXT, b"x" * 1000), frame(TEXT, b"y" * 600, fin=False), frame(CONT, b"z" * 400))
        assert await socket.read() == "x" * 1000
        assert await socket.read() == "y" * 600 + "z" * 400


# ---------------------------------------------------------------- the end


async def test_the_clients_close_is_answered_and_told():
    async with socket_site() as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        assert socket.close_code is None
        socket.write([b"last"])
        await client.send(frame(TEXT, b"first") + close_frame(3001, b"bye"))
        assert await socket.read() == "first"
        assert await socket.read() is None
        assert await socket.read() is None
        assert left.is_set()
        assert not socket.write([b"lost"])
        await asyncio.wait_for(socket.close(1000), LONG)
        assert socket.close_code == 3001
        assert await client.frame() == (TEXT, b"last")
        assert await client.close_code() == 3001
        assert await client.rest() == b""


async def test_a_close_without_a_code_is_answered_likewise():
    async with socket_site() as site:
        client, socket = await site.open()
        await client.send(close_frame())
        assert await client.close_code() is None
        assert socket.close_code == 1005


async def test_a_lost_client_is_told():
    async with socket_site() as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        reading = asyncio.create_task(socket.read())
        client.end()
        await asyncio.wait_for(left.wait(), LONG)
        assert await asyncio.wait_for(reading, LONG) is None
        assert not socket.write([b"lost"])
        assert socket.close_code == 1006
        left.clear()
        socket.watch(left.set)
        assert left.is_set()


async def test_a_watch_can_end():
    async with socket_site() as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        socket.watch(None)
        client.end()
        await site.empty()
        assert not left.is_set()


async def test_nothing_follows_close():
    async with socket_site() as site:
        client, socket = await site.open()
        socket.write([b"last"])
        closing = asyncio.create_task(socket.close(1008, "enough"))
        await asyncio.sleep(0)
        assert not socket.write([b"lost"])
        await client.send(frame(PING, b"?"), frame(TEXT, b"too late"), frame(3))
        assert await client.frame() == (TEXT, b"last")
        assert await client.frame() == (CLOSE, b"\x03\xf0enough")
        assert await socket.read() is None
        client.writer.write_eof()
        assert await client.rest() == b""
        await asyncio.wait_for(closing, LONG)
        assert socket.close_code == 1008


async def test_an_answered_close_ends_the_connection():
    async with socket_site() as site:
        client, socket = await site.open()
        closing = asyncio.create_task(socket.close(1000))
        assert await client.close_code() == 1000
        assert not closing.done()
        await client.send(close_frame(1000))
        assert await client.rest() == b""
        await asyncio.wait_for(closing, LONG)


async def test_the_server_ends_with_going_away_unless_the_app_was_first():
    async with socket_site(close_timeout_seconds=SHORT) as site:
        client, socket = await site.open()
        other, closed = await site.open()
        closing = asyncio.create_task(closed.close(1000))
        left = asyncio.Event()
        socket.watch(left.set)
        await asyncio.sleep(0)
        for connection in list(site.state.connections):
            connection.shutdown()
        assert left.is_set()
        assert await client.close_code() == 1001
        assert await other.close_code() == 1000
        assert await client.rest() == await other.rest() == b""
        await closing


@pytest.mark.parametrize("first", ["server", "app"])
async def test_a_silent_client_cannot_hold_up_the_end_of_the_server(first):
    async with socket_site(server={"close_grace_seconds": SHORT}, close_timeout_seconds=1000) as site:
        client, socket = await site.open()
        closing = asyncio.create_task(socket.close(1001)) if first == "app" else None
        await asyncio.sleep(0)
        next(iter(site.state.connections)).shutdown()
        assert await client.close_code() == 1001
        assert await client.rest() == b""
        await site.empty()
        if closing is not None:
            await closing


async def test_the_server_ends_while_the_app_decides():
    async with socket_site() as site:
        site.app.proceed.clear()
        client = await site.connect(upgrade())
        await site.app.began.wait()
        next(iter(site.state.connections)).shutdown()
        assert (await client.head())[0] == 500
        await site.empty()


@pytest.mark.parametrize(("ending", "code"), [(None, 1000), (ValueError(), 1011)])
async def test_what_the_app_leaves_open_is_closed(ending, code):
    async with socket_site() as site:
        client, _ = await site.open()
        site.app.ending = ending
        site.app.leave.set()
        assert await client.close_code() == code
        await client.send(close_frame(code))
        assert await client.rest() == b""


async def test_the_app_may_close_as_asgi_has_it():
    async def close(send):
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 4000, "reason": "so"})

    async with socket_site() as site:
        site.app.answer = close
        client = await site.connect(upgrade())
        await client.head()
        assert await client.frame() == (CLOSE, b"\x0f\xa0so")
        await client.send(close_frame(4000))
        assert await client.rest() == b""
