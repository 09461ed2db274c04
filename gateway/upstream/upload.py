"""The request body on its way out, and whether any of it left."""

import asyncio

from aiohttp import ClientConnectionResetError
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

_PIECE_BYTES = 64 * 1024


class JsonUpload(Payload):
    """A JSON body that is written in pieces, so that a large one never blocks the loop.

    Attributes:
        begun: a byte of the request may have left. While it is False the server cannot have seen the call at all,
            since the head waits for the first piece of the body.
    """

    _value: bytes

    def __init__(self, body: bytes) -> None:
        super().__init__(body, content_type="application/json")
        self._size = len(body)
        self.begun = False
        self._transport: asyncio.WriteTransport | None = None

    def abort(self) -> None:
        """Close the connection without sending what is left.

        The client would go on flushing, for ever to a server that has stopped reading.
        """
        if self._transport is not None:
            self._transport.abort()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the whole body.

        Raises:
            ClientConnectionResetError: the server closed the pooled connection before a byte of the call was sent.
        """
        self._transport = writer.transport
        if self._transport is None or self._transport.is_closing():
            raise ClientConnectionResetError("The connection was closed before the request was sent")
        self.begun = True
        body = memoryview(self._value)
        for start in range(0, len(body), _PIECE_BYTES):
            await writer.write(body[start : start + _PIECE_BYTES])

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002
        """Write the whole body, whose length is the declared one."""
        await self.write(writer)
