"""The signals a process serves by: SIGTERM and SIGINT end it, SIGHUP has it read its configuration again."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def owned_signals(stop: Callable[[str], None], hangup: Callable[[], None]) -> Iterator[None]:
    """Take SIGTERM, SIGINT and SIGHUP of the running loop, also a SIGHUP that was held back until now.

    Args:
        stop: called with the name of the signal at every SIGTERM and SIGINT.
        hangup: called at every SIGHUP.
    """
    loop = asyncio.get_running_loop()
    for caught in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(caught, stop, caught.name)
    loop.add_signal_handler(signal.SIGHUP, hangup)
    held = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(caught)
