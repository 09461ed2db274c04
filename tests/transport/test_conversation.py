import asyncio

from hypothesis import given
from hypothesis import strategies as st
from transport.socket_site import TEXT, Client

from gateway.transport.conversation import frame_texts


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
