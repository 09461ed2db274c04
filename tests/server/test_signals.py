import asyncio
import os
import signal

from gateway.server.signals import owned_signals


async def test_signals_are_passed_on_by_name_and_the_end_is_audited(caplog):
    caplog.set_level("INFO", "gateway.audit")
    told = asyncio.Queue()
    with owned_signals(told.put_nowait, told.put_nowait):
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
            assert await asyncio.wait_for(told.get(), 20) == number.name
    assert [(record.action, record.actor, record.outcome) for record in caplog.records] == [
        ("stop", "SIGTERM", "draining"),
        ("stop", "SIGINT", "cut off"),
        ("stop", "SIGTERM", "closed at once"),
    ]
    assert {record.object for record in caplog.records} == {f"process {os.getpid()}"}
