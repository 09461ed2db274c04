"""However and whenever clients leave, nothing of their requests stays behind."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.client import open_create
from harness.upstream import Upstream
from integration.aborts import MOMENTS, SETTINGS, Campaign, is_complaint, stall
from integration.watched import Holdings, WatchedGateway

ABORTS = 300


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """One of the test's own: connections of other gateways must not count."""
    with Upstream() as running:
        yield running


@pytest.fixture
def watched(tmp_path: Path, upstream: Upstream) -> Iterator[WatchedGateway]:
    with WatchedGateway(tmp_path, upstream, SETTINGS) as running:
        yield running


@pytest.mark.checklist(18, 25)
def test_three_hundred_aborts_leave_nothing_behind(watched: WatchedGateway, upstream: Upstream) -> None:
    report = Campaign(watched, upstream, [ABORTS // 3, ABORTS], seed=300).run()
    assert report.broken == []
    assert report.aborts.total() == ABORTS
    assert set(report.aborts) == set(MOMENTS)
    # Many of them were being served when they were left.
    assert len(upstream.requests) > ABORTS / 4
    assert watched.count("gateway_client_disconnects_total") > ABORTS / 2


def test_the_campaign_notices_what_is_held(watched: WatchedGateway, upstream: Upstream) -> None:
    upstream.script("held", stall)
    idle = watched.rest()
    with open_create(watched.port, {"model": "held", "input": "hi", "stream": True}):
        upstream.await_call("held")
        held = watched.rest().beyond(idle)
    assert held["gateway_active_responses"] == 1
    assert held["gateway_upstream_calls_running"] == 1
    assert held["gateway_client_connections"] == 1
    assert held["upstream calls"] == 1
    assert held["descriptors"] == 1
    assert held["tasks"] == 1
    assert watched.settle(idle) == {}


def test_an_idle_connection_is_a_descriptor(watched: WatchedGateway) -> None:
    idle = watched.rest()
    with socket.create_connection(("127.0.0.1", watched.port)):
        assert watched.rest().beyond(idle) == {"gateway_client_connections": 1, "descriptors": 1}
    assert watched.settle(idle) == {}


def test_more_than_before_counts_and_less_does_not() -> None:
    idle = Holdings(gauges={"gateway_active_responses": 0}, tasks=5, descriptors=9, upstream_calls=0)
    later = Holdings(gauges={"gateway_active_responses": 0}, tasks=4, descriptors=11, upstream_calls=0)
    assert later.beyond(idle) == {"descriptors": 2}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"level":"error","message":"a run failed unexpectedly"}', True),
        ("Traceback (most recent call last):", True),
        ('{"level":"warning","message":"the database is slow"}', False),
    ],
)
def test_complaints_are_errors_and_tracebacks(line: str, complaint: bool) -> None:
    assert is_complaint(line) is complaint
