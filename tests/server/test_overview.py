import msgspec
import pytest
from prometheus_client import values
from telemetry.status_samples import make_status

from gateway.config.schema import ServerConfig
from gateway.protocol.errors import Unavailable
from gateway.server.overview import Overview
from gateway.telemetry.merge import merge
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.sharing import SharedMetrics, share_metrics
from gateway.transport.health import Check, Report

FINE = Report(ready=True, checks=(Check("storage", healthy=True, detail="fine"),))
NOT_FINE = Report(ready=False, checks=(Check("storage", healthy=False, detail="no database"),))


class Child:
    """A worker with one report; without one it does not answer."""

    pid = 1

    def __init__(self, number, report, serving=True):
        self.number = number
        self.serving = serving
        self.asked = []
        self._report = report

    async def ask(self, about, timeout):
        self.asked.append((about, timeout))
        return None if self._report is None else msgspec.Raw(msgspec.json.encode(self._report))


class Supervisor:
    def __init__(self, *children, stopping=False):
        self.children = {child.number: child for child in children}
        self.stopping = stopping


@pytest.fixture
def view(tmp_path, monkeypatch):
    """Makes the overview of these workers."""
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    share_metrics(tmp_path, 0)

    def view(*children, stopping=False):
        settings = ServerConfig(workers=3, worker_answer_seconds=7)
        supervisor = Supervisor(*children, stopping=stopping)
        return Overview(supervisor, lambda: settings, Metrics(), SharedMetrics(tmp_path, 0))

    return view


async def test_one_worker_that_can_serve_is_enough(view):
    report = await view(Child(2, None), Child(1, FINE), Child(3, NOT_FINE)).check()
    assert report.ready
    assert [(check.name, check.healthy, check.detail) for check in report.checks] == [
        ("draining", True, "no"),
        ("workers", True, "1 of 3 can serve"),
        ("worker 1 storage", True, "fine"),
        ("worker 2 answers", False, "does not answer"),
        ("worker 3 storage", False, "no database"),
    ]


@pytest.mark.parametrize("children", [(), (Child(1, NOT_FINE), Child(2, None)), (Child(1, FINE, serving=False),)])
async def test_without_one_it_is_not_ready(view, children):
    report = await view(*children).check()
    assert (report.ready, report.checks[1].detail) == (False, "0 of 3 can serve")


async def test_during_a_stop_it_is_not_ready(view):
    assert not (await view(Child(1, FINE), stopping=True).check()).ready


async def test_the_status_is_that_of_all_that_answer(view):
    one, other = make_status(started=5.0), make_status(started=3.0)
    children = Child(1, one), Child(2, None), Child(3, other)
    assert await view(*children).read_status() == merge([one, other])


async def test_without_an_answer_there_is_no_status(view):
    with pytest.raises(Unavailable, match="No worker answers"):
        await view(Child(1, None)).read_status()


async def test_a_scrape_has_every_worker_bring_its_numbers_up_to_date(view):
    children = Child(1, FINE), Child(2, None), Child(3, FINE, serving=False)
    text = (await view(*children).expose()).decode()
    assert [child.asked for child in children] == [[("metrics", 7)], [("metrics", 7)], []]
    assert "gateway_stream_events_total 0.0" in text
    assert 'process_resident_memory_bytes{worker="parent"}' in text
