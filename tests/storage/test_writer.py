import asyncio
import threading

import pytest

from gateway.protocol.errors import InternalError, StorageUnavailable
from gateway.storage.writer import Writer
from gateway.telemetry.loads import StorageLoad
from tests.storage.samples import make_item, make_response

BOUNDS = {"max_entries": 100, "max_bytes": 10_000, "batch_entries": 100}


class HeldCommit:
    """Records batches; holds each until released."""

    def __init__(self):
        self.batches = []
        self.entered = threading.Semaphore(0)
        self.released = threading.Semaphore(0)
        self.outcome = lambda response: None

    def __call__(self, batch):
        self.batches.append([response.id for response in batch])
        self.entered.release()
        self.released.acquire()
        return [self.outcome(response) for response in batch]


@pytest.fixture
def commit():
    return HeldCommit()


@pytest.fixture
async def make_writer(commit):
    writers = []

    def make(**bounds):
        writer = Writer(commit, **{**BOUNDS, **bounds})
        writer.start()
        writers.append(writer)
        return writer

    yield make
    for _ in range(100):
        commit.released.release()
    for writer in writers:
        await asyncio.to_thread(writer.close)


async def write_held(writer, commit, response):
    """Start a write and return once the thread is inside its commit."""
    task = asyncio.create_task(writer.write(response))
    await asyncio.sleep(0)
    await asyncio.to_thread(commit.entered.acquire)
    return task


async def queue_all(writer, responses):
    tasks = [asyncio.create_task(writer.write(response)) for response in responses]
    await asyncio.sleep(0)
    return tasks


async def test_all_that_waits_is_committed_together_and_in_order(make_writer, commit):
    load = StorageLoad()
    writer = make_writer(load=load)
    first = make_response()
    rest = [make_response() for _ in range(10)]
    held = await write_held(writer, commit, first)
    tasks = await queue_all(writer, rest)
    assert not held.done()
    assert (load.entries.now, load.bytes.now > 0) == (11, True)
    commit.released.release()
    await held
    assert not any(task.done() for task in tasks)
    commit.released.release()
    await asyncio.gather(*tasks)
    assert commit.batches == [[first.id], [response.id for response in rest]]
    assert (load.entries.now, load.bytes.now) == (0, 0)
    assert load.entries.high == 11


async def test_a_batch_is_bounded(make_writer, commit):
    writer = make_writer(batch_entries=4)
    tasks = [await write_held(writer, commit, make_response()), *await queue_all(writer, [make_response()] * 10)]
    for _ in range(4):
        commit.released.release()
    await asyncio.gather(*tasks)
    assert [len(batch) for batch in commit.batches] == [1, 4, 4, 2]


async def test_the_queue_is_bounded_in_entries(make_writer, commit):
    writer = make_writer(max_entries=2)
    tasks = [await write_held(writer, commit, make_response()), *await queue_all(writer, [make_response()] * 2)]
    with pytest.raises(StorageUnavailable, match="writer_max_entries"):
        await writer.write(make_response())
    commit.released.release()
    commit.released.release()
    await asyncio.gather(*tasks)
    await_one_more = await write_held(writer, commit, make_response())
    commit.released.release()
    await await_one_more


async def test_the_queue_is_bounded_in_bytes_including_what_is_being_committed(make_writer, commit):
    writer = make_writer(max_bytes=100)
    half = make_response(make_item(data=b"x" * 30), snapshot=b"y" * 20)
    tasks = [await write_held(writer, commit, half), *await queue_all(writer, [half])]
    with pytest.raises(StorageUnavailable, match="writer_max_bytes"):
        await writer.write(make_response(snapshot=b"z"))
    commit.released.release()
    commit.released.release()
    await asyncio.gather(*tasks)
    again = await write_held(writer, commit, half)
    commit.released.release()
    await again


async def test_one_response_above_the_byte_bound_passes_an_empty_queue(make_writer, commit):
    writer = make_writer(max_bytes=10)
    task = await write_held(writer, commit, make_response(snapshot=b"x" * 1000))
    commit.released.release()
    await task


async def test_each_caller_gets_its_own_outcome(make_writer, commit):
    writer = make_writer()
    bad = make_response()
    commit.outcome = lambda response: StorageUnavailable("bad") if response.id == bad.id else None
    held = await write_held(writer, commit, make_response())
    good, failed, also_good = await queue_all(writer, [make_response(), bad, make_response()])
    commit.released.release()
    commit.released.release()
    await asyncio.gather(held, good, also_good)
    with pytest.raises(StorageUnavailable, match="bad"):
        await failed


async def test_a_cancelled_caller_leaves_its_response_in_the_queue(make_writer, commit):
    writer = make_writer()
    held = await write_held(writer, commit, make_response())
    left = make_response()
    (leaving,) = await queue_all(writer, [left])
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    commit.released.release()
    commit.released.release()
    await held
    await asyncio.to_thread(writer.close)
    assert commit.batches[1] == [left.id]


async def test_close_writes_what_waits_and_refuses_what_comes(make_writer, commit):
    writer = make_writer()
    tasks = [await write_held(writer, commit, make_response()), *await queue_all(writer, [make_response()] * 5)]
    closing = asyncio.create_task(asyncio.to_thread(writer.close))
    while not writer._closed:
        await asyncio.sleep(0.001)
    with pytest.raises(StorageUnavailable, match="closed"):
        await writer.write(make_response())
    commit.released.release()
    commit.released.release()
    await asyncio.gather(*tasks, closing)
    assert [len(batch) for batch in commit.batches] == [1, 5]


async def test_the_thread_outlives_a_fault(make_writer, commit, caplog):
    writer = make_writer()

    def explode(response):
        raise RuntimeError("boom")

    commit.outcome = explode
    task = await write_held(writer, commit, make_response())
    commit.released.release()
    with pytest.raises(InternalError):
        await task
    assert "boom" in caplog.text
    commit.outcome = lambda response: None
    task = await write_held(writer, commit, make_response())
    commit.released.release()
    await task


def test_an_event_loop_that_is_gone_disturbs_nobody(commit):
    writer = Writer(commit, **BOUNDS)
    writer.start()

    async def leave():
        await write_held(writer, commit, make_response())

    asyncio.run(leave())
    commit.released.release()

    async def come():
        task = await write_held(writer, commit, make_response())
        commit.released.release()
        await task

    asyncio.run(come())
    writer.close()


def test_close_without_start_returns(commit):
    Writer(commit, **BOUNDS).close()
