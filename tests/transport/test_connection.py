"""Whether the client is still there, and still reading."""

import asyncio

import pytest
from engine.doubles import SettableClock
from transport.asgi import Conversation, SlowSocket, timers

from gateway.transport import connection
from gateway.transport.connection import StallWatch, cancel, wait_for_disconnect

DEADLINE = 0.04
LONG = 20.0


@pytest.fixture
async def watch():
    """Start watching a socket; the watch ends with the test and leaves no timer."""
    watches = []

    def begin(socket):
        watches.append(StallWatch(Conversation(socket=socket).scope, DEADLINE))
        return watches[-1]

    yield begin
    for one in watches:
        one.stop()
    assert timers() == []


@pytest.fixture
def clock(monkeypatch):
    """Time that only the test moves; timers go on as ever."""
    still = SettableClock()
    monkeypatch.setattr(connection, "time", still)
    return still


async def looked(socket, times):
    """Wait until the watch has looked so often; four looks are one deadline."""
    wanted = socket.looks + times
    while socket.looks < wanted:
        await asyncio.sleep(DEADLINE / 8)


async def test_a_client_that_takes_nothing_is_cut_off(watch):
    socket = SlowSocket([1000])
    with watch(socket).sending():
        await asyncio.wait_for(socket.aborted.wait(), LONG)
    assert timers() == []


async def test_a_client_that_takes_less_and_less_but_something_is_left_alone(watch):
    socket = SlowSocket(range(1000, 0, -1))
    with watch(socket).sending():
        await looked(socket, 12)
    assert not socket.aborted.is_set()


async def test_a_client_that_stops_after_a_while_is_cut_off(watch):
    socket = SlowSocket([1000, 900, 800, 700, 600])
    with watch(socket).sending():
        await asyncio.wait_for(socket.aborted.wait(), LONG)
    assert socket.looks > 5


async def test_a_buffer_that_only_grows_is_no_progress(watch):
    socket = SlowSocket(range(1000))
    with watch(socket).sending():
        await asyncio.wait_for(socket.aborted.wait(), LONG)


async def test_sends_that_take_long_only_together_are_no_stall(watch, clock):
    socket = SlowSocket([1000])
    stall = watch(socket)
    for _ in range(3):
        with stall.sending():
            await looked(socket, 2)
            clock.seconds += 0.9 * DEADLINE
            await looked(socket, 2)
        clock.seconds += 100
    assert not socket.aborted.is_set()


async def test_nobody_looks_while_no_send_waits(watch):
    socket = SlowSocket([1000])
    watch(socket)
    await asyncio.sleep(2 * DEADLINE)
    assert socket.looks == 0


async def test_a_send_that_fails_is_no_longer_watched(watch):
    socket = SlowSocket([1000])
    with pytest.raises(ZeroDivisionError), watch(socket).sending():
        raise ZeroDivisionError
    await asyncio.sleep(2 * DEADLINE)
    assert not socket.aborted.is_set()


async def test_a_watch_that_was_stopped_does_nothing(watch):
    socket = SlowSocket([1000])
    stall = watch(socket)
    with stall.sending():
        stall.stop()
        await asyncio.sleep(2 * DEADLINE)
    assert socket.looks == 0
    assert timers() == []


@pytest.mark.parametrize("scope", [{"type": "http"}, {"type": "http", "extensions": None}])
async def test_without_a_transport_there_is_nothing_to_watch(scope):
    stall = StallWatch(scope, DEADLINE)
    with stall.sending():
        assert timers() == []
    stall.stop()


async def test_a_disconnect_is_waited_for_past_the_rest_of_a_body():
    client = Conversation(b"a", b"b")
    waiting = asyncio.create_task(wait_for_disconnect(client.receive))
    await asyncio.sleep(0)
    assert not waiting.done()
    client.gone.set()
    await waiting
    assert not client.waiting


async def test_cancelling_waits_for_the_last_task_and_leaves_finished_ones_alone():
    ended = []

    async def run(*, fails=False):
        try:
            await asyncio.sleep(LONG)
        finally:
            await asyncio.sleep(0)
            ended.append(fails)
            if fails:
                raise ZeroDivisionError

    done = asyncio.create_task(asyncio.sleep(0, "result"))
    tasks = [asyncio.create_task(run()), asyncio.create_task(run(fails=True)), done]
    await done
    await cancel(*tasks)
    assert ended == [False, True]
    assert done.result() == "result"
    assert all(task.done() for task in tasks)
    await cancel(*tasks)
