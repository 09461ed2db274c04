"""One WebSocket, over real sockets: clients that break the rules, never read, never answer or never stop."""

import asyncio

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
    files_at_rest,
    frame,
    open_files,
    socket_site,
    until,
)

# More than fits between a server and a client that does not read.
MUCH = b"x" * 2_000_000
# What asyncio buffers before it asks to pause.
HIGH_WATER = 65_536


# ---------------------------------------------------------------- broken rules


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"a", masked=False), 1002),
        (frame(3), 1002),
        (frame(TEXT, b"a", reserved=0x40), 1002),
        (frame(CONT, b"a"), 1002),
        (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
        (frame(PING, b"a", fin=False), 1002),
        (frame(PING, b"a" * 126), 1002),
        (close_frame(999), 1002),
        (frame(CLOSE, b"\x03"), 1002),
        (frame(TEXT, b"a", fin=False) + close_frame(1000), 1002),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"\xe2\x82"), 1007),
        (frame(TEXT, b"\xe2", fin=False) + frame(CONT, b"a"), 1007),
        (close_frame(1000, b"\xff"), 1007),
    ],
)
async def test_a_client_that_breaks_the_rules_is_told_which(sent, code):
    async with socket_site() as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        await client.send(sent + frame(TEXT, b"more") + frame(PING))
        assert await client.close_code() == code
        assert await client.rest() == b""
        assert await socket.read() is None
        assert left.is_set()
        assert not socket.write([b"lost"])
        assert socket.close_code == code


@pytest.mark.parametrize(
    "sent",
    [
        [frame(TEXT, b"x" * 1001)],
        [frame(BINARY, b"x" * 600, fin=False), frame(CONT, b"y" * 400, fin=False), frame(CONT, b"z")],
        [frame(TEXT, declared=1 << 62)],
        [frame(TEXT, b"x" * 1_000_000)],
    ],
    ids=["a byte too long", "in sum", "declared", "long"],
)
async def test_a_message_that_is_too_large_is_refused_and_closed(sent):
    async with socket_site(max_message_bytes=1000) as site:
        client, socket = await site.open()
        await client.send(*sent)
        await client.too_large()
        assert await client.close_code() == 1009
        assert await client.rest() == b""
        assert await socket.read() is None
        assert socket.close_code == 1009
        client.end()
        await site.empty()


async def test_a_message_too_large_behind_close_is_not_answered():
    async with socket_site(max_message_bytes=1000, close_timeout_seconds=SHORT) as site:
        client, socket = await site.open()
        closing = asyncio.create_task(socket.close(1000))
        assert await client.close_code() == 1000
        await client.send(frame(TEXT, b"x" * 2000))
        assert await client.rest() == b""
        await closing


async def test_a_client_that_goes_on_sending_is_cut_off():
    async with socket_site(max_message_bytes=1000, close_timeout_seconds=SHORT) as site:
        client, _ = await site.open()
        sending = asyncio.create_task(client.send(*[frame(TEXT, b"x" * 2000)] * 10_000))
        await site.empty()
        sending.cancel()


async def test_empty_fragments_weigh_nothing():
    async with socket_site(max_message_bytes=1000) as site:
        client, socket = await site.open()
        flood = frame(CONT, fin=False) * 10_000
        await client.send(frame(TEXT, b"a", fin=False), flood, frame(CONT, b"b", fin=False))
        # The flood has been read when a ping behind it is answered.
        await client.send(frame(PING))
        assert await client.frame() == (PONG, b"")
        assert len(socket.frames) == 1
        await client.send(frame(CONT, b"c"))
        assert await socket.read() == "abc"


# ---------------------------------------------------------------- who does not read


async def test_a_client_that_must_catch_up_is_waited_for():
    async with socket_site() as site:
        client, socket = await site.open()
        ready = asyncio.Event()
        socket.watch(None, ready.set)
        assert not socket.write_paused
        assert socket.write([MUCH])
        assert socket.write_paused
        await asyncio.sleep(SHORT)
        assert not ready.is_set()
        assert await client.texts(1) == [MUCH]
        await asyncio.wait_for(ready.wait(), LONG)
        assert not socket.write_paused


