import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.schema import LimitsConfig
from gateway.engine.admission import Place
from gateway.engine.quotas import Allowance, Quotas
from gateway.protocol.errors import RateLimitExceeded


class Site:
    """Quotas with a clock of the test's own, and a count of the places held."""

    def __init__(self, **limits):
        self.now = 100.0
        self.held = 0
        self.quotas = Quotas(LimitsConfig(**limits), self.now)

    def enter(self, principal="ada"):
        self.held += 1
        return self.quotas.enter(Place(self._leave), principal, self.now)

    def refuse(self, principal="ada"):
        with pytest.raises(RateLimitExceeded) as refusal:
            self.enter(principal)
        return refusal.value

    def _leave(self):
        self.held -= 1


def test_nothing_is_limited_unless_asked_for():
    assert not Quotas(LimitsConfig(), 0).apply
    for key in ("max_concurrent_per_principal", "requests_per_minute_per_principal", "requests_per_minute"):
        assert Quotas(LimitsConfig(**{key: 1}), 0).apply


def test_one_more_than_may_be_at_once_is_refused_until_one_ends():
    site = Site(max_concurrent_per_principal=2)
    first, _second = site.enter(), site.enter()
    error = site.refuse()
    assert (error.status, error.code, error.bound) == (
        429,
        "rate_limit_exceeded",
        "limits.max_concurrent_per_principal",
    )
    assert (error.hints, site.held) == ({"retry-after": "1"}, 2)
    assert first.headers == {}
    site.enter("bob")
    with first:
        pass
    site.enter()
    site.refuse()


def test_a_minutes_worth_may_be_used_at_once_and_is_made_up_for_evenly():
    site = Site(requests_per_minute_per_principal=6)
    left = [site.enter().headers["x-ratelimit-remaining-requests"] for _ in range(6)]
    assert left == ["5", "4", "3", "2", "1", "0"]
    error = site.refuse()
    assert error.hints == {
        "retry-after": "10",
        "x-ratelimit-limit-requests": "6",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "60.000s",
    }
    assert "[limits] requests_per_minute_per_principal); try again in 10 seconds" in error.message
    site.enter("bob")
    site.now += 9.9
    assert site.refuse().hints["retry-after"] == "1"
    site.now += 0.2
    site.enter()
    site.refuse()


def test_all_together_share_one_allowance():
    site = Site(requests_per_minute=2)
    assert [site.enter(name).headers["x-ratelimit-remaining-requests"] for name in ("ada", "bob")] == ["1", "0"]
    error = site.refuse("carl")
    assert (error.bound, error.message[:20]) == ("limits.requests_per_minute", "All callers together")


def test_a_refused_request_uses_up_nothing():
    site = Site(requests_per_minute=10, requests_per_minute_per_principal=1)
    site.enter()
    for _ in range(20):
        site.refuse()
    assert site.enter("bob").headers["x-ratelimit-remaining-requests"] == "0"
    site = Site(requests_per_minute=3, max_concurrent_per_principal=1)
    place = site.enter()
    site.refuse()
    place.leave()
    assert site.enter().headers["x-ratelimit-remaining-requests"] == "1"


def test_other_limits_count_from_what_was_counted():
    site = Site(requests_per_minute_per_principal=4, max_concurrent_per_principal=9)
    for _ in range(3):
        site.enter()
    site.quotas.reconfigure(LimitsConfig(requests_per_minute_per_principal=6, max_concurrent_per_principal=4), 100)
    assert site.enter().headers["x-ratelimit-remaining-requests"] == "2"
    assert site.refuse().bound == "limits.max_concurrent_per_principal"
    site.quotas.reconfigure(LimitsConfig(requests_per_minute_per_principal=1), 100)
    assert site.refuse().bound == "limits.requests_per_minute_per_principal"
    site.quotas.reconfigure(LimitsConfig(), 100)
    assert (site.enter().headers, site.quotas.apply) == ({}, False)


def test_only_so_many_principals_are_remembered_and_none_with_something_under_way_is_forgotten():
    site = Site(requests_per_minute_per_principal=1, max_principals=2)
    busy = site.enter("busy")
    site.enter("done").leave()
    site.enter("new").leave()
    site.refuse("busy")
    site.enter("done").leave()
    busy.leave()
    assert set(site.quotas._accounts) == {"busy", "done"}


def test_where_all_are_busy_one_more_is_remembered():
    site = Site(max_concurrent_per_principal=1, max_principals=1)
    site.enter("ada")
    site.enter("bob")
    site.refuse("ada")


@given(st.integers(1, 600), st.lists(st.floats(0, 30), max_size=200))
def test_in_no_span_is_more_taken_than_a_burst_and_what_the_span_makes_up_for(per_minute, steps):
    allowance, now, taken = Allowance(per_minute, 0.0), 0.0, []
    for step in steps:
        now += step
        wait = allowance.wait(now)
        assert wait <= 60 / per_minute + 1e-6
        if not wait:
            allowance.take()
            taken.append(now)
    for index, start in enumerate(taken):
        for count, end in enumerate(taken[index:], 1):
            assert count <= per_minute + (end - start) * per_minute / 60 + 1e-6


@given(st.integers(1, 600), st.floats(0, 1000))
def test_whoever_waits_as_long_as_told_is_let_in(per_minute, now):
    allowance = Allowance(per_minute, now)
    while not allowance.wait(now):
        allowance.take()
    now += allowance.wait(now) + 1e-6
    assert allowance.wait(now) == 0
