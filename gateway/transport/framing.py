"""How answers are laid on the wire, between uvicorn and the transport."""

import asyncio
from typing import Final

CHUNK: Final = b"%x\r\n%b\r\n"
LAST_CHUNK: Final = CHUNK + b"0\r\n\r\n"
"""A part of a body, and the last one: its length and itself."""

# What uvicorn sends a client that waits to be asked for the body.
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED: Final = b"\r\ntransfer-encoding: chunked\r\n"


class HeadKeeper:
    """A transport that sends the head of an answer together with the first part of its body, in one packet.

    Whatever ends an answer must `flush`: one without a body would keep its head.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Keep the head, send everything else."""
        if self._head is None and data != _CONTINUE:
            self._head = data
            return
        if self._head:
            data, self._head = self._head + data, b""
        self._transport.write(data)

    def flush(self) -> None:
        """Send the head if it still waits."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Send what waits and close the connection."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._transport.is_closing()


class UnframedKeeper(HeadKeeper):
    """Likewise for a client older than HTTP/1.1, which knows no chunks: its answer ends with the connection."""

    __slots__ = ("_chunked",)

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._chunked = False

    def write(self, data: bytes) -> None:
        """Keep the head, send everything else, chunks without what frames them; each comes in one piece."""
        if self._head is None:
            self._chunked = _CHUNKED in data
            data = data.replace(_CHUNKED, b"\r\n", 1)
        elif self._chunked and data:
            size, _, rest = data.partition(b"\r\n")
            data = rest[: int(size, 16)]
        super().write(data)
