import asyncio
from contextlib import suppress

import pytest

from gateway.upstream.tasks import end_task


async def test_a_lost_cancellation_is_asked_for_again():
    lost = []

    async def lose_the_first():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        lost.append(True)
        await asyncio.sleep(3600)

    task = asyncio.create_task(lose_the_first())
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await end_task(task)
    assert task.cancelled()
    assert lost == [True]


async def test_what_the_task_raises_stays_with_the_task():
    async def fail_when_told():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise ValueError from None

    task = asyncio.create_task(fail_when_told())
    await asyncio.sleep(0)
    for _ in range(2):
        await end_task(task)
    assert isinstance(task.exception(), ValueError)


async def test_the_one_who_waits_can_leave():
    async def refuse():
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    released = asyncio.Event()
    task = asyncio.create_task(refuse())
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await end_task(task)
    released.set()
    await task
