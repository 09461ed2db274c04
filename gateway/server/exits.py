"""How a process ends."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.telemetry import names

EXIT_DONE = 0
EXIT_FAILED = 1

_logger = logging.getLogger(names.LOGGER_SERVER)


@contextmanager
def bounded_end(seconds: float) -> Iterator[None]:
    """End the process, with code 1, if the block takes longer: threads that wait for a database cannot be cancelled.

    Args:
        seconds: how long it may take.
    """
    timer = threading.Timer(seconds, _give_up, (seconds,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(seconds: float) -> None:
    _logger.error(
        "a database or a collector holds up the end for longer than %g seconds ([server] end_seconds); "
        "what waits to be written is lost",
        seconds,
    )
    os._exit(EXIT_FAILED)
