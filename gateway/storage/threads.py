"""How the store's threads share a processor with the event loop."""

import os
from contextlib import suppress


def give_way() -> None:
    """Have the calling thread, when it is woken, begin after the one that woke it has paused, where the system can.

    The event loop wakes it while holding the interpreter lock. On the same processor a thread that begins at once only
    finds that lock taken, and both are switched twice for nothing. Its share of the processor stays the same.
    """
    if hasattr(os, "SCHED_BATCH"):
        # A sandbox may forbid it, which costs those switches and nothing else.
        with suppress(OSError):
            # Whoever gave the process another policy had a reason.
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
