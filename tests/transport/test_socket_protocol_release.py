"""A WebSocket is gone from memory when it has ended: the garbage collector looks seldom."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from transport.socket_site import CLOSE, TEXT, close_frame, frame, socket_site, until


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """What is gone within a test went without it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("way", ["closes", "leaves", "breaks the rules", "stops in a message"])
async def test_a_websocket_whose_client_ends_it_leaves_nothing_behind(way):
    async with socket_site() as site:
        client, socket = await site.open()
        ends = weakref.ref(socket), weakref.ref(socket.conn)
        del socket
        last = {"closes": close_frame(1000), "breaks the rules": frame(CLOSE, b"x")}
        await client.send(last.get(way, frame(TEXT, b"half a message", fin=False)))
        client.end()
        await site.empty()
        site.app.leave.set()
        await until(lambda: not site.state.tasks)
        # The task of the app is let go of one turn of the loop after its end.
        await asyncio.sleep(0)
        assert [end() for end in ends] == [None, None]


async def test_a_websocket_that_the_app_ends_leaves_nothing_behind():
    async with socket_site() as site:
        client, socket = await site.open()
        ends = weakref.ref(socket), weakref.ref(socket.conn)
        socket.write([b"{}"])
        del socket
        site.app.leave.set()
        assert await client.texts(1) == [b"{}"]
        assert await client.close_code() == 1000
        await client.send(close_frame(1000))
        await site.empty()
        await until(lambda: not site.state.tasks)
        await asyncio.sleep(0)
        assert [end() for end in ends] == [None, None]
