"""Runs of several agents, against scripts for each agent, in time that nobody waits for."""

import asyncio

from harness.virtual_time import VirtualLoop

# What needs a database: its threads and sockets live in real time.
_IN_REAL_TIME = frozenset({"test_storing"})


def pytest_asyncio_loop_factories(config, item):
    in_real_time = item.module.__name__.rpartition(".")[2] in _IN_REAL_TIME
    return {"real": asyncio.new_event_loop} if in_real_time else {"virtual": VirtualLoop}
