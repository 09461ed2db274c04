"""A connection is gone from memory when it has ended: the garbage collector looks seldom."""

import asyncio
import gc
import weakref

import pytest
from transport.sockets import post

LONG = 20.0


@pytest.fixture(autouse=True)
def no_collector():
    """What is gone within a test went without it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def is_gone(site, connection):
    await site.empty()
    for _ in range(200):
        if connection() is None:
            return True
        await asyncio.sleep(0.005)
    return False


def remember(site):
    """The connection of the request that is being served, by which nothing is held."""
    connection = weakref.ref(site.app.connection)
    site.app.connection = site.app.write_body = None
    return connection


@pytest.mark.parametrize("when", ["after the answer", "during it", "in the next head"])
async def test_an_ended_connection_leaves_nothing_behind(serve, when):
    site = await serve()
    client = await site.connect()
    if when == "during it":
        await client.send(post(b"", "take"), b"")
        await asyncio.sleep(0.02)
    else:
        await client.send(post(b"hello", "echo"))
        assert (await client.answer())[2] == b"hello"
    connection = remember(site)
    if when == "in the next head":
        await client.send(b"POST / HT")
    client.close()
    assert await is_gone(site, connection)
