"""The queue between a run and its client."""

import asyncio

import pytest
from engine.doubles import LONG, settle
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.delivery import Delivery, DeliveryStatistics
from gateway.protocol.errors import InternalError, UpstreamError
from gateway.telemetry.metrics import Metrics

SHORT = 0.02


def event(size=1, fill=b"x"):
    return b"e", fill * size


class Queue:
    """A delivery and the gauges of its process."""

    def __init__(self, max_batches=2, max_bytes=100, *, released=True):
        self.metrics = Metrics()
        self.delivery = Delivery(max_batches, max_bytes, self.metrics)
        if released:
            self.delivery.release()

    def gauges(self):
        read = self.metrics.registry.get_sample_value
        return read("gateway_delivery_queue_batches"), read("gateway_delivery_queue_bytes")


@pytest.fixture
def put():
    """Put in the background; the tasks end with the test."""
    tasks = []

    def begin(delivery, batch):
        tasks.append(asyncio.create_task(delivery.put(batch)))
        return tasks[-1]

    yield begin
    assert all(task.done() for task in tasks)


async def test_what_waits_is_taken_in_one_piece():
    queue = Queue()
    await queue.delivery.put([event(fill=b"1"), event(fill=b"2")])
    await queue.delivery.put([event(fill=b"3")])
    assert [data for _, data in await queue.delivery.take(LONG)] == [b"1", b"2", b"3"]


async def test_one_batch_is_taken_as_it_is():
    queue = Queue()
    batch = [event()]
    await queue.delivery.put(batch)
    assert await queue.delivery.take(LONG) is batch


@pytest.mark.parametrize(
    ("waiting", "next_size"),
    [([1, 1], 1), ([60], 41)],
    ids=["too many batches", "too many bytes"],
)
async def test_a_full_queue_makes_the_producer_wait_until_it_is_emptied(put, waiting, next_size):
    queue = Queue(max_batches=2, max_bytes=100)
    for size in waiting:
        await queue.delivery.put([event(size)])
    producer = put(queue.delivery, [event(next_size, b"y")])
    await settle()
    assert not producer.done()
    assert len(await queue.delivery.take(LONG)) == len(waiting)
    await producer
    assert (await queue.delivery.take(LONG))[0][1] == b"y" * next_size


@pytest.mark.parametrize(("waiting", "next_size"), [([1], 1), ([60], 40)], ids=["batches", "bytes"])
async def test_the_bounds_themselves_are_allowed(waiting, next_size):
    queue = Queue(max_batches=2, max_bytes=100)
    for size in [*waiting, next_size]:
        await asyncio.wait_for(queue.delivery.put([event(size)]), LONG)
    assert queue.delivery.statistics.batches == 2


async def test_an_empty_queue_admits_a_batch_above_the_byte_bound(put):
    queue = Queue(max_bytes=100)
    await asyncio.wait_for(queue.delivery.put([event(1000)]), LONG)
    later = put(queue.delivery, [event(1)])
    await settle()
    assert not later.done()
    await queue.delivery.take(LONG)
    await later


async def test_nothing_is_seen_before_the_release():
    queue = Queue(released=False)
    consumer = asyncio.create_task(queue.delivery.take(0))
    await queue.delivery.put([event()])
    await asyncio.sleep(SHORT)
    assert not queue.delivery.released
    assert not consumer.done()
    queue.delivery.release()
    assert queue.delivery.released
    assert await consumer == [event()]


async def test_silence_counts_from_the_release_alone():
    queue = Queue(released=False)
    consumer = asyncio.create_task(queue.delivery.take(SHORT))
    await asyncio.sleep(3 * SHORT)
    assert not consumer.done()
    queue.delivery.release()
    assert await consumer is None
    queue.delivery.abandon()


