"""Permits: counted, in order, and never lost."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.timing.permits import Permits


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_there_are_as_many_as_the_limit():
    permits = Permits(2)
    assert [permits.take_at_once() for _ in range(3)] == [True, True, False]
    permits.give_back()
    assert permits.take_at_once()


async def test_who_waits_gets_them_in_order():
    permits, order = Permits(1), []

    async def wait(name: int) -> None:
        await permits.take()
        order.append(name)

    await permits.take()
    waiting = [asyncio.create_task(wait(name)) for name in range(3)]
    await settle()
    for expected in ([0], [0, 1], [0, 1, 2]):
        permits.give_back()
        await settle()
        assert order == expected
    await asyncio.gather(*waiting)
    assert not permits.take_at_once()


async def test_nobody_passes_those_who_wait():
    permits = Permits(1)
    await permits.take()
    waiting = asyncio.create_task(permits.take())
    await settle()
    permits.give_back()
    assert not permits.take_at_once(), "it was handed to who waits, though that has not run yet"
    await waiting


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancelled_wait_loses_no_permit(turns):
    permits = Permits(1)
    await permits.take()
    first, second = asyncio.create_task(permits.take()), asyncio.create_task(permits.take())
    await settle()
    permits.give_back()
    for _ in range(turns):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    if not first.cancelled():
        permits.give_back()
    await second
    assert not permits.take_at_once()


async def test_a_cancellation_before_its_turn_leaves_the_line():
    permits = Permits(1)
    await permits.take()
    first, second = asyncio.create_task(permits.take()), asyncio.create_task(permits.take())
    await settle()
    first.cancel()
    permits.give_back()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    permits.give_back()
    assert permits.take_at_once()


async def test_a_lower_limit_holds_once_enough_came_back_and_a_higher_one_at_once():
    permits = Permits(3)
    for _ in range(3):
        await permits.take()
    permits.resize(1)
    permits.give_back()
    permits.give_back()
    assert not permits.take_at_once()
    permits.give_back()
    assert permits.take_at_once()
    waiting = asyncio.create_task(permits.take())
    await settle()
    permits.resize(2)
    await waiting


@given(st.integers(1, 3), st.lists(st.sampled_from(["take", "give", "cancel", "step"]), max_size=40))
@settings(max_examples=60, deadline=None)
def test_held_ones_never_pass_the_limit_and_all_come_back(limit, script):
    async def play() -> None:
        permits, tasks, held = Permits(limit), [], 0
        for act in script:
            if act == "take":
                tasks.append(asyncio.create_task(permits.take()))
            elif act == "cancel" and tasks:
                tasks[len(script) % len(tasks)].cancel()
            elif act == "give" and held:
                held -= 1
                permits.give_back()
            else:
                await settle()
            done = [task for task in tasks if task.done()]
            tasks = [task for task in tasks if not task.done()]
            held += sum(not task.cancelled() for task in done)
            assert held <= limit
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            held += result is None
        for _ in range(held):
            permits.give_back()
        assert [permits.take_at_once() for _ in range(limit + 1)] == [True] * limit + [False]

    asyncio.run(play())
