"""The queue between the responses of a connection and its client."""

import asyncio

import pytest
from engine.doubles import LONG, settle
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.metrics import Metrics
from gateway.transport.outbound import OutboundQueue, OutboundStatistics


class Line:
    """A queue and a client that takes what it is given while it is free.

    Args:
        room: how many batches it takes before it has to catch up; None for any number.
    """

    def __init__(self, max_batches=2, max_bytes=100, room=0):
        self.metrics = Metrics()
        self.room = room
        self.written = []
        self.queue = OutboundQueue(self.write, len, max_batches=max_batches, max_bytes=max_bytes, metrics=self.metrics)

    def write(self, batch):
        if self.room == 0:
            return False
        if self.room is not None:
            self.room -= 1
        self.written.append(batch)
        return True

    def catch_up(self, room=None):
        self.room = room
        self.queue.resume()

    def gauges(self):
        read = self.metrics.registry.get_sample_value
        return read("gateway_delivery_queue_batches"), read("gateway_delivery_queue_bytes")


@pytest.fixture
def put():
    """Put in the background; the tasks end with the test."""
    tasks = []

    def begin(line, batch):
        tasks.append(asyncio.create_task(line.queue.put(batch)))
        return tasks[-1]

    yield begin
    assert all(task.done() for task in tasks)


async def test_a_batch_goes_straight_to_a_client_that_keeps_up():
    line = Line(room=None)
    await line.queue.put(b"1")
    assert line.queue.write(b"2")
    assert line.written == [b"1", b"2"]
    assert line.queue.statistics == OutboundStatistics(0, 0, 0, 0)
    await asyncio.wait_for(line.queue.drained(), LONG)


async def test_order_is_kept_when_the_client_must_catch_up():
    line = Line()
    await line.queue.put(b"1")
    line.room = None
    assert not line.queue.write(b"2"), "what came before still waits"
    assert line.written == []
    await line.queue.put(b"2")
    assert line.written == [b"1", b"2"], "what is queued looks whether the client is ready"


async def test_a_client_gets_no_more_than_it_takes():
    line = Line(max_batches=5)
    for batch in (b"1", b"2", b"3"):
        await line.queue.put(batch)
    line.catch_up(room=2)
    assert (line.written, line.queue.statistics.batches) == ([b"1", b"2"], 1)


@pytest.mark.parametrize(
    ("waiting", "next_size"), [([1, 1], 1), ([60], 41)], ids=["too many batches", "too many bytes"]
)
async def test_a_full_queue_makes_the_producer_wait_until_there_is_room(put, waiting, next_size):
    line = Line(max_batches=2, max_bytes=100)
    for size in waiting:
        await line.queue.put(b"x" * size)
    producer = put(line, b"y" * next_size)
    await settle()
    assert not producer.done()
    line.catch_up(room=1)
    await producer
    line.catch_up()
    assert line.written == [*(b"x" * size for size in waiting), b"y" * next_size]


@pytest.mark.parametrize(("waiting", "next_size"), [([1], 1), ([60], 40)], ids=["batches", "bytes"])
async def test_the_bounds_themselves_are_allowed(waiting, next_size):
    line = Line(max_batches=2, max_bytes=100)
    for size in [*waiting, next_size]:
        await asyncio.wait_for(line.queue.put(b"x" * size), LONG)
    assert line.queue.statistics.batches == 2


async def test_an_empty_queue_admits_a_batch_above_the_byte_bound(put):
    line = Line(max_bytes=100)
    await asyncio.wait_for(line.queue.put(b"x" * 1000), LONG)
    later = put(line, b"y")
    await settle()
    assert not later.done()
    line.catch_up()
    await later


async def test_producers_get_room_in_turn(put):
    line = Line(max_batches=1)
    await line.queue.put(b"0")
    producers = [put(line, b"%d" % number) for number in range(1, 5)]
    await settle()
    for number in range(1, 5):
        line.catch_up(room=1)
        await settle()
        assert [producer.done() for producer in producers] == [index < number for index in range(4)]
    line.catch_up()
    assert line.written == [b"%d" % number for number in range(5)]


async def test_a_producer_that_is_cancelled_leaves_its_batch_and_a_usable_queue(put):
    line = Line(max_batches=1)
    await line.queue.put(b"1")
    producer = put(line, b"2")
    await settle()
    producer.cancel()
    await asyncio.wait([producer])
    line.catch_up(room=2)
    assert line.written == [b"1", b"2"]
    await line.queue.put(b"3")
    line.catch_up()
    assert line.written == [b"1", b"2", b"3"]


