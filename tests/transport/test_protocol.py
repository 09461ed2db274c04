"""One client connection, over real sockets: what is read, and what is refused."""

import asyncio
import re
import socket

import pytest
from transport.sockets import GET, LONG, post

# ---------------------------------------------------------------- requests


async def test_requests_follow_each_other_on_one_connection(serve):
    site = await serve()
    client = await site.connect()
    for body in (b"one", b"two"):
        await client.send(post(body))
        assert (await client.answer())[2] == body


@pytest.mark.parametrize("cut", [1, 7, 40, 1000])
async def test_a_request_may_come_in_pieces(serve, cut):
    site = await serve()
    client = await site.connect()
    whole = post(b"hello", "echo", "Connection: Upgrade", "Upgrade: h2c")
    await client.send(*(whole[at : at + cut] for at in range(0, len(whole), cut)))
    assert (await client.answer())[2] == b"hello"


@pytest.mark.parametrize(
    "headers",
    [
        ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
        ["Connection: Upgrade", "Upgrade: websocket"],
        ["Connection: keep-alive, upgrade", "Upgrade: TLS/1.0, what/ever", "X-Kept: yes"],
    ],
)
async def test_an_upgrade_that_is_not_offered_is_ignored(serve, headers):
    site = await serve()
    client = await site.connect()
    for _ in range(2):
        await client.send(post(b"hello", "echo", *headers))
        assert (await client.answer())[2] == b"hello"
    sent = {name.lower().encode(): value.encode() for name, value in (line.split(": ") for line in headers)}
    sent.pop(b"upgrade")
    assert sent.items() <= dict(site.app.headers[-1]).items()


async def test_an_upgrade_does_not_hide_a_chunked_body(serve):
    site = await serve()
    client = await site.connect()
    upgrade = b"Upgrade: h2c\r\nConnection: upgrade\r\n"
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\n" + upgrade + b"Transfer-Encoding: chunked\r\n\r\n"
    await client.send(head + b"2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n")
    assert (await client.answer())[2] == b"hello"


async def test_headers_behind_a_body_are_nobodys(serve):
    site = await serve()
    client = await site.connect()
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    await client.send(head, b"2\r\nhi\r\n0\r\nHost: evil\r\n\r\n")
    assert (await client.answer())[2] == b"hi"
    assert [value for name, value in site.app.headers[0] if name == b"host"] == [b"a"]


# ---------------------------------------------------------------- what is not HTTP


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\x00\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"BREW /echo HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://localhost HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT localhost:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_not_http_is_told_so_in_the_envelope(serve, sent):
    site = await serve()
    client = await site.connect()
    await client.send(sent)
    await client.refusal(400, "invalid_http")
    client.close()
    await site.empty()
    assert site.app.seen == []


async def test_rubbish_after_an_answer_is_told_so_too(serve):
    site = await serve()
    client = await site.connect()
    await client.send(GET)
    assert (await client.answer())[0] == 200
    await client.send(b"\r\n\r\n", b"rubbish")
    await client.refusal(400, "invalid_http")


async def test_a_broken_body_behind_its_answer_ends_the_connection(serve):
    site = await serve()
    client = await site.connect()
    await client.send(b"POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert (await client.answer())[0] == 200
    await client.send(b"zz\r\n")
    assert await client.rest() == b""


async def test_a_refused_client_is_heard_out_but_not_for_ever(serve):
    site = await serve()
    client = await site.connect()
    site.bound(header_timeout_seconds=1.0)
    await client.send(b"rubbish", *[b"x" * 1000] * 5)
    await client.refusal(400, "invalid_http")
    await site.empty()


# ---------------------------------------------------------------- past the app's layers


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/0.9"])
@pytest.mark.parametrize("path", ["flood", "last", "mass/70000", "torn/"])
async def test_a_client_that_knows_no_chunks_gets_none(serve, version, path):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"", path).replace(b"HTTP/1.1", version))
    head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert (b"content-length: 70000" in head) == (path == "mass/70000")
    assert b"connection: close" in head
    whole = {
        "flood": lambda: b"x" * site.app.taken + b"end",
        "last": lambda: b"".join(b"%d" % (number % 10) * 65_536 for number in range(100)),
        "mass/70000": lambda: b"x" * 70_000,
        "torn/": lambda: b"half",
    }
    assert body == whole[path]()


async def test_a_body_written_at_once_is_chunked_and_bounded_by_what_the_client_takes(serve):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"", "flood"))
    answer = await client.until(b"0\r\n\r\n")
    assert answer.endswith(b"3\r\nend\r\n0\r\n\r\n")
    assert answer.count(b"x") == site.app.taken > 0
    assert answer.count(b"10000\r\n") == site.app.taken // 65_536


async def test_what_is_written_at_once_to_a_client_that_left_is_dropped(serve):
    site = await serve()
    client = await site.hold("hold")
    client.close()
    await asyncio.wait_for(site.app.left.wait(), LONG)
    assert site.app.write_body(b"x") is True
    await site.empty()