async def test_silence_does_not_end_the_stream():
    queue = Queue()
    assert await queue.delivery.take(SHORT) is None
    await queue.delivery.put([event()])
    assert await queue.delivery.take(LONG) == [event()]
    queue.delivery.abandon()


async def test_a_failure_before_the_release_is_raised_at_the_consumer():
    queue = Queue(released=False)
    await queue.delivery.put([event()])
    consumer = asyncio.create_task(queue.delivery.take(LONG))
    await settle()
    queue.delivery.finish(UpstreamError("No."))
    with pytest.raises(UpstreamError, match=r"No\."):
        await consumer


async def test_a_failure_after_the_release_only_ends_the_stream():
    queue = Queue()
    await queue.delivery.put([event()])
    queue.delivery.finish(UpstreamError("No."))
    assert not queue.delivery.exhausted
    assert await queue.delivery.take(LONG) == [event()]
    assert queue.delivery.exhausted
    assert await queue.delivery.take(LONG) == []


async def test_the_first_end_counts():
    queue = Queue(released=False)
    queue.delivery.finish(UpstreamError("First."))
    queue.delivery.finish(InternalError())
    with pytest.raises(UpstreamError, match=r"First\."):
        await queue.delivery.take(LONG)


async def test_an_end_wakes_the_consumer():
    queue = Queue()
    consumer = asyncio.create_task(queue.delivery.take(LONG))
    await settle()
    queue.delivery.finish()
    assert await consumer == []


async def test_abandoning_frees_the_producer_and_drops_what_waits(put):
    queue = Queue(max_batches=1)
    await queue.delivery.put([event()])
    producer = put(queue.delivery, [event()])
    await settle()
    queue.delivery.abandon()
    await producer
    await asyncio.wait_for(queue.delivery.put([event(1000)]), LONG)
    assert queue.delivery.abandoned
    assert queue.delivery.statistics.batches == 0
    assert queue.gauges() == (0, 0)


async def test_abandoning_ends_the_consumer():
    queue = Queue()
    consumer = asyncio.create_task(queue.delivery.take(LONG))
    await settle()
    queue.delivery.abandon()
    assert await consumer == []
    queue.delivery.finish()
    assert not queue.delivery.exhausted


async def test_a_producer_that_is_cancelled_leaves_its_batch_and_a_usable_queue(put):
    queue = Queue(max_batches=1)
    await queue.delivery.put([event(fill=b"1")])
    producer = put(queue.delivery, [event(fill=b"2")])
    await settle()
    producer.cancel()
    await asyncio.wait([producer])
    assert await queue.delivery.take(LONG) == [event(fill=b"1"), event(fill=b"2")]
    await queue.delivery.put([event(fill=b"3")])
    assert await queue.delivery.take(LONG) == [event(fill=b"3")]


async def test_a_consumer_that_is_cancelled_leaves_the_queue_usable():
    queue = Queue()
    consumer = asyncio.create_task(queue.delivery.take(LONG))
    await settle()
    consumer.cancel()
    await asyncio.wait([consumer])
    await queue.delivery.put([event()])
    assert await queue.delivery.take(LONG) == [event()]
    queue.delivery.abandon()


async def test_the_numbers_of_a_queue():
    queue = Queue(max_batches=3)
    await queue.delivery.put([event(3), event(4)])
    await queue.delivery.put([event(5)])
    assert queue.delivery.statistics == DeliveryStatistics(batches=2, bytes=12, max_batches=2, max_bytes=12)
    assert queue.gauges() == (2, 12)
    await queue.delivery.take(LONG)
    await queue.delivery.put([event(1)])
    assert queue.delivery.statistics == DeliveryStatistics(batches=1, bytes=1, max_batches=2, max_bytes=12)
    await queue.delivery.take(LONG)
    assert queue.gauges() == (0, 0)


batches = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=3), max_size=12)
pauses = st.lists(st.integers(0, 3), max_size=12)


