import asyncio

import pytest
from harness.timers import list_timers
from harness.virtual_time import VirtualLoop

# What needs a database: its threads live in real time.
_IN_REAL_TIME = frozenset({"test_background"})


def pytest_asyncio_loop_factories(config, item):
    in_real_time = item.module.__name__.rpartition(".")[2] in _IN_REAL_TIME
    return {"real": asyncio.new_event_loop} if in_real_time else {"virtual": VirtualLoop}


@pytest.fixture(autouse=True)
async def leave_nothing_behind():
    """No task and no timer outlives a test."""
    yield
    # What was cancelled last gets its turn to end.
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert list_timers() == []
