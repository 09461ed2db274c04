"""No test of timing waits for time."""

from harness.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(config, item):
    return {"virtual": VirtualLoop}
