"""Buckets that add up, and what is estimated from them."""

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.distribution import Distribution, add_up, distribute
from gateway.telemetry.metrics import Metrics

BOUNDS = (1.0, 10.0, 100.0)
VALUES = st.lists(st.integers(0, 1000))


def count(values):
    counts = [0] * (len(BOUNDS) + 1)
    for value in values:
        counts[bisect_left(BOUNDS, value)] += 1
    return distribute(BOUNDS, counts, sum(values), max(values, default=0))


def bucket_of(value):
    return bisect_left(BOUNDS, value)


@given(VALUES.filter(bool))
def test_estimates_lie_in_the_bucket_of_the_true_value_and_not_beyond_the_largest(values):
    distribution, ordered = count(values), sorted(values)
    for share, estimate in ((0.5, distribution.p50), (0.99, distribution.p99)):
        true = ordered[max(0, -(-len(values) * int(share * 100) // 100) - 1)]
        edges = (0.0, *BOUNDS, float("inf"))
        assert edges[bucket_of(true)] <= estimate <= min(edges[bucket_of(true) + 1], max(values))
    assert 0 <= distribution.p50 <= distribution.p99 <= distribution.max == max(values)
    assert (distribution.count, distribution.sum) == (len(values), sum(values))
    assert distribution.mean == pytest.approx(sum(values) / len(values))


@given(st.lists(VALUES))
def test_adding_up_is_counting_everything_at_once(groups):
    everything = count([value for values in groups for value in values])
    assert add_up([count(values) for values in groups]) == (everything if groups else Distribution())


def test_values_of_one_bucket_are_taken_for_spread_evenly():
    distribution = distribute(BOUNDS, [0, 100, 0, 0], 500.0, 10.0)
    assert (distribution.p50, distribution.p99) == (5.5, pytest.approx(9.91))


def test_beyond_the_last_bound_the_largest_value_is_the_end():
    assert distribute(BOUNDS, [0, 0, 0, 2], 700.0, 500.0).p50 == 300.0


def test_without_values_nothing_is_estimated():
    empty = distribute(BOUNDS, [0, 0, 0, 0], 0.0, 0.0)
    assert (empty.p50, empty.p99, empty.max, empty.mean) == (None, None, None, None)
    assert add_up([Distribution(), empty]) == empty


def test_counts_that_outlived_the_process_that_saw_the_largest_value_bound_it():
    """A worker that takes another one's place counts on, and has seen nothing itself."""
    distribution = distribute(BOUNDS, [0, 0, 4, 0], 200.0, 0.0)
    assert distribution.max == 10.0
    assert distribution.p50 == distribution.p99 == 10.0


def test_different_buckets_do_not_add_up():
    with pytest.raises(ValueError, match="different buckets"):
        add_up([count([1]), distribute((1.0,), [1, 0], 1.0, 1.0)])


@given(VALUES)
def test_a_histogram_tells_what_it_observed(values):
    metrics = Metrics()
    for value in values:
        metrics.defer(metrics.request_body_bytes, value)
    metrics.refresh()
    told = metrics.request_body_bytes.read()
    assert (told.count, told.sum, told.max) == (len(values), sum(values), max(values, default=None))
    assert len(told.counts) == len(told.bounds) + 1
    assert all(low < high for low, high in pairwise(told.bounds))


def test_a_histogram_with_labels_tells_of_all_of_them():
    metrics = Metrics()
    assert metrics.request_seconds.read() == Distribution()
    metrics.request_seconds.labels("a").observe(2)
    metrics.request_seconds.labels("b").observe(1)
    told = metrics.request_seconds.read()
    assert (told.count, told.sum, told.max) == (2, 3, 2)
