import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway import __version__
from gateway.telemetry import names
from gateway.telemetry.metrics import Metrics, read_values
from gateway.telemetry.names import Metric

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
METRICS = [value for value in vars(names).values() if isinstance(value, Metric)]


def families(metrics):
    return {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}


def family_name(metric):
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


def test_reference_page_lists_exactly_the_metrics():
    rows = re.findall(r"^\| `(gateway_\w+)` \| (\w+) \| ([^|]+) \| (.+) \|$", REFERENCE.read_text(), re.MULTILINE)
    listed = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows]
    assert listed == [(metric.name, metric.kind, metric.labels, metric.help) for metric in METRICS]


@pytest.fixture(scope="module")
def exposed():
    return families(Metrics())


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_name_is_exposed_with_its_type(exposed, metric):
    family = exposed[family_name(metric)]
    assert (family.type, family.documentation) == (metric.kind, metric.help)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric):
    assert metric.name.startswith("gateway_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    if metric.kind == "histogram":
        assert metric.name.endswith(("_seconds", "_bytes", "_rounds"))
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_two_apps_in_one_process_share_nothing():
    one, other = Metrics(), Metrics()
    one.stream_events_total.inc(3)
    assert one.registry.get_sample_value("gateway_stream_events_total") == 3
    assert other.registry.get_sample_value("gateway_stream_events_total") == 0


def test_build_info_names_the_version():
    sample = families(Metrics())["gateway_build_info"].samples[0]
    assert (sample.labels["version"], sample.value) == (__version__, 1)


async def test_tasks_are_those_of_the_loop_that_shows_them():
    metrics = Metrics()
    alone = metrics.registry.get_sample_value("gateway_tasks")
    waiting = asyncio.create_task(asyncio.Event().wait())
    assert metrics.registry.get_sample_value("gateway_tasks") == alone + 1
    waiting.cancel()
    assert await asyncio.to_thread(metrics.registry.get_sample_value, "gateway_tasks") == 0


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0, 1e6)), max_size=40))
def test_what_is_bumped_together_counts_as_if_bumped_one_by_one(bumps):
    together, single = Metrics(), Metrics()
    for code, amount in bumps:
        together.defer(together.request_seconds.labels(code), amount)
        together.defer(together.response_errors_total.labels(code), amount)
        single.request_seconds.labels(code).observe(amount)
        single.response_errors_total.labels(code).inc(amount)
    for code, _ in bumps:
        for sample, labels in (
            *((f"gateway_request_seconds_{part}", {"route": code}) for part in ("count", "sum")),
            ("gateway_response_errors_total", {"code": code}),
            *(("gateway_request_seconds_bucket", {"route": code, "le": le}) for le in ("0.005", "1.0", "+Inf")),
        ):
            read = [metrics.registry.get_sample_value(sample, labels) for metrics in (together, single)]
            assert read[0] == pytest.approx(read[1])
            assert read[0] is not None


def test_many_bumps_of_one_metric_are_counted_without_a_reader():
    metrics = Metrics()
    metrics.defer(metrics.request_body_bytes, 5)
    for _ in range(1000):
        metrics.defer(metrics.client_disconnects_total)
        metrics.count_response("sse", "completed", 0.5, 100, None)
    # Without the registry, which would bring everything up to date.
    totals = [metrics.client_disconnects_total, metrics.responses_total.labels("sse", "completed")]
    assert all(700 < read_values(total)[()] < 1000 for total in totals)
    assert metrics.request_body_bytes.read().count == 0
    metrics.refresh()
    assert [read_values(total)[()] for total in totals] == [1000, 1000]
    assert metrics.request_body_bytes.read().count == 1


def test_a_histogram_knows_its_largest_value():
    metrics = Metrics()
    assert metrics.request_body_bytes.largest == 0
    metrics.defer(metrics.request_body_bytes, 7)
    metrics.defer(metrics.request_body_bytes, 3)
    metrics.render()
    assert metrics.request_body_bytes.largest == 7
    metrics.request_body_bytes.observe(9)
    metrics.request_seconds.labels("a").observe(2)
    metrics.request_seconds.labels("b").observe(1)
    assert metrics.request_body_bytes.largest == 9
    assert [metrics.request_seconds.labels(route).largest for route in "ab"] == [2, 1]
