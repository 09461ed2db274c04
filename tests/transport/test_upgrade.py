"""How a connection passes from HTTP to WebSockets, over real sockets."""

import asyncio
import gc

import pytest
from transport.socket_site import LONG, SHORT, TEXT, close_frame, frame, socket_site, until, upgrade

GET = b"GET /v1/responses?%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
# More than fits between a server and a client that does not read.
MUCH = 2_000_000


@pytest.mark.parametrize("cut", [None, 1, 50])
async def test_frames_may_come_along_with_the_upgrade(cut):
    async with socket_site() as site:
        client = await site.connect()
        whole = upgrade() + frame(TEXT, b"one") + frame(TEXT, b"two")
        step = cut or len(whole)
        await client.send(*(whole[at : at + step] for at in range(0, len(whole), step)))
        assert (await client.head())[0] == 101
        socket = await asyncio.wait_for(site.app.sockets.get(), LONG)
        assert [await asyncio.wait_for(socket.read(), LONG) for _ in range(2)] == ["one", "two"]


@pytest.mark.parametrize("method", [b"POST", b"HEAD", b"OPTIONS"])
async def test_only_a_get_becomes_a_websocket(method):
    async with socket_site() as site:
        client = await site.connect(upgrade().replace(b"GET", method).replace(b"?a=b", b""))
        assert (await client.head())[0] == 200
        (scope,) = site.app.scopes
        assert (scope["type"], scope["method"]) == ("http", method.decode())


async def test_a_connection_too_many_is_told_so_by_the_app():
    async with socket_site(server={"max_connections": 1}) as site:
        await site.open()
        client = await site.connect(upgrade().replace(b"?a=b", b""))
        status, headers = await client.head()
        assert (status, headers["connection"]) == (200, "close")
        assert site.app.scopes[-1]["extensions"]["gateway.surplus"]


async def test_a_connection_that_has_served_requests_may_become_a_websocket():
    async with socket_site() as site:
        client = await site.connect(GET % 0)
        assert (await client.head())[0] == 200
        await client.send(upgrade())
        assert (await client.head())[0] == 101
        assert len(site.state.connections) == 1


async def test_the_answer_before_the_upgrade_has_to_be_read_first():
    async with socket_site() as site:
        client = await site.connect(GET % MUCH)
        await client.send(upgrade())
        await asyncio.wait_for(site.app.began.wait(), LONG)
        (socket,) = site.state.connections
        assert socket.write_paused
        assert (await client.head())[0] == 200
        await client.reader.readexactly(MUCH)
        assert (await client.head())[0] == 101
        assert not socket.write_paused


async def test_a_client_that_upgrades_but_never_reads_is_left_at_the_deadline():
    async with socket_site(send_deadline_seconds=SHORT) as site:
        client = await site.connect(GET % MUCH)
        await client.send(upgrade())
        await asyncio.wait_for(site.app.began.wait(), LONG)
        await site.empty()


async def test_the_limits_of_requests_end_with_them():
    limits = {"header_timeout_seconds": SHORT, "idle_connection_seconds": SHORT, "send_deadline_seconds": SHORT}
    async with socket_site(server=limits) as site:
        client = await site.connect(GET % 0)
        assert (await client.head())[0] == 200
        await client.send(upgrade())
        assert (await client.head())[0] == 101
        socket = await asyncio.wait_for(site.app.sockets.get(), LONG)
        await asyncio.sleep(2 * SHORT)
        assert socket.write([b"still here"])
        assert await client.frame() == (TEXT, b"still here")


@pytest.mark.parametrize(
    "behind",
    [close_frame(1000), frame(TEXT, b"x", masked=False), b"\xff\xff\xff\xff"],
    ids=["Close", "unmasked", "garbage"],
)
async def test_what_ends_the_connection_behind_the_upgrade_is_no_fault_of_ours(behind):
    faults = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    async with socket_site() as site:
        client = await site.connect(upgrade() + behind)
        await client.rest()
        await site.empty()
        site.app.leave.set()
        await until(lambda: not site.state.tasks)
    gc.collect()
    await asyncio.sleep(0)
    assert faults == []
