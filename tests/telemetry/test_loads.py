"""Levels and their high-water marks."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.loads import Level
from gateway.telemetry.metrics import Metrics


@given(st.lists(st.integers(-50, 50)))
def test_a_level_knows_the_most_it_has_been(steps):
    level = Level()
    for step in steps:
        level.move(step)
    heights = list(accumulate(steps, initial=0))
    assert (level.now, level.high) == (heights[-1], max(heights))


def test_every_level_is_shown_beside_its_high_water_mark():
    metrics = Metrics()
    load, storage, delivery = metrics.socket_load, metrics.storage_load, metrics.delivery_load
    levels = {
        "active_responses": metrics.active_responses,
        "agents_active": metrics.agents_active,
        "background_queued": metrics.background_load.queued,
        "background_readers": metrics.background_readers,
        "background_running": metrics.background_load.running,
        "client_connections": metrics.client_connections,
        "delivery_queue_batches": delivery.batches,
        "delivery_queue_bytes": delivery.bytes,
        "mcp_sessions": metrics.mcp_sessions,
        "storage_queue_bytes": storage.bytes,
        "storage_queue_entries": storage.entries,
        "tool_work_running": metrics.tool_load.running,
        "tool_work_waiting": metrics.tool_load.waiting,
        "websocket_connections": load.connections,
        "websocket_control_bytes": load.control_bytes,
        "websocket_controls_waiting": load.controls,
        "websocket_creates_running": load.running,
        "websocket_creates_waiting": load.waiting,
        "websocket_outstanding_bytes": load.outstanding_bytes,
        "websocket_session_bytes": load.session_bytes,
    }
    for number, level in enumerate(levels.values(), 1):
        level.set(10 * number)
        level.set(number)
    read = metrics.registry.get_sample_value
    for number, name in enumerate(levels, 1):
        assert (read(f"gateway_{name}"), read(f"gateway_{name}_high_water")) == (number, 10 * number), name
    shown = {family.name for family in metrics.registry.collect() if family.name.endswith("_high_water")}
    of_calls = {"gateway_upstream_calls_running_high_water", "gateway_upstream_calls_waiting_high_water"}
    assert shown - of_calls == {f"gateway_{name}_high_water" for name in levels}


class Calls:
    def __init__(self):
        self.running = Level()
        self.waiting = Level()


@pytest.mark.parametrize("name", ["running", "waiting"])
def test_calls_are_shown_by_server(name):
    metrics, calls = Metrics(), Calls()
    metrics.watch_calls("gpu", calls)
    getattr(calls, name).set(3)
    getattr(calls, name).set(1)
    labels = {"upstream": "gpu"}
    assert metrics.registry.get_sample_value(f"gateway_upstream_calls_{name}", labels) == 1
    assert metrics.registry.get_sample_value(f"gateway_upstream_calls_{name}_high_water", labels) == 3
