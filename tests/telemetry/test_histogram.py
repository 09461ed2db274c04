import pytest
from prometheus_client import CollectorRegistry

from gateway.telemetry.histogram import Histogram


def make():
    return Histogram("seconds", "Some.", registry=CollectorRegistry(), buckets=(1, 2.5, 10))


def read_samples(histogram):
    samples = (sample for family in histogram.collect() for sample in family.samples)
    return [(sample.name, sample.labels, sample.value) for sample in samples if "_created" not in sample.name]


@pytest.mark.parametrize("amounts", [[3], [2.5, 1, 10], [0, 11, 2, 10.5, 0.5, 2, 99]])
def test_many_values_at_once_are_observed_as_one_by_one(amounts):
    together, apart = make(), make()
    together.observe_all(amounts)
    for amount in amounts:
        apart.observe(amount)
    assert read_samples(together) == read_samples(apart)
    assert together.largest == apart.largest == max(amounts)