async def test_whoever_is_told_that_the_client_has_caught_up_may_write_at_once():
    async with socket_site() as site:
        client, socket = await site.open()
        rest = [b"%d" % number * 1_000_000 for number in range(9, 0, -1)]
        pauses = []

        def go_on():
            pauses.append(socket.write_paused)
            while rest and not socket.write_paused:
                assert socket.write([rest.pop()])

        socket.watch(None, go_on)
        socket.write([MUCH])
        assert await client.texts(10) == [MUCH, *(b"%d" % number * 1_000_000 for number in range(1, 10))]
        assert pauses
        assert not any(pauses)


async def test_a_watch_of_readiness_can_end():
    async with socket_site() as site:
        client, socket = await site.open()
        ready = asyncio.Event()
        socket.watch(None, ready.set)
        socket.write([MUCH])
        socket.watch(None)
        assert await client.texts(1) == [MUCH]
        await until(lambda: not socket.write_paused)
        assert not ready.is_set()


async def test_a_client_that_takes_nothing_is_left_at_the_deadline():
    before = await files_at_rest()
    async with socket_site(send_deadline_seconds=SHORT) as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        socket.write([MUCH])
        await asyncio.wait_for(left.wait(), LONG)
        assert await socket.read() is None
        assert socket.close_code == 1008
        await site.empty()
        client.end()
    await until(lambda: open_files() <= before)


async def test_a_client_that_reads_slowly_is_not_left():
    async with socket_site(send_deadline_seconds=1.2) as site:
        client, socket = await site.open()
        socket.write([b"x" * 400_000])
        got = b""
        async with asyncio.timeout(LONG):
            while len(got) < 400_010:
                got += await client.reader.readexactly(min(20_000, 400_010 - len(got)))
                await asyncio.sleep(0.07)
        assert socket.close_code is None
        assert socket.write([b"y"])


# ---------------------------------------------------------------- who does not answer Close


async def test_a_close_that_is_never_answered_ends_in_time():
    before = await files_at_rest()
    async with socket_site(close_timeout_seconds=SHORT) as site:
        client, socket = await site.open()
        await asyncio.wait_for(socket.close(1000), LONG)
        assert not site.state.connections
        assert await client.close_code() == 1000
        assert await client.rest() == b""
    await until(lambda: open_files() <= before)


async def test_a_close_that_cannot_leave_ends_at_the_deadline():
    before = await files_at_rest()
    async with socket_site(close_timeout_seconds=SHORT / 3, send_deadline_seconds=SHORT) as site:
        _, socket = await site.open()
        socket.write([MUCH])
        await asyncio.wait_for(socket.close(1000), LONG)
        assert socket.close_code == 1000
        assert not site.state.connections
    await until(lambda: open_files() <= before)


async def test_what_was_written_before_close_leaves_however_long_it_takes():
    async with socket_site(close_timeout_seconds=1.0) as site:
        client, socket = await site.open()
        socket.write([MUCH])
        closing = asyncio.create_task(socket.close(1000))
        await asyncio.sleep(1.1)
        assert not closing.done()
        assert await client.texts(1) == [MUCH]
        assert await client.close_code() == 1000
        await client.send(close_frame(1000))
        assert await client.rest() == b""
        await closing


async def test_a_client_that_closes_without_reading_is_left_at_the_deadline():
    async with socket_site(send_deadline_seconds=SHORT) as site:
        client, socket = await site.open()
        socket.write([MUCH])
        await client.send(close_frame(1000))
        await site.empty()
        assert socket.close_code == 1000


async def test_a_failed_client_that_does_not_read_is_left_at_the_deadline():
    async with socket_site(send_deadline_seconds=SHORT, close_timeout_seconds=SHORT / 3) as site:
        client, socket = await site.open()
        socket.write([MUCH])
        await client.send(frame(3))
        await site.empty()
        assert socket.close_code == 1002


async def test_a_failed_client_gets_what_was_written_before():
    async with socket_site(max_message_bytes=1000) as site:
        client, socket = await site.open()
        socket.write([MUCH])
        await client.send(frame(TEXT, declared=1001))
        await asyncio.sleep(SHORT)
        assert await client.texts(1) == [MUCH]
        await client.too_large()
        assert await client.close_code() == 1009
        assert await client.rest() == b""


