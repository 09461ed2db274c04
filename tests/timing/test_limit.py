"""A block that is bounded: as long as it may take, ended early, and beside other cancellations."""

import asyncio
import weakref
from contextvars import ContextVar

import pytest
from harness.virtual_time import VirtualLoop

from gateway.timing.limit import SharedTimer, TimeLimit


@pytest.fixture(params=["own timer", "shared timer"])
def make(request):
    """Return a maker of limits."""
    return TimeLimit if request.param == "own timer" else lambda seconds: TimeLimit(seconds, SharedTimer(seconds))


async def hang(limit):
    with limit:
        await asyncio.Event().wait()


async def begin(limit):
    task = asyncio.create_task(hang(limit))
    await asyncio.sleep(0)
    return task


async def test_a_block_within_its_time_is_left_alone(make):
    limit = make(60)
    with limit:
        await asyncio.sleep(0)
    assert not limit.passed
    limit.end()
    await asyncio.sleep(0)
    assert not limit.passed


async def test_a_block_that_takes_too_long_ends(make):
    limit = make(0.001)
    with pytest.raises(TimeoutError):
        await hang(limit)
    assert limit.passed
    assert not asyncio.current_task().cancelling()


async def test_no_time_at_all_is_over_in_the_next_turn_of_the_loop():
    limit = TimeLimit(0, SharedTimer(0))
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(0)
    assert limit.passed


async def test_a_block_can_be_ended_before_its_time_once(make):
    limit = make(60)
    task = await begin(limit)
    limit.end()
    limit.end()
    with pytest.raises(TimeoutError):
        await task


async def test_a_cancellation_of_the_task_stays_one(make):
    task = await begin(make(60))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_comes_with_the_end_stays_one(make):
    limit = make(60)
    task = await begin(limit)
    limit.end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_another_failure_of_the_block_is_told_as_it_is(make):
    async def fail():
        with make(60) as limit:
            limit.end()
            raise KeyError

    with pytest.raises(KeyError):
        await asyncio.create_task(fail())


async def test_of_two_blocks_only_the_one_whose_time_is_over_ends(make):
    outer, inner = make(60), make(0.001)
    with outer:
        with pytest.raises(TimeoutError):
            await hang(inner)
        await asyncio.sleep(0)
    assert (outer.passed, inner.passed) == (False, True)


async def test_of_blocks_that_share_a_timer_each_ends_in_its_time():
    async def hang_from(start: int) -> None:
        await asyncio.sleep(start)
        with pytest.raises(TimeoutError):
            await hang(TimeLimit(4, timer))
        ends.append(loop.time())

    async def leave_early() -> None:
        with TimeLimit(4, timer):
            await asyncio.sleep(2)

    loop, timer, ends = asyncio.get_running_loop(), SharedTimer(4), []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leave_early())
        for start in (0, 1, 1, 3, 20):
            tasks.create_task(hang_from(start))
    assert ends == [4, 5, 5, 7, 24]


async def test_what_has_ended_is_not_ended_again_by_a_timer_that_is_shared():
    timer = SharedTimer(4)
    with TimeLimit(4, timer) as first:
        pass
    with TimeLimit(4, timer) as second:
        second.end()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        await asyncio.sleep(8)
    assert (first.passed, second.passed) == (False, True)


def test_a_timer_that_is_shared_serves_one_loop_after_the_other():
    async def live() -> None:
        with pytest.raises(TimeoutError):
            await hang(TimeLimit(4, timer))
        with TimeLimit(4, timer):
            pass

    timer = SharedTimer(4)
    for _ in range(3):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(live())


async def test_a_timer_that_is_shared_keeps_nothing_of_the_block_that_set_it():
    class Request:
        pass

    async def serve() -> weakref.ref[Request]:
        request = Request()
        served.set(request)
        with TimeLimit(4, timer):
            pass
        return weakref.ref(request)

    served, timer = ContextVar[Request]("served"), SharedTimer(4)
    request = await asyncio.create_task(serve())
    await asyncio.sleep(0)
    assert request() is None
