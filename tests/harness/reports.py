"""Shows the logs of the processes a failed test used; a `conftest.py` takes part by importing the hook."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from harness.processes import Process

SHOWN_CHARACTERS = 6000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of each process's log to the report of a failure."""
    report = yield
    if report.failed:
        for process in _processes_in(getattr(item, "funcargs", {})):
            report.sections.append((f"log of {process.url}", process.log[-SHOWN_CHARACTERS:]))
    return report


def _processes_in(fixtures: dict[str, Any]) -> Iterator[Process]:
    """Find processes that are fixtures, or that a fixture holds as `gateway` or in `started`."""
    for value in fixtures.values():
        for candidate in (value, getattr(value, "gateway", None), *getattr(value, "started", ())):
            if isinstance(candidate, Process):
                yield candidate
