"""Leaves a server that keeps failing alone for a while.

A state machine without any I/O: it is told what became of calls and probes, and asks only the clock it was given. What
counts as a failure is the caller's to say.
"""

import math
from collections.abc import Callable
from enum import IntEnum

from gateway.protocol.errors import Unavailable


class State(IntEnum):
    """What becomes of the next call; the numbers are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Opens after a number of failures in a row, and lets one call at a time find out whether it may close.

    Rounds are numbered by how often it has opened. Calls that began in an earlier one have no say any more: they tell
    of the past.

    Args:
        name: the upstream's name, for the message.
        failures: how many open it; 0 never does.
        open_seconds: how long it refuses every call.
        clock: seconds that never go back.
        tell: told of every change that a call or a probe brought about.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: int,
        open_seconds: float,
        clock: Callable[[], float],
        tell: Callable[[State], None],
    ) -> None:
        self._name = name
        self._failures = failures
        self._open_seconds = open_seconds
        self._clock = clock
        self._tell = tell
        self._row = 0
        self._round = 0
        self._open_until: float | None = None
        self._trying = False

    @property
    def state(self) -> State:
        """What becomes of the next call: made, tried if none is being tried, or refused."""
        if self._open_until is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._open_until else State.HALF_OPEN

    def admit(self) -> int:
        """Return the round in which a call begins; what became of the call must be told by `settle`, once.

        Raises:
            Unavailable: the server is left alone; says for how long.
        """
        if self._open_until is not None:
            left = self._open_until - self._clock()
            if left > 0 or self._trying:
                raise self._refusal(left)
            self._trying = True
        return self._round

    def settle(self, round: int, answered: bool | None) -> None:
        """Take in what became of a call.

        Args:
            round: in which it began.
            answered: whether the server answered it, rather than not, or no better than if it had not; None is no
                verdict.
        """
        if round != self._round:
            return
        # In a round that begins with opening, there is no other call before it closes.
        tried, self._trying = self._trying, False
        if answered is None:
            return
        if tried and answered:
            self._close()
        elif tried:
            self._open()
        elif answered:
            self._row = 0
        else:
            self._row += 1
            if self._row >= self._failures > 0:
                self._open()

    def note_healthy(self) -> None:
        """A probe found the server well: close, once the time is up, but open again at the next failure."""
        if self.state is State.HALF_OPEN:
            self._close()
            self._row = self._failures - 1

    def _open(self) -> None:
        self._round += 1
        self._open_until = self._clock() + self._open_seconds
        self._tell(State.OPEN)

    def _close(self) -> None:
        self._row = 0
        self._open_until = None
        self._trying = False
        self._tell(State.CLOSED)

    def _refusal(self, left: float) -> Unavailable:
        seconds = max(1, math.ceil(left))
        refusal = Unavailable(
            f"Upstream '{self._name}' failed repeatedly and is left alone for now ([upstream] breaker_open_seconds); "
            f"send the request again in {seconds} {'second' if seconds == 1 else 'seconds'}."
        )
        refusal.retry_after = seconds
        return refusal
