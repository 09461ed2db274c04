import asyncio
import signal

import pytest

from gateway.config.schema import ServerConfig
from gateway.server.messages import Stop
from gateway.server.supervisor import Supervisor, WorkerFailed
from gateway.telemetry.metrics import Metrics

AT_ONCE = {"worker_restart_seconds": 0.001, "drain_seconds": 0.0, "close_grace_seconds": 0.0}


class FakeChild:
    """A worker that serves at once, or ends before it does; it ends when it is told to stop."""

    pid = 77

    def __init__(self, number, failure=None, obeys=True):
        self.number = number
        self.failure = failure or ""
        self.code = None if failure is None else 1
        self.served_seconds = 0.0 if failure is None else None
        self.told = []
        self._obeys = obeys
        self._end = asyncio.Event()
        if failure is not None:
            self._end.set()

    @property
    def serving(self):
        return self.code is None

    async def started(self, timeout):
        return self.serving

    async def ended(self):
        await self._end.wait()
        return self.code

    def tell(self, order):
        self.told.append(order)
        if self._obeys:
            self.end(0)

    def kill(self):
        self.end(-signal.SIGKILL)

    def end(self, code):
        self.code = code
        self._end.set()


class Crew:
    """Hires fake workers as scripted: a failure, or None for one that serves; the last line of the script repeats."""

    def __init__(self, script=(None,), obeys=True, **settings):
        self.script = list(script)
        self.hired = []
        self.waits = []
        self.ended = []
        self.metrics = Metrics()
        self.settings = ServerConfig(**{"workers": 2, **AT_ONCE, **settings})
        self.supervisor = Supervisor(self.hire, lambda: self.settings, self.metrics, self.ended.append)
        self._obeys = obeys
        self._changed = asyncio.Event()

    async def hire(self, number, wait_upstream):
        failure = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.hired.append(FakeChild(number, failure, self._obeys))
        self.waits.append(wait_upstream)
        self._changed.set()
        return self.hired[-1]

    async def until_hired(self, count):
        async with asyncio.timeout(5):
            while len(self.hired) < count:
                self._changed.clear()
                await self._changed.wait()

    def ends(self, reason):
        return self.metrics.registry.get_sample_value("gateway_worker_ends_total", {"reason": reason})


async def test_the_first_worker_serves_before_the_others_are_started():
    crew = Crew(workers=3)
    await crew.supervisor.open(30)
    assert [child.number for child in crew.hired] == [1, 2, 3]
    assert crew.waits == [30, None, None]


async def test_what_is_wrong_for_all_is_said_once():
    crew = Crew(["the database is not migrated"])
    with pytest.raises(WorkerFailed, match=r"^the database is not migrated$") as caught:
        await crew.supervisor.open(None)
    assert (caught.value.code, len(crew.hired)) == (1, 1)


async def test_a_stop_before_anything_serves_is_an_orderly_end():
    crew = Crew(["ended by the signal"])
    crew.supervisor.stop("SIGTERM")
    await crew.supervisor.open(None)
    assert crew.hired[0].told == [Stop(1, "SIGTERM")]
    assert [child.number for child in crew.hired] == [1]


@pytest.mark.parametrize(("code", "reason"), [(-signal.SIGKILL, "signal"), (3, "exit"), (0, "exit")])
async def test_a_worker_that_ends_is_started_again(code, reason):
    crew = Crew()
    await crew.supervisor.open(None)
    running = asyncio.create_task(crew.supervisor.run())
    crew.hired[1].end(code)
    await crew.until_hired(3)
    assert (crew.hired[2].number, crew.ended, crew.ends(reason)) == (2, [2], 1)
    crew.supervisor.stop("SIGTERM")
    assert await asyncio.wait_for(running, 20) == 0


async def test_pauses_double_up_to_their_bound_and_start_anew_after_a_time_of_service(monkeypatch):
    crew = Crew([None, None, *["no memory"] * 8, None], worker_restart_seconds=4)
    rests = []

    async def rest(seconds):
        rests.append(seconds)
        return False

    await crew.supervisor.open(None)
    monkeypatch.setattr(crew.supervisor, "_rest", rest)
    running = asyncio.create_task(crew.supervisor.run())
    crew.hired[1].end(-signal.SIGSEGV)
    await crew.until_hired(11)
    assert rests == [0.5, 1, 2, 4, 4, 4, 4, 4, 4]
    crew.hired[10].served_seconds = 5
    crew.hired[10].end(1)
    await crew.until_hired(12)
    assert rests[9:] == [0.5]
    crew.supervisor.stop("SIGTERM")
    await asyncio.wait_for(running, 20)


