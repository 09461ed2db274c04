"""A block that is bounded: as long as it may take, ended early, and beside other cancellations."""

import asyncio

import pytest

from gateway.timing.limit import TimeLimit


async def hang(limit):
    with limit:
        await asyncio.Event().wait()


async def begin(limit):
    task = asyncio.create_task(hang(limit))
    await asyncio.sleep(0)
    return task


async def test_a_block_within_its_time_is_left_alone():
    limit = TimeLimit(60)
    with limit:
        await asyncio.sleep(0)
    assert not limit.passed
    limit.end()
    await asyncio.sleep(0)
    assert not limit.passed


async def test_a_block_that_takes_too_long_ends():
    limit = TimeLimit(0.001)
    with pytest.raises(TimeoutError):
        await hang(limit)
    assert limit.passed
    assert not asyncio.current_task().cancelling()


async def test_a_block_can_be_ended_before_its_time_once():
    limit = TimeLimit(60)
    task = await begin(limit)
    limit.end()
    limit.end()
    with pytest.raises(TimeoutError):
        await task


async def test_a_cancellation_of_the_task_stays_one():
    task = await begin(TimeLimit(60))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_comes_with_the_end_stays_one():
    limit = TimeLimit(60)
    task = await begin(limit)
    limit.end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_another_failure_of_the_block_is_told_as_it_is():
    async def fail():
        with TimeLimit(60) as limit:
            limit.end()
            raise KeyError

    with pytest.raises(KeyError):
        await asyncio.create_task(fail())


async def test_of_two_blocks_only_the_one_whose_time_is_over_ends():
    outer, inner = TimeLimit(60), TimeLimit(0.001)
    with outer:
        with pytest.raises(TimeoutError):
            await hang(inner)
        await asyncio.sleep(0)
    assert (outer.passed, inner.passed) == (False, True)
