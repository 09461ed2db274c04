import asyncio

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


@pytest.mark.parametrize("first", ["ended", "cut off"])
async def test_a_run_that_is_over_is_not_reminded(first):
    reminded = []
    deadline = Deadline(60).remind(SharedTimer(60), lambda: reminded.append(1))
    if first == "ended":
        with deadline:
            pass
        deadline.expire()
    else:
        with pytest.raises(GatewayError, match="shutting down"), deadline:
            deadline.cut_off(shutting_down())
            deadline.expire()
            await asyncio.sleep(0)
    assert reminded == []
