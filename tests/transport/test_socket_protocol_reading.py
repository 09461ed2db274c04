"""One WebSocket, over real sockets: what is read when, and what waits."""

import asyncio

from transport.socket_site import LONG, PING, PONG, SHORT, TEXT, close_frame, frame, socket_site, until

from gateway.transport.conversation import SLICE_FRAMES, Conversation


async def test_close_is_seen_while_messages_wait():
    async with socket_site() as site:
        client, socket = await site.open()
        left = asyncio.Event()
        socket.watch(left.set)
        await client.send(*[frame(TEXT, b"x" * 1000)] * 5, frame(PING, b"alive"))
        assert await client.frame() == (PONG, b"alive")
        await client.send(close_frame(1000))
        await asyncio.wait_for(left.wait(), LONG)
        assert [await socket.read() for _ in range(6)] == ["x" * 1000] * 5 + [None]


async def test_reading_pauses_while_too_much_waits():
    payload, count = b"x" * 10_000, 100
    async with socket_site(max_message_bytes=100_000) as site:
        client, socket = await site.open()
        sending = asyncio.create_task(client.send(*[frame(TEXT, payload)] * count, frame(PING, b"last")))
        await until(lambda: socket.read_paused)
        assert socket.queue.qsize() < 50
        for _ in range(count):
            assert await asyncio.wait_for(socket.read(), LONG) == payload.decode()
        await sending
        assert await client.frame() == (PONG, b"last")
        assert not socket.read_paused


async def test_small_messages_weigh_something_too():
    async with socket_site(max_message_bytes=10_000) as site:
        client, socket = await site.open()
        await client.send(frame(TEXT) * 50)
        await until(lambda: socket.read_paused)
        for _ in range(50):
            assert await socket.read() == ""
        assert not socket.read_paused


async def test_a_flood_of_frames_is_read_in_slices_and_in_order(monkeypatch):
    slices = []
    read_slice = Conversation.read_slice

    def count(conversation, data):
        read_slice(conversation, data)
        slices.append(len(conversation.events))

    monkeypatch.setattr(Conversation, "read_slice", count)
    async with socket_site() as site:
        client, socket = await site.open()
        numbers = [str(number) for number in range(3 * SLICE_FRAMES)]
        await client.send(b"".join(frame(TEXT, number.encode()) for number in numbers) + frame(PING, b"behind"))
        assert [await asyncio.wait_for(socket.read(), LONG) for _ in numbers] == numbers
        assert await client.frame() == (PONG, b"behind")
        assert not socket.read_paused
        assert max(slices) == SLICE_FRAMES
        await client.send(frame(TEXT, b"more"))
        assert await socket.read() == "more"


async def test_others_get_their_turn_between_the_slices():
    async with socket_site() as site:
        client, socket = await site.open()
        turns = asyncio.create_task(count_turns(socket, 8 * SLICE_FRAMES))
        await client.send(frame(TEXT) * 8 * SLICE_FRAMES)
        assert await asyncio.wait_for(turns, LONG) >= 7


async def count_turns(socket, number):
    """Return on how many turns of the loop some of so many messages, but not all, have arrived."""
    turns = 0
    while socket.queue.qsize() < number:
        turns += socket.queue.qsize() > 0
        await asyncio.sleep(0)
    return turns


async def test_a_rest_waits_while_too_much_does():
    count = 4 * SLICE_FRAMES
    async with socket_site(max_message_bytes=10_000) as site:
        client, socket = await site.open()
        await client.send(frame(TEXT) * count)
        await until(lambda: socket.read_paused)
        await asyncio.sleep(SHORT)
        assert socket.queue.qsize() == SLICE_FRAMES
        for _ in range(count):
            assert await asyncio.wait_for(socket.read(), LONG) == ""
        assert not socket.read_paused


async def test_a_close_behind_a_rest_ends_the_connection():
    async with socket_site() as site:
        client, socket = await site.open()
        await client.send(frame(TEXT, b"x") * 2 * SLICE_FRAMES + close_frame(3000))
        assert await client.close_code() == 3000
        assert await client.rest() == b""
        assert [await socket.read() for _ in range(2 * SLICE_FRAMES + 1)] == ["x"] * 2 * SLICE_FRAMES + [None]


async def test_an_answer_to_close_is_found_behind_a_rest():
    async with socket_site(max_message_bytes=1000) as site:
        client, socket = await site.open()
        await client.send(frame(TEXT, b"x") * 2 * SLICE_FRAMES + close_frame(1000))
        await until(lambda: socket.conn.has_rest)
        closing = asyncio.create_task(socket.close(1000))
        assert await client.close_code() == 1000
        assert await client.rest() == b""
        await asyncio.wait_for(closing, LONG)


async def test_a_rest_goes_with_its_connection():
    async with socket_site(max_message_bytes=1000) as site:
        client, socket = await site.open()
        await client.send(frame(TEXT, b"x") * 2 * SLICE_FRAMES)
        await until(lambda: socket.conn.has_rest)
        socket.abort()
        await site.empty()
        assert not socket.conn.has_rest
        assert [await socket.read() for _ in range(SLICE_FRAMES + 1)] == ["x"] * SLICE_FRAMES + [None]


async def test_closing_reads_on():
    async with socket_site(max_message_bytes=1000) as site:
        client, socket = await site.open()
        await client.send(frame(TEXT, b"x" * 1000))
        await until(lambda: socket.read_paused)
        closing = asyncio.create_task(socket.close(1000))
        assert await client.close_code() == 1000
        await client.send(close_frame(1000))
        await asyncio.wait_for(closing, LONG)
