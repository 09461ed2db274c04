"""`gateway serve --workers 2`: one address, one log, one admin port, and nothing lost when a worker dies."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness.client import create, open_create, read_until
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.failover import Failover, answer_after_a_while
from integration.turns import Held
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.postgres
SETTINGS = {"server.workers": "2", "admin.enabled": "true", "admin.bind": "127.0.0.1:0"}


class Crew(DatabaseGateway):
    """A gateway with two workers; its temporary files are in a folder of its own."""

    def __init__(self, folder: Path, upstream: str, database: str, **settings: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        super().__init__(folder, upstream, database, {**SETTINGS, **settings}, {"TMPDIR": str(self.temporary)})

    def start(self, ready_path: str) -> None:
        super().start(ready_path)
        self.await_log("Responses Gateway", "2 workers", timeout=30)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    @property
    def admin_url(self) -> str:
        return self.await_log("Responses Gateway").partition("admin ")[2].partition(")")[0]

    def pids(self) -> dict[int, int]:
        """The latest process of each worker."""
        return {record["worker"]: record["pid"] for record in self.records if record["message"].endswith(" serves")}

    def busy_worker(self) -> int:
        """The worker that makes the one response which is being made."""
        processes = httpx.get(f"{self.admin_url}/status.json").json()["processes"]
        (busy,) = (process["pid"] for process in processes if process["responses"])
        return next(worker for worker, pid in self.pids().items() if pid == busy)

    def read(self, name: str, **labels: str) -> float:
        """Read one sample of the metrics."""
        text = httpx.get(f"{self.admin_url}/metrics").text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return sum(
            sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
        )

    def await_value(self, name: str, value: float) -> None:
        """Wait until one sample of the metrics has this value."""
        deadline = time.monotonic() + 20
        while (found := self.read(name)) != value:
            assert time.monotonic() < deadline, f"{name} is {found}"


@pytest.fixture(scope="module")
def database(postgres_server: Any) -> str:
    return postgres_server.create_database()


@pytest.fixture(scope="module")
def engine() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.otherwise(answer_after_a_while)
        yield upstream


@pytest.fixture(scope="module")
def started(engine: Upstream, database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with Crew(tmp_path_factory.mktemp("crew"), engine.url, database) as running:
        yield running


@pytest.fixture
def crew(started: Crew) -> Crew:
    """The gateway of this file; a test that ends it leaves the next one a new process."""
    if not started.running:
        started.log_file.unlink()
        started.start("/livez")
    return started


def ends(pid: int, timeout: float = 10.0) -> bool:
    """Wait for the end of a process that is not ours to wait for."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_operators_see_one_gateway(crew: Crew, engine: Upstream) -> None:
    served = crew.read("gateway_responses_total", transport="json", status="completed")
    for _ in range(12):
        assert create(crew.port, {"model": "m", "input": "hi"}).status == 200
    assert crew.read("gateway_responses_total", transport="json", status="completed") == served + 12
    assert crew.read("gateway_workers") == 2
    assert crew.read("gateway_build_info") == 1
    # The scrape itself is no connection of a caller.
    crew.await_value("gateway_client_connections", 0)
    with open_create(crew.port, {"model": Held(engine, "held").model, "input": "hi", "stream": True}):
        crew.await_value("gateway_active_responses", 1)
    ready = httpx.get(f"{crew.admin_url}/readyz?verbose")
    assert ready.status_code == 200
    assert {check["name"] for check in ready.json()["checks"]} >= {"workers", "worker 1 storage", "worker 2 storage"}
    assert httpx.get(f"http://127.0.0.1:{crew.port}/readyz").status_code == 200
    status = httpx.get(f"{crew.admin_url}/status.json").json()
    assert {process["pid"] for process in status["processes"]} == set(crew.pids().values())
    completed = [outcome for outcome in status["responses"] if outcome["status"] == "completed"]
    assert sum(outcome["count"] for outcome in completed) >= 12
    assert status["clients"]["responses"]["limit"] == 2 * 1024
    announced = [record for record in crew.records if record["message"].startswith("Responses Gateway")]
    assert len(announced) == 1
    assert {record["worker"] for record in crew.records if record["logger"] == "gateway.access"} <= {1, 2}


def test_a_worker_that_is_killed_under_load_loses_nothing_and_is_replaced(crew: Crew, engine: Upstream) -> None:
    before = crew.pids()
    counted = crew.read("gateway_stream_events_total")
    failover = Failover([crew.port])
    body = {"model": Held(engine, "held-by-a-worker").model, "input": "hi", "stream": True}
    with open_create(crew.port, body, {"Connection": "close"}) as stream:
        read_until(stream, b"response.output_text.delta")
        victim = crew.busy_worker()
        report = failover.run(lambda: os.kill(before[victim], signal.SIGKILL))
        with suppress(ConnectionResetError):
            assert stream.recv(65536) == b""
    failover.examine(crew.port)
    assert report.broken == []
    crew.await_log(f"worker {victim} ended: it was ended by SIGKILL; it is started again in 0.5 s")
    deadline = time.monotonic() + 20
    while crew.pids()[victim] == before[victim]:
        assert time.monotonic() < deadline, crew.log
        time.sleep(0.05)
    assert [worker for worker, pid in crew.pids().items() if pid == before[worker]] == [3 - victim]
    crew.await_value("gateway_workers", 2)
    assert crew.read("gateway_worker_ends_total", reason="signal") == 1
    assert crew.read("gateway_stream_events_total") > counted
    # What the dead one had in the making is no longer shown.
    crew.await_value("gateway_active_responses", 0)


def test_a_reload_reaches_every_worker(crew: Crew) -> None:
    crew.signal(signal.SIGHUP)
    for worker in crew.pids():
        crew.await_log("reload: nothing has changed", f'"worker":{worker}')


def test_all_drain_and_the_exit_code_is_0(crew: Crew, engine: Upstream) -> None:
    held = Held(engine, "held-in-the-drain")
    body = {"model": held.model, "input": "hi", "stream": True}
    streams = [open_create(crew.port, body, {"Connection": "close"}) for _ in range(6)]
    deadline = time.monotonic() + 20
    while len(engine.calls(held.model)) < len(streams):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pids = crew.pids().values()
    crew.signal(signal.SIGTERM)
    crew.await_log("draining for at most")
    assert httpx.get(f"{crew.admin_url}/readyz").status_code == 503
    held.release.set()
    for stream in streams:
        with stream:
            assert b"response.completed" in b"".join(iter(lambda stream=stream: stream.recv(65536), b""))
    assert crew.wait() == 0
    assert all(ends(pid) for pid in pids)
    assert list(crew.temporary.iterdir()) == []
    assert "Traceback" not in crew.log


def test_what_keeps_every_worker_from_starting_is_said_once(
    engine: Upstream, postgres_database: str, tmp_path: Path
) -> None:
    crew = Crew(tmp_path, engine.url, postgres_database, **{"storage.auto_migrate": "never"})
    with pytest.raises(AssertionError, match="ended with 1"):
        crew.start("/livez")
    assert crew.log.count("gateway db upgrade") == 1
    said = [line for line in crew.log.splitlines() if not line.startswith("{")]
    assert said[0].startswith("error: ")
