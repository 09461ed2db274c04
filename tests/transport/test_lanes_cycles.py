"""What a connection leaves behind: nothing that only the collector finds, however much its client left unread."""

import gc
from collections import Counter

import pytest
from engine.doubles import Reply, settle
from harness.engine import says
from transport.client_socket import converse, until

FRAMES = says("Hello there, and all of you", chunk=2).frames()


@pytest.fixture
def garbage():
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield lambda: gc.collect() and Counter(type(left).__qualname__ for left in gc.garbage)
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def leave_in_the_middle():
    async with converse(delivery_max_batches=1) as talk:
        talk.socket.pause()
        talk.create(Reply(FRAMES[:-4]), lane="a")
        await until(lambda: talk.bench.metrics.delivery_load.batches.now > 0)
        await settle()
        assert talk.load() == (1, 0)
        talk.socket.leave()
        await talk.task


async def test_what_waits_for_a_client_that_leaves_is_let_go_at_once(garbage):
    await leave_in_the_middle()
    left = garbage() or Counter()
    assert {"Turn", "Run", "LaneChannel", "Plan"}.isdisjoint(left)