async def test_a_body_that_came_whole_is_taken_at_once_and_only_once(serve):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"hello", "take"))
    assert (await client.answer())[2] == b"taken hello"
    await client.send(b"POST /take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    assert (await client.answer())[2] == b"taken "
    assert site.app.connection.take_body() == b""


async def test_a_body_that_is_still_on_its_way_is_not_taken(serve):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"hello", "take")[:-2])
    while not site.app.taken_bodies:
        await asyncio.sleep(0.01)
    await client.send(b"lo")
    assert site.app.taken_bodies == [None]
    assert (await client.answer())[2] == b"hello"


@pytest.mark.parametrize("lends", [True, False])
async def test_a_client_that_leaves_is_noticed_with_and_without_the_connection(serve, lends):
    site = await serve()
    site.app.lends = lends
    client = await site.hold("hold")
    client.close()
    await asyncio.wait_for(site.app.left.wait(), LONG)
    await site.empty()


async def test_head_and_first_bytes_of_an_answer_leave_together(serve, monkeypatch):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"", "hold"))
    await asyncio.wait_for(site.app.arrived.wait(), LONG)
    first = await client.reader.read(65_536)
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"begun\r\n")
    site.app.release.set()
    assert (await client.until(b"0\r\n\r\n")).endswith(b"ended\r\n0\r\n\r\n")


async def test_an_answer_without_a_body_keeps_its_head(serve):
    site = await serve()
    client = await site.connect()
    for _ in range(2):
        await client.send(b"HEAD /mass/5 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"content-length: 5" in await client.until(b"\r\n\r\n")
    await client.send(b"HEAD /mass/5 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"connection: close" in await client.rest()


async def test_a_client_that_asks_first_is_told_to_go_on(serve):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"hello", "echo", "Expect: 100-continue")[:-5])
    assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.send(b"hello")
    assert (await client.answer())[2] == b"hello"


# ---------------------------------------------------------------- requests behind a running response


@pytest.mark.parametrize("path", ["hold", "wait"])
@pytest.mark.parametrize("behind", [GET, b"rubbish", b"\r\n\r\n" + GET * 1000, b"\r\n\r\n"])
async def test_nothing_is_written_into_a_running_response(serve, path, behind):
    site = await serve()
    client = await site.hold(path)
    await client.send(behind, b"more")
    site.app.release.set()
    answer = await client.rest()
    assert answer.count(b"HTTP/1.1") == 1
    assert re.search(rb"ended\r\n0\r\n\r\n\Z", answer)
    assert len(site.app.seen) == 1
    await site.empty()


async def test_a_request_sent_along_with_the_one_before_it_is_not_answered(serve):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"", "wait") + GET)
    site.app.release.set()
    answer = await client.rest()
    assert b"connection: close" in answer
    assert [path for path, _ in site.app.seen] == ["/wait"]


@pytest.mark.parametrize("behind", [[], [GET], [b"rubbish"], [b"x" * 500_000]])
@pytest.mark.parametrize("path", ["hold", "wait"])
async def test_a_client_that_leaves_is_noticed_whatever_it_has_sent(serve, path, behind):
    site = await serve()
    client = await site.hold(path)
    await client.send(*behind)
    client.writer.close()
    await asyncio.wait_for(site.app.left.wait(), LONG)
    await site.empty()


async def test_a_client_that_resets_is_noticed_too(serve, caplog):
    site = await serve()
    client = await site.hold()
    await client.send(GET)
    linger = (1).to_bytes(4, "little") + bytes(4)
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    client.close()
    await asyncio.wait_for(site.app.left.wait(), LONG)
    await site.empty()
    assert caplog.records == []


# ---------------------------------------------------------------- the end


async def test_a_shutdown_closes_what_is_idle_and_lets_the_rest_end(serve):
    site = await serve()
    idle, refused = await site.connect(), await site.connect()
    await refused.send(b"rubbish")
    await refused.answer()
    client = await site.hold()
    for connection in list(site.state.connections):
        connection.shutdown()
    assert await idle.rest() == b""
    while len(site.state.connections) > 1:
        await asyncio.sleep(0.01)
    site.app.release.set()
    assert (await client.rest()).endswith(b"ended\r\n0\r\n\r\n")
    await site.empty()


async def test_a_body_that_is_written_to_its_end_needs_no_send(serve):
    site = await serve()
    client = await site.connect()
    for _ in range(2):
        await client.send(post(b"", "last"))
        await asyncio.sleep(0.1)
        body = b""
        async with asyncio.timeout(20):
            await client.reader.readuntil(b"\r\n\r\n")
            while size := int((await client.reader.readline()), 16):
                body += (await client.reader.readexactly(size + 2))[:-2]
            assert await client.reader.readline() == b"\r\n"
        assert body == b"".join(b"%d" % (number % 10) * 65_536 for number in range(100))
    assert site.app.waits > 0, "the client never had to catch up"
    assert not site.app.left.is_set()


async def test_a_body_written_to_its_end_may_close_the_connection(serve):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"", "last", "Connection: close"))
    async with asyncio.timeout(20):
        assert (await client.reader.read()).endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(("length", "end"), [("", b"\r\n\r\n4\r\nhalf\r\n"), ("9", b"\r\n\r\nhalf")])
async def test_an_answer_that_is_broken_off_does_not_look_whole(serve, caplog, length, end):
    site = await serve()
    client = await site.connect()
    await client.send(post(b"", f"torn/{length}"))
    assert (await client.rest()).endswith(end)
    await site.empty()
    assert site.app.torn_off == [False, True]
    assert caplog.records == []
