import asyncio
import socket
import threading

import httpcore2
import pytest

from gateway.tools import addresses
from gateway.tools.address_space import is_public
from gateway.tools.addresses import AddressRefused, GuardedBackend


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "::127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2001:db8::1", "fe80::1%1",
        "fec0::1", "::ffff:0:127.0.0.1", "64:ff9b:1:7f00:0:100:808:808", "::8.8.8.8", "3fff::1", "5f00::1",
    ],
)  # fmt: skip
def test_private_addresses_are_known(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses_are_known(address):
    assert is_public(address)


@pytest.fixture
async def port():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_private_address_is_refused(port):
    with pytest.raises(AddressRefused):
        await GuardedBackend(allow_private=False).connect_tcp("localhost", port)


async def test_a_permitted_one_is_connected_to(port):
    stream = await GuardedBackend(allow_private=True).connect_tcp("127.0.0.1", port, timeout=5)
    await stream.aclose()


async def test_the_connection_goes_to_the_address_that_was_checked(port, monkeypatch):
    asked: list[str] = []

    async def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2", "127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    monkeypatch.setattr(addresses, "look_up", look_up)
    stream = await GuardedBackend(allow_private=True).connect_tcp("moves.example", port, timeout=5)
    await stream.aclose()
    assert asked == ["moves.example"]


async def test_a_name_with_public_and_private_addresses_leads_to_the_public_ones(monkeypatch):
    async def look_up(host: str, port: int) -> list[str]:
        return ["10.0.0.1", "1.1.1.1"]

    backend = GuardedBackend(allow_private=False)
    tried: list[str] = []

    async def connect_tcp(host: str, *_) -> None:
        tried.append(host)
        raise httpcore2.ConnectError

    monkeypatch.setattr(addresses, "look_up", look_up)
    monkeypatch.setattr(backend._inner, "connect_tcp", connect_tcp)
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_tcp("mixed.example", 443)
    assert tried == ["1.1.1.1"]


async def test_names_that_take_long_hold_nobody_up(monkeypatch):
    over = threading.Event()

    def take_long(*_, **__):
        over.wait()
        return []

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", take_long)
        waiting = [asyncio.create_task(addresses.look_up(f"slow{number}.example", 80)) for number in range(40)]
        await asyncio.sleep(0)
        # Whatever is done in the threads of the event loop still is.
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 5) == "done"
        for task in waiting[:20]:
            task.cancel()
        over.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in found] == [asyncio.CancelledError] * 20 + [list] * 20


async def test_a_name_without_an_address_is_told():
    with pytest.raises(httpcore2.ConnectError):
        await GuardedBackend(allow_private=True).connect_tcp("no..name", 80)
