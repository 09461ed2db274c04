import fcntl
import os

import pytest
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry import names
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import Metric
from gateway.telemetry.sharing import SharedMetrics, forget_gauges, share_metrics, shared_folder

METRICS = [value for value in vars(names).values() if isinstance(value, Metric)]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Makes the metrics of a process with this number; one process plays them all."""
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")

    def start(number):
        share_metrics(tmp_path, number)
        return Metrics()

    return start


def read(folder, name, **labels):
    rendered = SharedMetrics(folder, 0).render({}).decode()
    samples = [sample for family in text_string_to_metric_families(rendered) for sample in family.samples]
    (value,) = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
    return value


def test_without_sharing_there_are_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Metrics().refresh()
    assert list(tmp_path.iterdir()) == []


def test_counts_and_observations_of_all_processes_add_up(start, tmp_path):
    for number in (1, 2):
        metrics = start(number)
        metrics.stream_events_total.inc(number)
        metrics.defer(metrics.ttft_seconds, 0.05)
        metrics.refresh()
    assert read(tmp_path, "gateway_stream_events_total") == 3
    assert read(tmp_path, "gateway_time_to_first_token_seconds_count") == 2
    assert read(tmp_path, "gateway_time_to_first_token_seconds_bucket", le="0.06") == 2


def test_gauges_of_functions_are_shown_as_of_the_last_refresh(start, tmp_path):
    states = {1: 2, 2: 0}
    for number in states:
        metrics = start(number)
        metrics.socket_load.connections.set(2 + number)
        metrics.watch(metrics.upstream_breaker_state, lambda number=number: states[number], "a")
        metrics.refresh()
    assert read(tmp_path, "gateway_websocket_connections") == 7
    assert read(tmp_path, "gateway_upstream_breaker_state", upstream="a") == 2


def test_of_a_process_that_died_the_counts_stay_and_its_successor_goes_on(start, tmp_path):
    dead, other = start(1), start(2)
    for metrics in (dead, other):
        metrics.stream_events_total.inc(5)
        metrics.socket_load.connections.set(2)
        metrics.refresh()
    forget_gauges(tmp_path, 1)
    assert read(tmp_path, "gateway_stream_events_total") == 10
    assert read(tmp_path, "gateway_websocket_connections") == 2
    files = sorted(tmp_path.iterdir())
    successor = start(1)
    successor.stream_events_total.inc(1)
    successor.socket_load.connections.set(1)
    successor.refresh()
    assert read(tmp_path, "gateway_stream_events_total") == 11
    assert read(tmp_path, "gateway_websocket_connections") == 3
    assert len(list(tmp_path.iterdir())) == len(files) + len(list(tmp_path.glob("gauge_*_1.db")))


def test_the_oldest_configuration_and_the_newest_sweep_count(start, tmp_path):
    # The one that shows them has made its metrics too, with 0 in every gauge.
    start(0)
    for number in (1, 2):
        metrics = start(number)
        metrics.config_last_reload_timestamp_seconds.set(number)
        metrics.retention_last_sweep_timestamp_seconds.set(number)
    assert read(tmp_path, "gateway_config_last_reload_timestamp_seconds") == 1
    assert read(tmp_path, "gateway_retention_last_sweep_timestamp_seconds") == 2


def test_every_family_is_shown_with_its_type(start, tmp_path):
    start(1).refresh()
    rendered = SharedMetrics(tmp_path, 0).render({}).decode()
    shown = {family.name: family.type for family in text_string_to_metric_families(rendered)}
    wanted = {
        metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name: metric.kind
        for metric in METRICS
        if not metric.labels
    }
    assert {name: shown.get(name) for name in wanted} == wanted


def test_processes_are_told_apart_by_a_label(tmp_path):
    rendered = SharedMetrics(tmp_path, 0).render({"parent": os.getpid(), "1": os.getpid(), "2": 2**22 + 1}).decode()
    shown = {family.name: family for family in text_string_to_metric_families(rendered)}
    assert [sample.labels for sample in shown["process_resident_memory_bytes"].samples] == [
        {"worker": "parent"},
        {"worker": "1"},
    ]
    assert shown["process_cpu_seconds"].type == "counter"


def test_what_killed_processes_left_is_removed_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used, left = tmp_path / "gateway-metrics-used", tmp_path / "gateway-metrics-left"
    being_made, elsewhere = tmp_path / "gateway-metrics-new", tmp_path / "other"
    for folder in (used, left, being_made, elsewhere):
        folder.mkdir()
    for folder in (used, left, elsewhere):
        (folder / "lock").touch()
    (left / "counter_1.db").touch()
    (tmp_path / "gateway-metrics-link").symlink_to(elsewhere)
    with (used / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with shared_folder() as made:
            assert made.is_dir()
            assert set(tmp_path.iterdir()) - {made, tmp_path / "gateway-metrics-link"} == {used, being_made, elsewhere}
            assert (elsewhere / "lock").exists()
    assert not made.exists()


def test_who_shares_a_folder_holds_its_lock(start, tmp_path):
    start(1)
    with (tmp_path / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