@given(
    sizes=batches,
    max_batches=st.integers(1, 3),
    max_bytes=st.integers(1, 60),
    producer_pauses=pauses,
    consumer_pauses=pauses,
    released=st.booleans(),
)
async def test_everything_arrives_in_order_and_the_bounds_hold(
    sizes, max_batches, max_bytes, producer_pauses, consumer_pauses, released
):
    queue = Queue(max_batches, max_bytes, released=released)
    delivery = queue.delivery
    numbers = iter(range(1000))
    sent = [[(b"%d" % next(numbers), b"x" * size) for size in batch] for batch in sizes]

    async def produce():
        for number, batch in enumerate(sent):
            await settle(producer_pauses[number] if number < len(producer_pauses) else 0)
            await delivery.put(batch)
            # As a run does: only the first batch is put before the release, for which there is always room.
            delivery.release()
        delivery.finish()

    producer = asyncio.create_task(produce())
    received = []
    waits = iter(consumer_pauses)
    while taken := await delivery.take(LONG):
        received += taken
        await settle(next(waits, 0))
    await producer
    assert received == [event for batch in sent for event in batch]
    assert delivery.exhausted
    statistics = delivery.statistics
    assert (statistics.batches, statistics.bytes) == (0, 0)
    assert statistics.max_batches <= max_batches
    assert statistics.max_bytes <= max([max_bytes, *map(sum, sizes)])
    assert queue.gauges() == (0, 0)


# ---------------------------------------------------------------- straight to the connection


class Line:
    """A connection that takes what it is given while it is free."""

    def __init__(self):
        self.free = True
        self.written = []

    def write(self, batch):
        if self.free:
            self.written.append(batch)
        return self.free


async def attached(queue):
    line = Line()
    queue.delivery.attach(line.write)
    consumer = asyncio.create_task(queue.delivery.take(LONG))
    await settle()
    return line, consumer


async def test_a_batch_goes_straight_to_a_connection_that_keeps_up():
    queue = Queue()
    line, consumer = await attached(queue)
    await queue.delivery.put([event()])
    await queue.delivery.put([event(2)])
    assert line.written == [[event()], [event(2)]]
    assert queue.delivery.statistics == DeliveryStatistics(0, 0, 0, 0)
    assert not consumer.done()
    queue.delivery.abandon()
    assert await consumer == []


async def test_order_is_kept_when_the_connection_must_catch_up():
    queue = Queue(max_batches=10)
    line, consumer = await attached(queue)
    line.free = False
    await queue.delivery.put([event(fill=b"1")])
    line.free = True
    await queue.delivery.put([event(fill=b"2")])
    assert line.written == []
    assert await consumer == [event(fill=b"1"), event(fill=b"2")]
    await queue.delivery.put([event(fill=b"3")])
    assert line.written == [], "nobody waits in take, so the consumer may be in the middle of a send"
    assert await queue.delivery.take(LONG) == [event(fill=b"3")]
    queue.delivery.abandon()


async def test_the_last_batch_goes_through_the_queue():
    queue = Queue()
    line, consumer = await attached(queue)
    await queue.delivery.put([event()], last=True)
    queue.delivery.finish()
    assert (line.written, await consumer) == ([], [event()])
    assert queue.delivery.exhausted


async def test_what_goes_straight_out_is_no_silence():
    queue = Queue()
    line = Line()
    queue.delivery.attach(line.write)
    consumer = asyncio.create_task(queue.delivery.take(10 * SHORT))
    for _ in range(8):
        await asyncio.sleep(2 * SHORT)
        await queue.delivery.put([event()])
    assert not consumer.done()
    assert await asyncio.wait_for(consumer, 60) is None
    queue.delivery.abandon()


async def test_nothing_goes_straight_out_after_the_client_has_gone():
    queue = Queue()
    line, consumer = await attached(queue)
    queue.delivery.abandon()
    await queue.delivery.put([event()])
    assert (line.written, await consumer) == ([], [])
