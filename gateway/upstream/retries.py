"""How often, and how soon, a call may be tried again for which no connection could be opened."""

import random
from collections.abc import Callable

_FIRST_WAIT_SECONDS = 0.05
# What is always allowed, however few calls there are: else a quiet gateway could never try again.
_EACH_SECOND = 1.0
_SAVED = 10.0


class RetryBudget:
    """A bucket of retries, filled by calls and, slowly, by time.

    Args:
        share: retries earned by one call.
        clock: seconds that never go back.
    """

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._tokens = _SAVED
        self._filled_at = clock()

    def note_call(self) -> None:
        """A call is made, its retries not counted."""
        if self._tokens < _SAVED:
            self._fill(self._share)

    def take(self) -> bool:
        """Whether one more retry is allowed; if so it is counted."""
        now = self._clock()
        self._fill((now - self._filled_at) * _EACH_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fill(self, tokens: float) -> None:
        self._tokens = min(_SAVED, self._tokens + tokens)


def choose_wait(attempt: int, longest: float, *, draw: Callable[[], float] = random.random) -> float:
    """Return the seconds to wait before a retry, half of which are left to chance.

    Args:
        attempt: how many attempts have failed, at least 1.
        longest: upper bound.
        draw: returns a number from 0 to 1.
    """
    return min(longest, _FIRST_WAIT_SECONDS * 2.0 ** (attempt - 1)) * (1 + draw()) / 2
