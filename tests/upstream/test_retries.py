import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.retries import RetryBudget, choose_wait


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def drain(budget: RetryBudget) -> int:
    taken = 0
    while budget.take():
        taken += 1
    return taken


def test_a_few_are_saved_up_at_the_start():
    assert drain(RetryBudget(0.2, Clock())) == 10


def test_calls_earn_a_share():
    budget = RetryBudget(0.25, Clock())
    drain(budget)
    for _ in range(8):
        budget.note_call()
    assert drain(budget) == 2


def test_one_more_each_second_without_any_call():
    clock = Clock()
    budget = RetryBudget(0, clock)
    drain(budget)
    clock.now = 3.5
    assert drain(budget) == 3


@given(share=st.floats(0, 1), steps=st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=200))
def test_an_outage_is_never_multiplied(share, steps):
    clock = Clock()
    budget = RetryBudget(share, clock)
    calls = taken = 0
    for makes_call, seconds in steps:
        clock.now += seconds
        if makes_call:
            budget.note_call()
            calls += 1
        taken += budget.take()
        assert taken <= 10 + share * calls + clock.now + 1e-6


@pytest.mark.parametrize(("attempt", "bounds"), [(1, (0.025, 0.05)), (2, (0.05, 0.1)), (9, (0.25, 0.5))])
def test_waits_double_up_to_the_longest(attempt, bounds):
    assert tuple(choose_wait(attempt, 0.5, draw=lambda at=at: at) for at in (0.0, 1.0)) == bounds


@given(attempt=st.integers(1, 11), longest=st.floats(0, 60))
def test_no_wait_is_longer_than_the_longest(attempt, longest):
    assert 0 <= choose_wait(attempt, longest) <= longest