async def test_it_gives_up_when_none_serves_and_none_can_be_started():
    crew = Crew([None, None, "no memory"], worker_start_attempts=3)
    await crew.supervisor.open(None)
    running = asyncio.create_task(crew.supervisor.run())
    for child in crew.hired[:2]:
        child.end(-signal.SIGKILL)
    with pytest.raises(WorkerFailed, match=r"worker \d could not be started 3 times in a row.*no memory"):
        await asyncio.wait_for(running, 20)
    assert 5 <= len(crew.hired) <= 8


async def test_as_long_as_one_serves_it_does_not_give_up():
    crew = Crew([None, None, "no memory"], worker_start_attempts=2)
    await crew.supervisor.open(None)
    running = asyncio.create_task(crew.supervisor.run())
    crew.hired[1].end(-signal.SIGKILL)
    await crew.until_hired(20)
    assert crew.hired[0].serving
    crew.supervisor.stop("SIGTERM")
    assert await asyncio.wait_for(running, 20) == 0


async def test_a_second_signal_is_passed_on_and_costs_the_exit_code():
    crew = Crew(obeys=False)
    await crew.supervisor.open(None)
    running = asyncio.create_task(crew.supervisor.run())
    crew.supervisor.stop("SIGTERM")
    crew.supervisor.stop("SIGINT")
    for child in crew.hired:
        assert child.told == [Stop(1, "SIGTERM"), Stop(2, "SIGINT")]
        child.end(0)
    assert await asyncio.wait_for(running, 20) == 1


async def test_a_worker_that_dies_in_the_drain_costs_the_exit_code():
    crew = Crew(obeys=False)
    await crew.supervisor.open(None)
    running = asyncio.create_task(crew.supervisor.run())
    crew.supervisor.stop("SIGTERM")
    crew.hired[0].end(-signal.SIGSEGV)
    crew.hired[1].end(0)
    assert await asyncio.wait_for(running, 20) == 1
    assert len(crew.hired) == 2


async def test_workers_that_do_not_end_are_killed(monkeypatch, caplog):
    monkeypatch.setattr("gateway.server.supervisor._KILL_MARGIN_SECONDS", 0)
    crew = Crew(obeys=False)
    await crew.supervisor.open(None)
    running = asyncio.create_task(crew.supervisor.run())
    crew.supervisor.stop("SIGTERM")
    assert await asyncio.wait_for(running, 20) == 1
    assert sum("did not end in time and is killed" in message for message in caplog.messages) == 2


async def test_a_worker_that_is_hired_during_a_stop_is_told_so():
    crew = Crew()
    await crew.supervisor.open(None)
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hire_slowly(number, wait_upstream):
        entered.set()
        await go_on.wait()
        return await crew.hire(number, wait_upstream)

    crew.supervisor._hire = hire_slowly
    running = asyncio.create_task(crew.supervisor.run())
    crew.hired[0].end(1)
    await asyncio.wait_for(entered.wait(), 20)
    crew.supervisor.stop("SIGTERM")
    go_on.set()
    assert await asyncio.wait_for(running, 20) == 0
    assert crew.hired[2].told == [Stop(1, "SIGTERM")]


async def test_a_stop_while_the_others_are_started_starts_no_more():
    crew = Crew(workers=4)

    async def hire(number, wait_upstream):
        if number == 3:
            crew.supervisor.stop("SIGTERM")
            raise OSError(9, "Bad file descriptor")
        return await crew.hire(number, wait_upstream)

    crew.supervisor._hire = hire
    await crew.supervisor.open(None)
    assert [child.number for child in crew.hired] == [1, 2]
    assert await asyncio.wait_for(crew.supervisor.run(), 20) == 0


async def test_where_there_is_no_room_for_a_process_it_tries_again(caplog):
    crew = Crew()
    await crew.supervisor.open(None)
    refusals = [OSError(11, "Resource temporarily unavailable")] * 3

    async def hire(number, wait_upstream):
        if refusals:
            raise refusals.pop()
        return await crew.hire(number, wait_upstream)

    crew.supervisor._hire = hire
    running = asyncio.create_task(crew.supervisor.run())
    crew.hired[0].end(1)
    await crew.until_hired(3)
    assert caplog.messages.count("worker 1: no process can be started (Resource temporarily unavailable)") == 3
    crew.supervisor.stop("SIGTERM")
    assert await asyncio.wait_for(running, 20) == 0


async def test_no_room_for_the_first_process_ends_the_start():
    crew = Crew()

    async def hire(number, wait_upstream):
        raise OSError(12, "Cannot allocate memory")

    crew.supervisor._hire = hire
    with pytest.raises(WorkerFailed, match="Cannot allocate memory"):
        await crew.supervisor.open(None)
