"""How many users there are at each moment of a run. None of it knows of Locust, clocks or sockets."""

from collections.abc import Callable
from typing import Protocol

from measure import Summary
from msgspec import Struct
from plan import Objectives, Plan, Steps

Judge = Callable[[float, float], Summary]
"""Says what happened between two moments of a run, in seconds since its begin."""


class Shape(Protocol):
    """A course that a run takes."""

    def count_users(self, now: float, judge: Judge) -> int | None:
        """Return how many users there are to be now, in seconds since the begin; None ends the run."""
        ...


class Constant(Struct):
    """As many users all the time."""

    users: int
    seconds: float

    def count_users(self, now: float, judge: Judge) -> int | None:  # noqa: ARG002 - other shapes ask it
        return self.users if now < self.seconds else None


class Ramp(Struct):
    """More and more users, or fewer and fewer, evenly."""

    first: int
    last: int
    seconds: float

    def count_users(self, now: float, judge: Judge) -> int | None:  # noqa: ARG002 - other shapes ask it
        if now >= self.seconds:
            return None
        return self.first + int((self.last - self.first + 1) * now / self.seconds)


class Step(Struct, frozen=True):
    """So many users, held for a while.

    Attributes:
        users: how many.
        begin: of what was judged, in seconds since the begin of the run.
        end: the same.
        good_share: share of the turns that met the objectives.
        failed: turns that failed.
        met: whether the step met the objectives.
    """

    users: int
    begin: float
    end: float
    good_share: float
    failed: int
    met: bool


class Staircase:
    """More users with each step, until one misses the objectives as often as it may be tried.

    Args:
        settings: first step, factor, how long each is held.
        objectives: what is to be met.
        lag: seconds after which everything that was measured is known.

    Attributes:
        steps: every step that was judged, tried again or not.
    """

    def __init__(self, settings: Steps, objectives: Objectives, lag: float = 0.0) -> None:
        self.steps: list[Step] = []
        self._settings = settings
        self._objectives = objectives
        self._lag = lag
        self._users = settings.first_users
        self._began = 0.0
        self._attempts = 0

    @property
    def highest(self) -> int | None:
        """Users of the highest step that met the objectives."""
        return max((step.users for step in self.steps if step.met), default=None)

    def count_users(self, now: float, judge: Judge) -> int | None:
        begin = self._began + self._settings.settle_seconds
        end = begin + self._settings.hold_seconds
        if now < end + self._lag:
            return self._users
        seen = judge(begin, end)
        met = seen.meets(self._objectives)
        share = seen.good / seen.turns if seen.turns else 0.0
        self.steps.append(Step(self._users, begin, end, share, seen.failed, met))
        self._attempts += 1
        self._began = now
        if met:
            return self._climb()
        return self._users if self._attempts < self._settings.attempts else None

    def _climb(self) -> int | None:
        if self._users >= self._settings.max_users:
            return None
        wanted = max(self._users + 1, int(self._users * self._settings.factor))
        self._users, self._attempts = min(wanted, self._settings.max_users), 0
        return self._users


def choose_shape(plan: Plan, lag: float = 0.0) -> Shape:
    """Return the shape that a plan names."""
    run = plan.run
    match run.shape:
        case "ramp":
            return Ramp(plan.ramp.first_users, run.users, run.seconds)
        case "steps":
            return Staircase(plan.steps, plan.slo, lag)
        case _:
            return Constant(run.users, run.seconds)
