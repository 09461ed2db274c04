"""The event-stream decoder against a slow one that follows the published rules byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.sse import Block, SseDecoder

AMPLE = 1 << 20
LF, CR = 0x0A, 0x0D


class SlowDecoder:
    """Takes a whole stream one byte at a time.

    A stream that ends without its last blank line still yields its last event: engines that close early mean it.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.blocks: list[Block] = []
        self.line = bytearray()
        self.name = b""
        self.data: list[bytes] = []

    def decode(self, stream: bytes, *, ended: bool = True) -> list[Block]:
        stream = stream.removeprefix(b"\xef\xbb\xbf")
        for at, byte in enumerate(stream):
            if byte == LF and at and stream[at - 1] == CR:
                continue
            if byte in (LF, CR):
                self._end_line()
            else:
                self.line.append(byte)
                self._check(len(self.line))
        if ended:
            self._end_line()
            self._end_line()
        return self.blocks

    def _end_line(self) -> None:
        line, self.line = bytes(self.line), bytearray()
        if not line:
            if self.data:
                self.blocks.append((self.name, b"\n".join(self.data)))
            self.name, self.data = b"", []
            return
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            self.data.append(value)
            self._check(sum(map(len, self.data)))
        elif field == b"event":
            self.name = value

    def _check(self, length: int) -> None:
        if length > self.longest:
            raise ResourceLimitExceeded("max_upstream_sse_line_bytes", self.longest)


def decode(stream: bytes, cuts: list[int], longest: int = AMPLE) -> list[Block]:
    """All blocks of a stream that arrives in pieces."""
    decoder = SseDecoder(longest)
    blocks = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        blocks.extend(decoder.feed(stream[start:end]))
    blocks.extend(decoder.end())
    return blocks


def decode_until_it_breaks(stream: bytes, cuts: list[int], longest: int) -> tuple[list[Block], bool]:
    """The blocks of a stream that arrives in pieces, up to a line that is too long, and whether there was one."""
    decoder = SseDecoder(longest)
    blocks: list[Block] = []
    try:
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            blocks.extend(decoder.feed(stream[start:end]))
        blocks.extend(decoder.end())
    except ResourceLimitExceeded:
        return blocks, True
    return blocks, False


fields = st.sampled_from(
    [
        b"data",
        b"data:",
        b"data: ",
        b"data:  ",
        b"event:",
        b"event: ",
        b"event",
        b"id: ",
        b"retry: ",
        b":",
        b": ",
        b"",
        b" data: ",
    ]
)
values = st.one_of(
    st.sampled_from([b"", b"{}", b"[DONE]", b"a:b", b"\xef\xbb\xbf", "\u2028é😀\0\x0b\x85".encode(), b"\xff\xfe"]),
    st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b"")),
)
data_lines = st.builds(lambda value: b"data: " + value, values)
lines = st.one_of(data_lines, data_lines, st.just(b""), st.builds(lambda field, value: field + value, fields, values))
line_ends = st.one_of(st.just([b"\n"]), st.just([b"\n", b"\r\n", b"\r"]), st.just([b"\r\n"]), st.just([b"\r"]))


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Lines with one or mixed line ends, with or without a byte order mark and a last line end."""
    ends = draw(line_ends)
    pieces = [line + draw(st.sampled_from(ends)) for line in draw(st.lists(lines, max_size=10))]
    stream = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"])) + b"".join(pieces)
    return stream + draw(st.sampled_from([b"", b"data: rest", b"event: rest"]))


def places(draw: st.DrawFn, stream: bytes) -> list[int]:
    return sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8)))


@given(st.data(), streams())
def test_any_stream_cut_anywhere_decodes_as_the_rules_say(data, stream):
    expected = SlowDecoder(AMPLE).decode(stream)
    assert decode(stream, places(data.draw, stream)) == expected
    assert decode(stream, list(range(1, len(stream)))) == expected


@given(streams())
def test_a_block_is_returned_as_soon_as_its_blank_line_is_known(stream):
    """A CR alone may be half of a line end, so the byte after it may be needed."""
    decoder, seen = SseDecoder(AMPLE), 0
    for at in range(len(stream)):
        seen += len([*decoder.feed(stream[at : at + 1])])
        assert seen >= len(SlowDecoder(AMPLE).decode(stream[:at].removesuffix(b"\r"), ended=False))


@given(st.data(), streams(), st.integers(3, 24))
def test_any_stream_breaks_the_line_limit_after_the_same_events_for_every_cut_or_for_none(data, stream, longest):
    slow = SlowDecoder(longest)
    try:
        slow.decode(stream)
    except ResourceLimitExceeded:
        expected = (slow.blocks, True)
    else:
        expected = (slow.blocks, False)
    for cuts in ([], places(data.draw, stream), list(range(1, len(stream)))):
        assert decode_until_it_breaks(stream, cuts, longest) == expected


@given(
    st.data(),
    st.sampled_from([b"", b"\n", b"\r\n", b"\xef\xbb\xbf", b"data: x\n\n", b": hello\r\r"]),
    st.integers(7, 40),
    st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r", b""]),
)
def test_the_longest_line_passes_and_one_byte_more_does_not_wherever_it_is_cut(data, before, longest, after):
    line = b"data: " + b"x" * (longest - 6)
    stream = before + line + after
    assert decode(stream, places(data.draw, stream), longest)[-1][1] == line[6:]

    decoder = SseDecoder(longest)
    unfinished = before + line
    cut = data.draw(st.integers(0, len(unfinished)))
    for piece in (unfinished[:cut], unfinished[cut:]):
        assert all(data == b"x" for _, data in decoder.feed(piece))
    with pytest.raises(ResourceLimitExceeded, match="max_upstream_sse_line_bytes"):
        next(decoder.feed(b"x"))
