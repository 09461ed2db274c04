import asyncio

import pytest
from harness.timers import list_timers


@pytest.fixture(autouse=True)
async def leave_nothing_behind():
    """No task and no timer outlives a test."""
    yield
    # What was cancelled last gets its turn to end.
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert list_timers() == []
