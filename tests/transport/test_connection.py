"""Whether the client is still there, and still reading."""

import asyncio

import pytest
from engine.doubles import SettableClock, settle
from transport.asgi import Conversation, SlowSocket, timers

from gateway.transport import connection
from gateway.transport.connection import ClientLeft, ClientWatch, StallWatch

DEADLINE = 0.04
LONG = 20.0


class Watched:
    """A socket under watch; `waits` is whether anybody waits for it."""

    def __init__(self, buffered):
        self.socket = SlowSocket(buffered)
        self.waits = True
        self.stall = StallWatch(self.socket, DEADLINE, lambda: self.waits)

    async def looked(self, times):
        """Wait until the watch has looked so often; four looks are one deadline."""
        wanted = self.socket.looks + times
        while self.socket.looks < wanted:
            await asyncio.sleep(DEADLINE / 8)

    async def is_cut_off(self):
        await asyncio.wait_for(self.socket.aborted.wait(), LONG)
        assert timers() == []


@pytest.fixture
def watch():
    """Begin to watch a socket; the watch ends with the test and leaves no timer."""
    watches = []

    def begin(buffered):
        watches.append(Watched(buffered))
        watches[-1].stall.begin()
        return watches[-1]

    yield begin
    for one in watches:
        one.stall.stop()


class LoopClock:
    """Time passes as it does for timers, which is only while everybody waits."""

    def monotonic(self):
        return asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
def loop_clock(monkeypatch):
    monkeypatch.setattr(connection, "time", LoopClock())


@pytest.fixture
def clock(monkeypatch):
    """Time that only the test moves; timers go on as ever."""
    still = SettableClock()
    monkeypatch.setattr(connection, "time", still)
    return still


async def test_a_client_that_takes_nothing_is_cut_off(watch):
    await watch([1000]).is_cut_off()


async def test_a_client_that_takes_less_and_less_but_something_is_left_alone(watch):
    watched = watch(range(1000, 0, -1))
    await watched.looked(12)
    assert not watched.socket.aborted.is_set()


async def test_a_client_that_stops_after_a_while_is_cut_off(watch):
    watched = watch([1000, 900, 800, 700, 600])
    await watched.is_cut_off()
    assert watched.socket.looks > 5


async def test_a_buffer_that_only_grows_is_no_progress(watch):
    await watch(range(1, 1000)).is_cut_off()


async def test_a_buffer_that_was_emptied_and_filled_again_is_progress(watch, clock):
    watched = watch([1000])
    for _ in range(3):
        await watched.looked(2)
        clock.seconds += 0.9 * DEADLINE
        watched.stall.note_progress()
    await watched.looked(2)
    assert not watched.socket.aborted.is_set()


async def test_an_empty_buffer_needs_no_watch(watch):
    watched = watch([0])
    assert timers() == []
    watched.socket.buffered[0] = 1000
    watched.stall.begin()
    await watched.is_cut_off()


async def test_the_watch_ends_with_the_last_byte(watch):
    watched = watch([1000, 1000, 500, 0])
    await watched.looked(3)
    assert timers() == []
    assert not watched.socket.aborted.is_set()


async def test_the_watch_ends_when_nobody_waits_any_more(watch):
    watched = watch([1000])
    await watched.looked(1)
    watched.waits = False
    await watched.looked(1)
    assert timers() == []
    assert not watched.socket.aborted.is_set()


async def test_beginning_again_neither_looks_twice_nor_forgives(watch, clock):
    watched = watch([1000])
    await watched.looked(2)
    clock.seconds += 2 * DEADLINE
    watched.stall.begin()
    assert len(timers()) == 1
    await watched.is_cut_off()


async def test_a_watch_that_was_stopped_does_nothing(watch):
    watched = watch([1000])
    watched.stall.stop()
    looks = watched.socket.looks
    await asyncio.sleep(2 * DEADLINE)
    assert watched.socket.looks == looks
    assert timers() == []


# ---------------------------------------------------------------- clients that leave


async def test_a_block_ends_when_the_client_leaves():
    client = Conversation()
    cleaned = asyncio.Event()

    async def serve():
        async with ClientWatch(client):
            try:
                await asyncio.sleep(LONG)
            finally:
                await asyncio.sleep(0)
                cleaned.set()

    serving = asyncio.create_task(serve())
    await settle()
    client.gone.set()
    with pytest.raises(ClientLeft):
        await asyncio.wait_for(serving, LONG)
    assert (cleaned.is_set(), serving.cancelling()) == (True, 0)


async def test_a_client_that_stays_ends_nothing():
    client = Conversation()
    async with ClientWatch(client):
        await settle()
    client.gone.set()
    await settle()
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_client_that_leaves_with_the_end_of_the_block_cancels_nothing_behind_it(fails):
    class Connection:
        loop = asyncio.get_running_loop()

        def watch(self, left, ready=None):
            self.left = left

    connection = Connection()

    async def serve():
        try:
            async with ClientWatch(connection):
                connection.left()
                if fails:
                    raise ZeroDivisionError
        except ClientLeft:
            await asyncio.sleep(0)
            return "went on"

    serving = asyncio.create_task(serve())
    assert await asyncio.wait_for(serving, LONG) == "went on"
    assert serving.cancelling() == 0


async def test_who_is_cancelled_by_others_too_stays_cancelled():
    client = Conversation()

    async def serve():
        async with ClientWatch(client):
            try:
                await asyncio.sleep(LONG)
            finally:
                asyncio.current_task().cancel()

    serving = asyncio.create_task(serve())
    await settle()
    client.gone.set()
    await asyncio.wait([serving])
    assert serving.cancelled()


async def test_a_client_that_has_caught_up_is_told_of():
    client = Conversation()
    told = []
    async with ClientWatch(client, lambda: told.append(True)):
        client.read_on()
    client.read_on()
    assert told == [True]
