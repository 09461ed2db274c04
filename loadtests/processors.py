"""Which CPUs a process may run on."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def pinned(cpus: Iterable[int]) -> Iterator[None]:
    """Keep this process, and whatever it starts in the block, on these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
