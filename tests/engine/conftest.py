import asyncio

import pytest


@pytest.fixture(autouse=True)
async def leave_nothing_behind():
    """No task and no timer outlives a test."""
    yield
    # What was cancelled last gets its turn to end.
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []
