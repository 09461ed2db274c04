"""One HTTP/1.1 connection to an inference server, parsed by httptools as the bytes arrive.

A connection carries one call at a time. It reads into one buffer of fixed size and stops reading while what it has
parsed waits to be taken, so a fast server is held back by a slow caller and one stream never keeps the loop for longer
than a buffer takes to process.
"""

import asyncio
import os
import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import cast

import httptools

from gateway.protocol.errors import UpstreamError, UpstreamUnavailable
from gateway.upstream.failures import NotConnected

_PIECE_BYTES = 64 * 1024
_MAX_HEADERS = 256
_HEADER_MARKS = len(": \r\n")

CLOSED_EARLY = "The inference server closed the connection before it answered."
BROKEN = "The inference server broke off its answer."
NOT_HTTP = "The inference server's answer is not HTTP."


def write_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request.

    Raises:
        ValueError: a header holds a line break or a NUL, or is not Latin-1.
    """
    return write_lines([f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), ""])


def write_lines(lines: Sequence[str]) -> bytes:
    """Return lines of a head.

    Raises:
        ValueError: one holds a line break or a NUL, or is not Latin-1.
    """
    text = "\r\n".join([*lines, ""])
    if text.count("\n") != len(lines) or text.count("\r") != len(lines) or "\0" in text:
        raise ValueError("a header must not hold line breaks or NUL")
    return text.encode("latin-1")


class Connection(asyncio.BufferedProtocol):
    """The client's end of a connection.

    Args:
        buffer_bytes: most bytes read and parsed before another connection gets its turn.
        on_lost: called when the connection is gone.
        max_header_bytes: most bytes that are no body (heads, interim answers, chunk framing, trailers), counted anew
            after every byte of the body.

    Attributes:
        status: status of the answer at hand, 0 until it is known.
        headers: its headers, names in lower case, values of repeated ones joined.
        raw_headers: the same as they came.
        loop: the event loop it lives in.
    """

    def __init__(self, buffer_bytes: int, on_lost: Callable[["Connection"], None], *, max_header_bytes: int) -> None:
        self._buffer = bytearray(buffer_bytes)
        self._view = memoryview(self._buffer)
        self._on_lost = on_lost
        self._max_header_bytes = max_header_bytes
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self._chunks: list[bytes] = []
        # A part of a body goes where it is taken from; its length is counted once for all that one read brings.
        self.on_body = self._chunks.append
        self._parser = httptools.HttpResponseParser(self)
        self.headers: Mapping[str, str] = {}
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False
        # Asking for the running loop costs a system call each time, until Python 3.12.
        self.loop = asyncio.get_running_loop()
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self._begun = False
        self._sent = False
        self._fields: list[tuple[bytes, bytes]] = []
        self._overhead = 0
        self._answered = False
        self._complete = False
        self._keep_alive = False
        self._error: UpstreamError | None = None
        self._chunks.clear()
        self._pending = 0
        self._on_ended: Callable[[Connection], None] | None = None
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ the caller's side

    @property
    def is_open(self) -> bool:
        """Whether a request could be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_stale(self) -> bool:
        """Whether an idle connection is closed, or something has reached it that the loop has not seen: its end."""
        transport = self._transport
        return transport is None or transport.is_closing() or bool(self._poll.poll(0))

    @property
    def is_complete(self) -> bool:
        """Whether the answer has been received to its end."""
        return self._complete

    @property
    def is_reusable(self) -> bool:
        """Whether another call may follow: request and answer are through, and the server keeps the connection."""
        transport = self._transport
        return (
            self._complete
            and self._keep_alive
            and self._sent
            and not self._chunks
            and transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() == 0
        )

    async def call(self, head: bytes, body: bytes) -> None:
        """Send a request and return when status and headers of its answer are there.

        Raises:
            NotConnected: the connection is gone, and not a byte of the request left.
            UpstreamUnavailable: the connection broke before the headers.
            UpstreamError: what came is not HTTP.
        """
        self._reset()
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotConnected(CLOSED_EARLY)
        self._begun = True
        transport.write(head + body[:_PIECE_BYTES])
        if len(body) > _PIECE_BYTES:
            await self._send_rest(transport, body)
        else:
            self._sent = True
        while not self._answered:
            if self._error is not None:
                raise self._error
            if self._lost:
                raise UpstreamUnavailable(CLOSED_EARLY)
            await self.arrival()

    async def read(self) -> bytes:
        """Return what has been received and not taken yet, or `b""` at the end of the answer.

        Raises:
            UpstreamError: the answer broke off.
        """
        while (data := self.take()) is None:
            await self.arrival()
        return data

    def take(self) -> bytes | None:
        """Return what `read` would without waiting, or None when it would wait.

        Raises:
            UpstreamError: the answer broke off.
        """
        if not self._chunks:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            if self._lost:
                raise UpstreamError(BROKEN)
            return None
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._pending = 0
        return data

    def arrival(self) -> asyncio.Future[None]:
        """Return what is done when something has arrived, or nothing will any more; reads on, if that was paused."""
        if self._paused:
            self._resume()
        self._waiter = self.loop.create_future()
        return self._waiter

    def discard(self, ended: Callable[["Connection"], None]) -> None:
        """Throw away what is left of the answer and call back once it has ended, well or not; at once if it has."""
        self._chunks.clear()
        self._pending = 0
        if self._complete or self._lost:
            ended(self)
            return
        self._on_ended = ended
        self._resume()

    def abort(self) -> None:
        """Close the connection at once, without sending what is left."""
        if self._transport is not None:
            self._transport.abort()

    async def _send_rest(self, transport: asyncio.Transport, body: bytes) -> None:
        """Send what follows the first piece; stops early when the server answers before it has read it all."""
        for start in range(_PIECE_BYTES, len(body), _PIECE_BYTES):
            # Even with room to write, what the server says meanwhile comes first: it may not want the rest.
            await asyncio.sleep(0)
            await self._writable.wait()
            if self._answered or self._lost:
                return
            transport.write(body[start : start + _PIECE_BYTES])
        self._sent = True

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ------------------------------------------------------------ the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports have the methods of asyncio's, not their base class.
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return where the next bytes go: never more than may wait to be taken."""
        return self._view[: max(1, len(self._buffer) - self._pending)] if self._pending else self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what arrived; a buffer's worth of it that nobody has taken pauses the reading."""
        if not self._begun or self._complete:
            self.abort()  # the server speaks without having been asked
            return
        self._overhead += nbytes
        chunks = self._chunks
        known = len(chunks)
        try:
            self._parser.feed_data(self._view[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._give_up()
        if len(chunks) > known:
            self._overhead = 0
            if self._on_ended is None:
                # The framing counts too: many small pieces take more room than their bytes.
                self._pending += nbytes
            else:
                chunks.clear()
        if self._overhead > self._max_header_bytes:
            self._refuse_head()
            self._give_up()
        if self._pending >= len(self._buffer) and not self._complete and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The server sends no more: the end of an answer that has no other end."""
        framed = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()
        if self._answered and not framed:
            self._complete = True
            self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._lost = True
        transport, self._transport = self._transport, None
        if exc is not None and transport is not None and self._begun and not self._answered:
            self._salvage(transport)
        del self._parser  # refers back to the connection, whose buffer would wait for the garbage collector
        self._writable.set()
        self._wake()
        self._tell_end()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The send buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The send buffer has room again."""
        self._writable.set()

    def _salvage(self, transport: asyncio.Transport) -> None:
        """Take in what arrived before a write failed: a server that does not want the rest of a request says why."""
        if transport.get_extra_info("ssl_object") is not None:
            return
        descriptor = transport.get_extra_info("socket").fileno()
        with suppress(OSError):
            while not self._complete and self._error is None and self._pending < len(self._buffer):
                size = os.readv(descriptor, [self.get_buffer(-1)])
                if not size:
                    break
                self.buffer_updated(size)

    def _tell_end(self) -> None:
        callback, self._on_ended = self._on_ended, None
        if callback is not None:
            self._chunks.clear()
            callback(self)

    def _refuse_head(self) -> None:
        if not self._answered:
            self._error = UpstreamError(
                f"The head of the inference server's answer is larger than {self._max_header_bytes} bytes "
                f"([upstream] max_header_bytes) or has more than {_MAX_HEADERS} headers."
            )

    def _give_up(self) -> None:
        self._error = self._error or UpstreamError(BROKEN if self._answered else NOT_HTTP)
        self.abort()

    # ------------------------------------------------------------ the parser's side

    def on_message_begin(self) -> None:
        """An answer begins; only one was asked for."""
        if self._complete:
            raise ValueError("an answer nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer; those that trail its body are passed over."""
        self._fields.append((name, value))
        if len(self._fields) > _MAX_HEADERS:
            self._refuse_head()
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        """The head of an answer; interim ones (1xx) are passed over."""
        fields, self._fields = self._fields, []
        status = self._parser.get_status_code()
        if status < 200:
            return
        # A server mostly repeats the head of its last answer.
        if fields != self.raw_headers:
            self._read_head(fields)
        self.status = status
        self._answered = True
        self._writable.set()  # the rest of the request is not wanted any more

    def _read_head(self, fields: list[tuple[bytes, bytes]]) -> None:
        # Of a head that came together with some of its body nobody has counted the bytes yet.
        if sum(len(name) + len(value) + _HEADER_MARKS for name, value in fields) > self._max_header_bytes:
            self._refuse_head()
            raise ValueError("too large a head")
        headers: dict[str, str] = {}
        for name, value in fields:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self.headers, self.raw_headers = headers, fields

    def on_message_complete(self) -> None:
        """The end of the answer."""
        if self._answered:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()
            self._tell_end()