async def test_closing_wakes_whoever_waits_for_the_client():
    async with socket_site() as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        socket.write([MUCH])
        await client.send(close_frame(1000))
        await asyncio.wait_for(left.wait(), LONG)


# ---------------------------------------------------------------- pings


async def test_the_last_of_several_pings_is_answered():
    async with socket_site() as site:
        client, _ = await site.open()
        await client.send(frame(PING, b"one") + frame(PING, b"two"))
        assert await client.frame() == (PONG, b"two")
        await client.send(frame(PING, b"three"))
        assert await client.frame() == (PONG, b"three")


async def test_a_flood_of_pings_leaves_one_pong_to_a_client_that_does_not_read():
    async with socket_site() as site:
        client, socket = await site.open()
        socket.write([MUCH])
        buffered = socket.get_write_buffer_size()
        await client.send(*[frame(PING, b"p" * 125) * 100] * 20, frame(PING, b"last"), frame(TEXT, b"read"))
        assert await socket.read() == "read"
        assert socket.get_write_buffer_size() <= buffered
        assert await client.texts(1) == [MUCH]
        assert await client.frame() == (PONG, b"last")


async def test_pongs_are_bounded_even_if_they_are_all_there_is():
    async with socket_site() as site:
        client, socket = await site.open()
        for _ in range(2000):
            client.writer.write(frame(PING, b"p" * 125))
            await asyncio.sleep(0)
        await client.send(frame(TEXT, b"read"))
        assert await socket.read() == "read"
        assert socket.get_write_buffer_size() < HIGH_WATER + 256


async def test_a_client_that_answers_pings_stays():
    async with socket_site(ping_interval_seconds=0.02) as site:
        client, socket = await site.open()
        payloads = set()
        for _ in range(4):
            opcode, payload = await client.frame()
            assert opcode == PING
            payloads.add(payload)
            await client.send(frame(PONG, payload))
        assert len(payloads) == 4
        assert socket.close_code is None


@pytest.mark.parametrize(
    ("sent", "read"), [(b"", None), (frame(PONG, b"unasked"), None), (frame(TEXT, b"chatter"), "chatter")]
)
async def test_a_client_that_answers_no_ping_is_left(sent, read):
    async with socket_site(ping_interval_seconds=0.02, pong_timeout_seconds=SHORT) as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        # Once where it is sure to be read, and once as if it were the answer.
        await client.send(sent)
        assert (await client.frame())[0] == PING
        await client.send(sent)
        reading = asyncio.create_task(socket.read())
        assert await client.close_code() == 1011
        assert await client.rest() == b""
        assert left.is_set()
        assert await reading == read


async def test_no_pings_are_sent_if_none_are_wanted():
    async with socket_site(ping_interval_seconds=0) as site:
        client, socket = await site.open()
        await asyncio.sleep(SHORT)
        socket.write([b"only"])
        assert await client.frame() == (TEXT, b"only")


async def test_a_ping_does_not_wait_behind_what_a_slow_client_has_to_read():
    async with socket_site() as site:
        client, socket = await site.open()
        socket.write([MUCH])
        # Many pings would be due, none before the message.
        socket.stop_keepalive()
        socket.ping_interval = 0.01
        socket.schedule_ping()
        await asyncio.sleep(SHORT)
        assert socket.pong_timer is None
        assert await client.texts(1) == [MUCH]
        assert (await client.frame())[0] == PING


async def test_an_answer_that_lies_unread_counts_when_it_is_read():
    async with socket_site(ping_interval_seconds=0.1, pong_timeout_seconds=0.1, max_message_bytes=1000) as site:
        client, socket = await site.open()
        await client.send(frame(TEXT, b"x" * 1000))
        await until(lambda: socket.read_paused)
        opcode, payload = await client.frame()
        assert opcode == PING
        await client.send(frame(PONG, payload))
        await asyncio.sleep(3 * SHORT)
        assert socket.close_code is None
        assert await socket.read() == "x" * 1000
        opcode, payload = await client.frame()
        assert opcode == PING