async def test_room_is_passed_on_by_a_producer_that_is_cancelled_with_it(put):
    line = Line(max_batches=2)
    await line.queue.put(b"1")
    await line.queue.put(b"2")
    first, second = put(line, b"3"), put(line, b"4")
    await settle()
    line.catch_up(room=2)
    first.cancel()
    await asyncio.wait([first])
    await asyncio.wait_for(second, LONG)
    line.catch_up()
    assert line.written == [b"1", b"2", b"3", b"4"]


async def test_nobody_overtakes_a_producer_that_has_been_called(put):
    line = Line(max_batches=1)
    producers = [put(line, batch) for batch in (b"1", b"2")]
    await settle()
    line.catch_up()
    # The second has been called, and has not run yet.
    assert not line.queue.write(b"x")
    producers.append(put(line, b"3"))
    await asyncio.gather(*producers)
    assert line.written == [b"1", b"2", b"3"]


async def test_who_waits_until_something_has_left_waits_for_no_more(put):
    line = Line(max_batches=3)
    assert await asyncio.wait_for(line.queue.passed(), LONG) is None
    for batch in (b"1", b"2"):
        await line.queue.put(batch)
    passed = asyncio.create_task(line.queue.passed())
    await settle()
    await line.queue.put(b"3")
    line.catch_up(1)
    await settle()
    assert not passed.done()
    line.catch_up(1)
    await passed
    assert line.queue.statistics.batches == 1
    passed = asyncio.create_task(line.queue.passed())
    await settle()
    line.queue.close()
    await passed


async def test_closing_drops_what_waits_and_frees_everybody(put):
    line = Line(max_batches=1)
    await line.queue.put(b"1")
    producer = put(line, b"2")
    flush = asyncio.create_task(line.queue.drained())
    await settle()
    line.queue.close()
    await asyncio.wait_for(asyncio.gather(producer, flush), LONG)
    line.room = None
    await asyncio.wait_for(line.queue.put(b"x" * 1000), LONG)
    assert (line.written, line.queue.statistics.batches, line.gauges()) == ([], 0, (0, 0))


async def test_who_waits_for_the_end_is_told_when_all_has_left():
    line = Line()
    await line.queue.put(b"1")
    await line.queue.put(b"2")
    flush = asyncio.create_task(line.queue.drained())
    line.catch_up(room=1)
    await settle()
    assert not flush.done()
    line.catch_up()
    await asyncio.wait_for(flush, LONG)


async def test_the_numbers_of_a_queue():
    line = Line(max_batches=3)
    await line.queue.put(b"x" * 7)
    await line.queue.put(b"x" * 5)
    assert line.queue.statistics == OutboundStatistics(batches=2, bytes=12, max_batches=2, max_bytes=12)
    assert line.gauges() == (2, 12)
    line.catch_up(room=2)
    await line.queue.put(b"x")
    assert line.queue.statistics == OutboundStatistics(batches=1, bytes=1, max_batches=2, max_bytes=12)
    line.queue.close()
    assert line.gauges() == (0, 0)


pauses = st.lists(st.integers(0, 3), max_size=12)


@given(
    producers=st.lists(st.lists(st.integers(1, 40), max_size=8), min_size=1, max_size=3),
    max_batches=st.integers(1, 3),
    max_bytes=st.integers(1, 60),
    producer_pauses=pauses,
    rooms=st.lists(st.integers(0, 3), max_size=12),
)
async def test_everything_arrives_in_order_and_the_bounds_hold(
    producers, max_batches, max_bytes, producer_pauses, rooms
):
    line = Line(max_batches, max_bytes)

    async def produce(number, sizes):
        for index, size in enumerate(sizes):
            await settle(producer_pauses[index] if index < len(producer_pauses) else 0)
            await line.queue.put([(number, index)] * size)

    running = [asyncio.create_task(produce(number, sizes)) for number, sizes in enumerate(producers)]
    for room in rooms:
        line.catch_up(room)
        await settle(2)
    line.catch_up()
    await asyncio.wait_for(asyncio.gather(*running, line.queue.drained()), LONG)
    for number, sizes in enumerate(producers):
        own = [batch for batch in line.written if batch[0][0] == number]
        assert [(batch[0][1], len(batch)) for batch in own] == list(enumerate(sizes))
    statistics = line.queue.statistics
    assert (statistics.batches, statistics.bytes) == (0, 0)
    assert statistics.max_batches <= max_batches
    assert statistics.max_bytes <= max([max_bytes, *(size for sizes in producers for size in sizes)])
    assert line.gauges() == (0, 0)
