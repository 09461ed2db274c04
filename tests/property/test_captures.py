"""Streams of real engines say the same however the network cuts them."""

import random

import pytest
from conformance import capture as captures
from conformance.verdict import judge_stream
from property.engine import Client, make_turn

from gateway.protocol import codec, sse
from gateway.protocol.errors import GatewayError, UpstreamError
from gateway.protocol.upstream_events import parse

STREAMED = [name for name in captures.names() if captures.load(name).streams]


def listen(raw: bytes, cuts: list[int]) -> list[dict]:
    """What a client is told when the raw stream arrives cut at these places."""
    client = Client(make_turn())
    decoder = sse.SseDecoder(1 << 24)
    round_ = client.turn.open_round()

    def take(blocks: list[sse.Block]) -> None:
        for name, data in blocks:
            if data != sse.DONE_DATA:
                client.hear(client.turn.ingest(round_, parse(name, data)))

    try:
        for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            take(decoder.feed(raw[start:end]))
        take(decoder.end())
        if not round_.ended:
            raise UpstreamError("The stream ended without a terminal event.")
        client.finish()
    except GatewayError as error:
        client.fail(error, round_)
    return client.told


@pytest.mark.parametrize("name", STREAMED)
def test_cuts_change_nothing(name):
    raw = captures.load(name).raw
    uncut = listen(raw, [])
    # Seeded by the name: the same places in every run, other places in every capture.
    places = random.Random(name)
    assert listen(raw, sorted(places.sample(range(len(raw)), min(len(raw), 300)))) == uncut
    assert listen(raw, list(range(0, len(raw), max(1, len(raw) // 5000)))) == uncut
    assert judge_stream(_as_stream(uncut)) == []


def _as_stream(told: list[dict]) -> bytes:
    frames = [sse.frame(event["type"].encode(), codec.encode(event)) for event in told]
    return b"".join([*frames, sse.DONE])
