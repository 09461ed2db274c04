import asyncio
from contextvars import ContextVar

import pytest

from gateway.engine.deadline import Deadline
from gateway.engine.failures import shutting_down
from gateway.protocol.errors import GatewayError
from gateway.timing.limit import SharedTimer


async def test_a_run_is_reminded_once_and_then_ends():
    reminded = []
    deadline = Deadline(0.02).remind(SharedTimer(0.005), lambda: reminded.append(deadline.passed))
    with pytest.raises(GatewayError, match="run_deadline_seconds"), deadline:
        await asyncio.Event().wait()
    assert reminded == [False]


async def test_each_run_is_reminded_in_its_own_context():
    async def run(name: str, start: int) -> None:
        await asyncio.sleep(start)
        running.set(name)
        with Deadline(60).remind(timer, lambda: reminded.append((name, running.get()))):
            await asyncio.sleep(30)

    running, timer, reminded = ContextVar[str]("running"), SharedTimer(5), []
    await asyncio.gather(run("one", 0), run("two", 1), run("three", 40))
    assert reminded == [("one", "one"), ("two", "two"), ("three", "three")]


async def test_a_run_that_has_ended_is_not_reminded():
    reminded = []
    deadline = Deadline(60).remind(SharedTimer(5), lambda: reminded.append(1))
    with deadline:
        pass
    deadline.expire()
    assert reminded == []


async def test_a_run_that_is_being_cut_off_is_not_reminded():
    async def run() -> None:
        with deadline:
            deadline.cut_off(shutting_down())
            deadline.expire()
            await asyncio.sleep(0)

    reminded = []
    deadline = Deadline(60).remind(SharedTimer(5), lambda: reminded.append(1))
    with pytest.raises(GatewayError, match="shutting down"):
        await run()
    assert reminded == []
