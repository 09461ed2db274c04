"""Server-sent events: a bounded incremental decoder and the framing of our own events.

Only LF, CR and CRLF end a line (never `splitlines()`: U+2028 arrives raw inside JSON). A line is counted while it is
read, before it is complete.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from gateway.protocol.errors import ResourceLimitExceeded

KEEPALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
DONE_DATA = b"[DONE]"

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_EVENT = b"event: "
_BETWEEN = b"\n\n" + _EVENT
_DATA = b"\ndata: "
# To ask for a byte by its number costs a tenth.
_LF, _CR = b"\n\r"
# Room for the `event:`, `id:` and comment lines around one data line of the largest size, in the common form.
_BLOCK_SLACK = 64 * 1024


Block: TypeAlias = tuple[bytes, bytes]
"""One dispatched event: its name, empty when the stream gave none, and its data."""


def frame(name: bytes, data: bytes) -> bytes:
    """Return one event with its name and one line of data."""
    return b"event: %b\ndata: %b\n\n" % (name, data)


class SseDecoder:
    """Turns the bytes of a stream into blocks, however they are cut.

    The common form, LF line ends and one data line, is split at blank lines; the first CR, byte order mark or
    long-winded event switches the stream to the line by line path, which follows the WHATWG rules in full.

    Args:
        max_line_bytes: a longer line (its end not counted) raises; the data of one event is held to the same bound.
    """

    __slots__ = ("_at_start", "_buffer", "_by_line", "_data", "_data_bytes", "_line_start", "_max", "_name")

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self._buffer = bytearray()
        self._line_start = 0
        self._at_start = True
        self._by_line = False
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> Iterable[Block]:
        """Take the next bytes; iterating yields the events they complete, also those before a line that is too long.

        Raises:
            ResourceLimitExceeded: a line passes `max_upstream_sse_line_bytes`; nothing may be fed after that.
        """
        known = len(self._buffer)
        if not known and not self._by_line and chunk.endswith(b"\n\n") and (blocks := self._split(chunk)):
            return blocks
        if _CR in chunk or (self._at_start and not known and chunk[:1] == _BOM[:1]):
            self._by_line = True
        self._buffer += chunk
        return self._feed_lines(known) if self._by_line else self._feed_blocks(known)

    def end(self) -> Iterator[Block]:
        """Yield the event a clean end of the stream leaves without its closing blank line, if any.

        Raises:
            ResourceLimitExceeded: its data passes `max_upstream_sse_line_bytes`.
        """
        if self._buffer or self._data:
            yield from self.feed(b"\n\n")
        self._buffer.clear()

    # ------------------------------------------------------------ the common form

    def _split(self, events: bytes) -> list[Block] | None:
        """Return the events of bytes that hold nothing but whole ones, each a name and one line of data, else None."""
        if len(events) > self._max or not events.startswith(_EVENT) or _CR in events:
            return None
        blocks: list[Block] = []
        for event in events[len(_EVENT) : -2].split(_BETWEEN):
            name, mark, data = event.partition(_DATA)
            if not mark or _LF in name or _LF in data:
                return None
            blocks.append((name, data))
        self._at_start = False
        return blocks

    def _feed_blocks(self, known: int) -> Iterator[Block]:
        buffer = self._buffer
        end = buffer.rfind(b"\n\n", max(0, known - 1))
        if end < 0:
            newline = buffer.rfind(b"\n", known)
            if newline >= 0:
                self._check_lines(bytes(buffer[self._line_start : newline]))
                self._line_start = newline + 1
            yield from self._hold_tail()
            return
        self._at_start = False
        events = bytes(buffer[: end + 2])
        del buffer[: end + 2]
        self._line_start = buffer.rfind(b"\n") + 1
        blocks = self._split(events)
        if blocks is not None:
            yield from blocks
        else:
            for raw in events.split(b"\n\n"):
                block = self._parse(raw)
                if block is not None:
                    yield block
        yield from self._hold_tail()

    def _parse(self, raw: bytes) -> Block | None:
        if len(raw) > self._max:
            self._check_lines(raw)
        start, name = 0, b""
        if raw.startswith(b"event: "):
            start = raw.find(b"\n") + 1
            if not start:
                return None
            name = raw[7 : start - 1]
        if raw.startswith(b"data: ", start) and raw.find(b"\n", start) < 0:
            return name, raw[start + 6 :]
        self._name, self._data, self._data_bytes = b"", [], 0
        for line in raw.split(b"\n"):
            if line:
                self._take(line)
        return self._dispatch()

    # ------------------------------------------------------------ the rules in full

    def _feed_lines(self, known: int) -> Iterator[Block]:
        buffer = self._buffer
        if b"\n" not in buffer[known:] and b"\r" not in buffer[max(0, known - 1) :]:
            self._check_tail()
            return
        raw = bytes(buffer)
        if self._at_start:
            raw = raw.removeprefix(_BOM)
            self._at_start = False
        # A CR at the very end may be half of a CRLF: it stays until the next byte tells.
        held = b"\r" if raw.endswith(b"\r") else b""
        lines = _LINE_END.split(raw[: len(raw) - len(held)])
        buffer[:] = lines.pop() + held
        self._line_start = 0
        for line in lines:
            if line:
                self._check_line(len(line))
                self._take(line)
            elif (block := self._dispatch()) is not None:
                yield block
        self._check_tail()

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data_bytes += len(value)
            self._check_line(self._data_bytes)
            self._data.append(value)
        elif field == b"event":
            self._name = value

    def _dispatch(self) -> Block | None:
        block = (self._name, b"\n".join(self._data)) if self._data else None
        self._name, self._data, self._data_bytes = b"", [], 0
        return block

    # ------------------------------------------------------------ bounds

    def _hold_tail(self) -> Iterator[Block]:
        self._check_tail()
        if len(self._buffer) > self._max + _BLOCK_SLACK:
            # Line by line only the data of an event is kept, not what stands around it.
            self._by_line = True
            yield from self._feed_lines(0)

    def _check_tail(self) -> None:
        mark = len(_BOM) if self._at_start and self._buffer.startswith(_BOM) else 0
        self._check_line(len(self._buffer) - self._line_start - mark - self._buffer.endswith(b"\r"))

    def _check_lines(self, raw: bytes) -> None:
        for line in raw.split(b"\n"):
            self._check_line(len(line))

    def _check_line(self, length: int) -> None:
        if length > self._max:
            raise ResourceLimitExceeded("max_upstream_sse_line_bytes", self._max)
