import asyncio
from types import SimpleNamespace

import aiohttp
import pytest

from gateway.upstream.upload import JsonUpload


class Writer:
    """A stream writer that keeps what it is given."""

    def __init__(self, *, closing: bool) -> None:
        self.transport = SimpleNamespace(is_closing=lambda: closing, abort=self._abort)
        self.aborted = False
        self.pieces: list[bytes] = []

    async def write(self, piece) -> None:
        self.pieces.append(bytes(piece))

    def _abort(self) -> None:
        self.aborted = True


async def test_written_in_pieces():
    body = bytes(range(256)) * 1000
    upload, writer = JsonUpload(body), Writer(closing=False)
    assert (upload.size, upload.begun) == (len(body), False)
    await upload.write_with_length(writer, len(body))
    assert upload.begun
    assert b"".join(writer.pieces) == body
    assert max(map(len, writer.pieces)) == 65536
    upload.abort()
    assert writer.aborted


async def test_nothing_begins_on_a_closing_connection():
    upload, writer = JsonUpload(b"{}"), Writer(closing=True)
    with pytest.raises(aiohttp.ClientConnectionResetError):
        await upload.write(writer)
    assert not upload.begun
    assert writer.pieces == []


async def test_a_pooled_connection_closed_under_the_call_is_replaced(raw_server, connect, call, read_all, answer):
    """The pool hands out a live connection that dies before the body is written."""

    async def serve(server, reader, writer):
        while True:
            await server.read_request(reader)
            writer.write(answer("200 OK", b"{}"))

    server = await raw_server(serve)
    upstream = await connect(server.url)
    await read_all(await upstream.open(call()))
    (pooled,) = [protocol for pool in upstream._session.connector._conns.values() for protocol, _ in pool]
    opening = asyncio.create_task(upstream.open(call()))
    await asyncio.sleep(0)
    pooled.transport.abort()
    assert await read_all(await opening) == b"{}"
    assert (server.connections, len(server.requests)) == (2, 2)
