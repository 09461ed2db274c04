import asyncio
import signal
import socket
import urllib.request

import pytest

from gateway.embedded.serving import serve_application


async def hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()


async def test_an_application_is_served_until_the_block_ends():
    before = signal.getsignal(signal.SIGTERM)
    async with serve_application(hello) as url:
        assert await asyncio.to_thread(get, f"{url}/one") == b"/one"
        assert signal.getsignal(signal.SIGTERM) is before
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(url.rpartition(":")[2])))


async def test_an_address_of_version_6_is_written_in_brackets():
    async with serve_application(hello, host="::1") as url:
        assert url.startswith("http://[::1]:")
        assert await asyncio.to_thread(get, f"{url}/six") == b"/six"


async def test_a_taken_address_is_told():
    async with serve_application(hello) as url:
        with pytest.raises(OSError, match="in use"):
            async with serve_application(hello, port=int(url.rpartition(":")[2])):
                pass


async def test_upgrades_are_taken_only_where_they_are_wanted():
    request = (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    kinds = []

    async def note(scope, receive, send):
        kinds.append(scope["type"])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            await hello(scope, receive, send)

    for websockets in (False, True):
        async with serve_application(note, websockets=websockets) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(request)
            await reader.read(1)
            writer.close()
            await writer.wait_closed()
    assert kinds == ["http", "websocket"]
