"""How many users there are at each moment, and when a staircase ends."""

from collections.abc import Callable

import pytest
from measure import Turn, summarize
from msgspec import structs
from plan import Plan
from shapes import Constant, Ramp, Staircase, choose_shape


def unasked(begin: float, end: float):
    raise AssertionError("this shape needs no judge")


def test_constant() -> None:
    shape = Constant(5, 10.0)
    assert [shape.count_users(now, unasked) for now in (0, 9.9, 10)] == [5, 5, None]


@pytest.mark.parametrize(("first", "last", "seen"), [(1, 10, [1, 6, 10, None]), (10, 10, [10, 10, 10, None])])
def test_ramp(first: int, last: int, seen: list[int | None]) -> None:
    shape = Ramp(first, last, 20.0)
    assert [shape.count_users(now, unasked) for now in (0, 10, 19.9, 20)] == seen


class Server:
    """Serves so many users well."""

    def __init__(self, plan: Plan, capacity: Callable[[int], bool]) -> None:
        settings = structs.replace(
            plan.steps, first_users=4, factor=1.5, max_users=20, settle_seconds=2.0, hold_seconds=5.0, attempts=2
        )
        self.stairs = Staircase(settings, plan.slo, lag=1.0)
        self.asked: list[tuple[float, float]] = []
        self._plan = plan
        self._serves_well = capacity

    def run(self) -> list[int]:
        """Take the staircase second by second, and return the users of each."""
        seen = []
        while (users := self.stairs.count_users(float(len(seen)), self._judge)) is not None:
            seen.append(users)
            self._users = users
        return seen

    def _judge(self, begin: float, end: float):
        self.asked.append((begin, end))
        ttft = 1000 if self._serves_well(self._users) else 10**6
        return summarize([Turn(kind="sse", began=0, ttft=ttft)], end - begin, self._plan.slo)


def test_a_staircase_climbs_until_a_step_was_missed_twice(plan: Plan) -> None:
    server = Server(plan, lambda users: users <= 9)
    seen = server.run()
    assert [users for number, users in enumerate(seen) if number % 8 == 0] == [4, 6, 9, 13, 13]
    assert [(step.users, step.met) for step in server.stairs.steps] == [
        (4, True),
        (6, True),
        (9, True),
        (13, False),
        (13, False),
    ]
    assert server.stairs.highest == 9
    # The first two seconds of each step settle, and the last waits for what is on its way.
    assert server.asked[:2] == [(2, 7), (10, 15)]


def test_a_step_that_is_missed_once_is_tried_again(plan: Plan) -> None:
    tries = iter([True, False, True, *[False] * 10])
    server = Server(plan, lambda _: next(tries))
    server.run()
    assert [(step.users, step.met) for step in server.stairs.steps][:3] == [(4, True), (6, False), (6, True)]
    assert server.stairs.highest == 6


def test_a_staircase_ends_at_the_most_users(plan: Plan) -> None:
    server = Server(plan, lambda _: True)
    server.run()
    assert [step.users for step in server.stairs.steps] == [4, 6, 9, 13, 19, 20]
    assert server.stairs.highest == 20


def test_no_step_may_be_good(plan: Plan) -> None:
    server = Server(plan, lambda _: False)
    server.run()
    assert (len(server.stairs.steps), server.stairs.highest) == (2, None)


def test_a_step_without_turns_is_missed(plan: Plan) -> None:
    stairs = Staircase(plan.steps, plan.slo)
    held = plan.steps.settle_seconds + plan.steps.hold_seconds
    assert stairs.count_users(held, lambda *_: summarize([], 1.0, plan.slo)) == plan.steps.first_users
    assert (stairs.steps[0].met, stairs.steps[0].good_share) == (False, 0.0)


def test_the_plan_names_the_shape(plan: Plan) -> None:
    shapes = [choose_shape(plan.vary(run={"shape": name})) for name in ("constant", "ramp", "steps")]
    assert list(map(type, shapes)) == [Constant, Ramp, Staircase]
