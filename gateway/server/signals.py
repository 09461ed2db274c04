"""The signals a process serves by: SIGTERM and SIGINT end it, SIGHUP has it read its configuration again."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat

from gateway.telemetry.audit import note_action


@contextmanager
def owned_signals(stop: Callable[[str], None], hangup: Callable[[str], None]) -> Iterator[None]:
    """Take SIGTERM, SIGINT and SIGHUP of the running loop, also a SIGHUP that was held back until now.

    Args:
        stop: called with the name of the signal at every SIGTERM and SIGINT, which leaves a record in the audit log.
        hangup: called with its name at every SIGHUP.
    """
    loop = asyncio.get_running_loop()
    outcomes = chain(("draining", "cut off"), repeat("closed at once"))

    def order_end(name: str) -> None:
        note_action("stop", actor=name, object=f"process {os.getpid()}", outcome=next(outcomes))
        stop(name)

    for caught in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(caught, order_end, caught.name)
    loop.add_signal_handler(signal.SIGHUP, hangup, signal.SIGHUP.name)
    held = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(caught)
