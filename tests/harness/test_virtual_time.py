"""Time that nobody waits for."""

import asyncio
import time

import pytest
from harness.virtual_time import NothingWillHappen, VirtualLoop


def run(coroutine):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def test_an_hour_passes_at_once_and_timers_fire_in_their_order():
    fired = []

    async def wait():
        loop = asyncio.get_running_loop()
        for delay in (3600, 0.25, 60):
            loop.call_later(delay, lambda delay=delay: fired.append((delay, loop.time())))
        await asyncio.sleep(3600)
        return loop.time()

    began = time.monotonic()
    assert run(wait()) == 3600
    assert fired == [(0.25, 0.25), (60, 60), (3600, 3600)]
    assert time.monotonic() - began < 60


def test_no_time_passes_while_something_can_happen():
    async def work():
        for _ in range(100):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run(work()) == 0


def test_a_timeout_ends_what_never_comes():
    async def wait():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        return asyncio.get_running_loop().time()

    assert run(wait()) == 30


def test_a_deadlock_is_told():
    async def wait():
        await asyncio.Event().wait()

    with pytest.raises(NothingWillHappen, match="no timer"):
        run(wait())
