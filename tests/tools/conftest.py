import asyncio

from harness.virtual_time import VirtualLoop

# What has neither sockets nor threads nor processes waits for no time.
_IN_VIRTUAL_TIME = frozenset({"test_gate"})


def pytest_asyncio_loop_factories(config, item):
    in_virtual_time = item.module.__name__.rpartition(".")[2] in _IN_VIRTUAL_TIME
    return {"virtual": VirtualLoop} if in_virtual_time else {"real": asyncio.new_event_loop}
