import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport.socket_site import BINARY, CONT, PING, TEXT, Client, frame, upgrade

from gateway.transport.conversation import Conversation, frame_texts


async def read_all(data, count):
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    client = Client(reader, None)
    frames = [await client.frame() for _ in range(count)]
    assert reader.at_eof()
    return frames


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_every_payload_becomes_one_text_frame(payloads):
    assert asyncio.run(read_all(frame_texts(payloads), len(payloads))) == [(TEXT, payload) for payload in payloads]


async def test_the_length_of_a_frame_takes_the_form_it_needs():
    payloads = [b"x" * size for size in (0, 125, 126, 65_535, 65_536, 3_000_000)]
    data = frame_texts(payloads)
    assert await read_all(data, len(payloads)) == [(TEXT, payload) for payload in payloads]
    assert len(data) == sum(map(len, payloads)) + 2 * 2 + 2 * 4 + 2 * 10


MAX = 70_000
BEGUN = frame(TEXT, b"be", fin=False)
SIZES = [0, 1, 125, 126, 127, 128, 255, 4000, 65_535, 65_536, MAX, MAX + 1]


def converse(*reads):
    """What comes of reads behind the handshake and a first message: the frames, and what the client broke."""
    conversation = Conversation(MAX, logging.getLogger("test"), [], None)
    conversation.read_slice(upgrade())
    (request,) = conversation.events_received()
    conversation.send_response(conversation.accept(request))
    conversation.read_slice(frame(TEXT, b"first"))
    for read in reads:
        conversation.read_slice(read)
    events = [(event.opcode, bytes(event.data), event.fin) for event in conversation.events_received()]
    return events, type(conversation.parser_exc), conversation.state


@pytest.mark.parametrize(
    "data",
    [
        *(frame(TEXT, b"x" * size) for size in SIZES),
        frame(TEXT, "\u00e9".encode()),
        frame(TEXT, b"not masked", masked=False),
        frame(TEXT, b"x" * 200, masked=False),
        frame(TEXT, b"reserved", reserved=0x40),
        frame(TEXT, b"short", declared=6),
        frame(TEXT, b"long", declared=3),
        frame(BINARY, b"bytes"),
        frame(PING, b"ping"),
        frame(TEXT, b"one") + frame(TEXT, b"two"),
        BEGUN + frame(TEXT, b"out of turn"),
        BEGUN + frame(CONT, b"gun") + frame(TEXT, b"next"),
        b"\x81",
        b"\x81\xff" + bytes(131),
    ],
    ids=lambda data: data[:6].hex(),
)
@pytest.mark.parametrize("behind", [(), (frame(TEXT, b"behind"),)], ids=["alone", "more"])
def test_a_message_is_the_same_however_its_bytes_are_cut(data, behind):
    at_once = converse(data, *behind)
    assert converse(data[:1], data[1:], *behind) == at_once
    assert converse(data[:3], data[3:], *behind) == at_once
    assert converse(b"".join([data, *behind])) == at_once


def test_a_whole_message_between_the_parts_of_another_is_refused():
    assert converse(BEGUN, frame(TEXT, b"out of turn")) == converse(BEGUN + frame(TEXT, b"out of turn"))
