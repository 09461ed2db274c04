import asyncio

import pytest
from engine.doubles import Bench, Reply, settle
from harness.engine import says
from msgspec import structs

from gateway.config.schema import EngineConfig
from gateway.engine.coalescing import _VAIN_RESTS, Coalescer
from gateway.telemetry.metrics import Metrics


class Loop:
    """A coalescer whose rests take no time, and the loop it belongs to."""

    def __init__(self, *, active=3, seconds=0.001, streams=3):
        self.active = active
        self.rests = []
        self.metrics = Metrics()
        self.coalescer = Coalescer(
            lambda: self.active, seconds=seconds, streams=streams, metrics=self.metrics, sleep=self.rests.append
        )

    async def turn(self, times=1):
        for _ in range(times):
            await asyncio.sleep(0)


@pytest.fixture
def loop():
    return Loop()


@pytest.mark.parametrize("few", [{"active": 2}, {"seconds": 0}])
async def test_few_streams_are_never_kept_waiting(few):
    loop = Loop(**few)
    loop.coalescer.note()
    await loop.turn(10)
    assert loop.rests == []


async def test_a_turn_that_brought_something_is_followed_by_no_rest(loop):
    for _ in range(20):
        loop.coalescer.note()
        await loop.turn()
    assert loop.rests == []


async def test_it_rests_in_turns_that_bring_nothing_and_gives_up_when_nothing_comes(loop):
    loop.coalescer.note()
    await loop.turn(1000)
    assert loop.rests == [0.001] * _VAIN_RESTS
    assert loop.metrics.registry.get_sample_value("gateway_coalescing_rests_total") == _VAIN_RESTS


async def test_what_comes_begins_it_anew(loop):
    loop.coalescer.note()
    await loop.turn(6)
    rested = len(loop.rests)
    assert 0 < rested < _VAIN_RESTS
    loop.coalescer.note()
    await loop.turn(1000)
    assert len(loop.rests) == rested + _VAIN_RESTS
    loop.coalescer.note()
    await loop.turn(6)
    assert len(loop.rests) > rested + _VAIN_RESTS


async def test_what_came_during_a_rest_is_handled_before_the_next():
    """A turn reads it, and wakes the task it is for; only that task notes it, in the turn after."""
    running, order = asyncio.get_running_loop(), []

    def handle():
        order.append("handled")
        coalescer.note()

    def sleep(_):
        order.append("rest")
        if len(order) < 12:
            # Just before the look of the third turn is as late as behind that of the second.
            running.call_soon(running.call_soon, running.call_soon, handle)

    coalescer = Coalescer(lambda: 3, seconds=0.001, streams=3, metrics=Metrics(), sleep=sleep)
    coalescer.note()
    for _ in range(200):
        await asyncio.sleep(0)
    assert order[:12] == ["rest", "handled"] * 6


async def test_it_stops_when_the_streams_become_few(loop):
    loop.coalescer.note()
    await loop.turn(6)
    rested = len(loop.rests)
    loop.active = 2
    await loop.turn(1000)
    assert len(loop.rests) <= rested + 1


async def test_other_bounds_count_at_once(loop):
    loop.coalescer.reconfigure(seconds=0.002, streams=4)
    loop.coalescer.note()
    await loop.turn(10)
    assert loop.rests == []
    loop.active = 4
    loop.coalescer.note()
    await loop.turn(6)
    assert set(loop.rests) == {0.002}
    loop.coalescer.reconfigure(seconds=0, streams=4)
    rested = len(loop.rests)
    await loop.turn(1000)
    assert len(loop.rests) <= rested + 1


@pytest.mark.parametrize(("reads", "rests"), [(1, 0), (2, _VAIN_RESTS)])
async def test_an_answer_that_comes_whole_brings_no_rest(reads, rests):
    """What ends a response announces nothing more; a beginning does, until nothing has come for a while."""
    bench, gone_on = Bench(), asyncio.Event()
    bench.engine.reconfigure(structs.replace(bench.config, engine=EngineConfig(coalesce_responses=1)))
    frames = says("Hello there", chunk=2).frames()
    begun = b"".join(frames[:5])
    reply = Reply([begun, gone_on, b"".join(frames[5:])] if reads == 2 else [b"".join(frames)])
    with bench.engine.admit("local"):
        _listener, running = await bench.start(reply)
        await settle(200)
        gone_on.set()
        await running
        await settle(200)
    assert (bench.sample("coalescing_rests_total") or 0) == rests
