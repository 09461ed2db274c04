"""Handling together what many streams send within a moment.

A loop that waits is woken by each event of each stream, and being woken costs more than the event: the processor has to
be taken up again, and finds its caches cold. Network cards met the same with interrupts, and delay them a little.
"""

import asyncio
import time
from collections.abc import Callable

from gateway.telemetry.metrics import Metrics

# A loop that found nothing after so many rests in a row goes back to waiting.
_VAIN_RESTS = 16
# What a rest left waiting is read in the next turn, and the task it belongs to may run one turn later.
_QUIET_TURNS = 2


class Coalescer:
    """Lets the event loop rest for a moment whenever it would wait, as long as many streams run and something comes.

    A rest blocks the loop, so it is the longest delay there can be of anything the loop does. While inference servers
    keep sending it never rests; the writing thread goes on meanwhile.

    Args:
        active: tells how many responses are being made.
        seconds: length of a rest, 0 for none.
        streams: from how many responses on to rest.
        metrics: counts the rests.
        sleep: blocks for so many seconds.
    """

    def __init__(
        self,
        active: Callable[[], int],
        *,
        seconds: float,
        streams: int,
        metrics: Metrics,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._active = active
        self._seconds = seconds
        self._streams = streams
        self._metrics = metrics
        self._sleep = sleep
        self._arrived = False
        self._looking = False
        self._quiet = 0
        self._vain = 0

    def reconfigure(self, *, seconds: float, streams: int) -> None:
        """Use other bounds from now on."""
        self._seconds = seconds
        self._streams = streams

    def note(self) -> None:
        """Something arrived from an inference server that goes on sending: what ends an answer announces nothing."""
        self._arrived = True
        if not self._looking and self._is_worthwhile():
            self._looking = True
            self._quiet = self._vain = 0
            # Asked for once: it costs a system call, until Python 3.12.
            loop = asyncio.get_running_loop()
            loop.call_soon(self._look, loop)

    def _is_worthwhile(self) -> bool:
        return self._seconds > 0 and self._active() >= self._streams

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once in each turn of the loop: rest if this one and those before it brought nothing."""
        if self._arrived:
            self._arrived = False
            self._quiet = self._vain = 0
        elif self._vain == _VAIN_RESTS or not self._is_worthwhile():
            self._looking = False
            return
        elif self._quiet < _QUIET_TURNS:
            self._quiet += 1
        else:
            self._quiet = 0
            self._vain += 1
            self._metrics.defer(self._metrics.coalescing_rests_total)
            self._sleep(self._seconds)
        loop.call_soon(self._look, loop)
