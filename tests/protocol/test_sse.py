"""What the decoder does with each kind of line, and how our own events are framed."""

import pytest

from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.sse import DONE, DONE_DATA, KEEPALIVE, Block, SseDecoder, frame


def decode(*chunks: bytes, longest: int = 1000) -> list[Block]:
    decoder = SseDecoder(longest)
    return [block for chunk in chunks for block in decoder.feed(chunk)] + [*decoder.end()]


def test_a_frame_is_decoded_to_what_was_framed():
    assert decode(frame(b"response.created", b'{"a":"\xe2\x80\xa8"}')) == [
        (b"response.created", b'{"a":"\xe2\x80\xa8"}')
    ]


def test_a_keepalive_is_no_event_and_the_last_marker_has_no_name():
    assert decode(KEEPALIVE + DONE + KEEPALIVE) == [(b"", DONE_DATA)]


@pytest.mark.parametrize(
    ("stream", "blocks"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data:a\n\n", [(b"", b"a")]),
        (b"data:  a\n\n", [(b"", b" a")]),
        (b"data\n\n", [(b"", b"")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"data: a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [(b"x", b"a"), (b"", b"b")]),
        (b"event: x\nevent: y\ndata: a\n\n", [(b"y", b"a")]),
        (b"event: x\n\ndata: a\n\n", [(b"", b"a")]),
        (b"event: x\nid: 1\n\ndata: a\n\n", [(b"", b"a")]),
        (b"id: 7\nretry: 3\n: note\nfoo: bar\ndata: a\n\n", [(b"", b"a")]),
        (b"\n\n\n\ndata: a\n\n\n", [(b"", b"a")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [(b"", b"a"), (b"", b"b"), (b"", b"c")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"data: \xef\xbb\xbfa\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"\xef\xbb\xbfa")]),
        (b"", []),
        (b"\n", []),
        (b": only a comment\n", []),
    ],
)
def test_lines_become_blocks(stream, blocks):
    assert decode(stream) == blocks
    assert decode(*[stream[at : at + 1] for at in range(len(stream))]) == blocks


@pytest.mark.parametrize("rest", [b"data: a", b"data: a\n", b"data: a\r", b"data: a\r\n", b": c\ndata: a"])
def test_a_stream_that_ends_early_still_yields_its_last_event_once(rest):
    decoder = SseDecoder(100)
    assert [*decoder.feed(rest)] == []
    assert [*decoder.end()] == [(b"", b"a")]
    assert [*decoder.end()] == []


def test_an_event_leaves_as_soon_as_its_blank_line_is_complete():
    decoder = SseDecoder(100)
    assert [*decoder.feed(b"data: a\n")] == []
    assert [*decoder.feed(b"\n")] == [(b"", b"a")]
    assert [*decoder.feed(b"data: b\r\n\r")] == []
    assert [*decoder.feed(b"\ndata: c")] == [(b"", b"b")]


def test_lines_are_bounded_while_they_are_read():
    decoder = SseDecoder(10)
    assert [*decoder.feed(b"data: 1234")] == []
    with pytest.raises(ResourceLimitExceeded) as refused:
        next(decoder.feed(b"5"))
    assert refused.value.details == {"resource": "max_upstream_sse_line_bytes", "limit": 10}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_data_of_one_event_is_held_to_the_bound_of_one_line(end):
    assert decode((b"data:123" + end) * 3 + end, longest=9) == [(b"", b"123\n123\n123")]
    with pytest.raises(ResourceLimitExceeded):
        decode((b"data:123" + end) * 4 + end, longest=9)


def test_what_stands_around_the_data_of_an_event_is_read_and_let_go():
    comments = [b": " + b"c" * 900 + b"\n"] * 200
    assert decode(*comments, b"data: a\n\n", b"data: b\n\n") == [(b"", b"a"), (b"", b"b")]
    assert decode(b"".join(comments), b"data: a\n\ndata: b\n\n") == [(b"", b"a"), (b"", b"b")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_event_that_never_ends_is_bounded_while_it_is_read(end):
    decoder = SseDecoder(1000)
    assert [*decoder.feed(b"data:" + b"d" * 900 + end)] == []
    with pytest.raises(ResourceLimitExceeded):
        list(map(list, map(decoder.feed, [b"data:" + b"d" * 900 + end] * 200)))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("rest", [b"", b"!", b"!\n\ndata: c\n\n"])
def test_what_was_complete_before_a_long_line_is_still_told(end, rest):
    stream = b"data: a\n\ndata: " + b"b" * 14 + b"\n\ndata: " + b"c" * 15
    told = []
    with pytest.raises(ResourceLimitExceeded):
        told.extend(SseDecoder(20).feed(stream.replace(b"\n", end) + rest))
    assert told == [(b"", b"a"), (b"", b"b" * 14)]
