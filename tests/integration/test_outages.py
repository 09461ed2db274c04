"""The database breaks down under load and comes back: every caller is told, nothing is torn, nothing stays behind."""

import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from harness.client import Answer, create
from harness.upstream import Upstream
from integration.kills import Campaign, answer_by_model
from integration.watched import WatchedGateway

from tests.postgres import PostgresServer

CALLERS = 8
# Of a phase: so many callers are told that all goes well, or that it does not.
ENOUGH = 10 * CALLERS
PATIENCE_SECONDS = 30.0
STORED, OVERLOADED = (200, "completed"), (503, "server_is_overloaded")
SETTINGS = {"storage.busy_timeout_seconds": "0.5", "telemetry.log_level": "error"}


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        running.otherwise(answer_by_model)
        yield running


@dataclass
class Load:
    """Callers that create one response after the other and note what they are told.

    Attributes:
        told: id to model of each response whose completion a caller saw.
        outcomes: how often each status and code came.
    """

    port: int
    told: dict[str, str] = field(default_factory=dict)
    outcomes: Counter[tuple[int, str]] = field(default_factory=Counter)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Call until the block is left."""
        stop = threading.Event()
        with ThreadPoolExecutor(CALLERS) as callers:
            calling = [callers.submit(self._call, caller, stop) for caller in range(CALLERS)]
            try:
                yield
            finally:
                stop.set()
            for call in calling:
                call.result(PATIENCE_SECONDS)

    def await_more(self, outcome: tuple[int, str]) -> None:
        """Wait until enough further callers were told this."""
        deadline, wanted = time.monotonic() + PATIENCE_SECONDS, self.outcomes[outcome] + ENOUGH
        while self.outcomes[outcome] < wanted:
            assert time.monotonic() < deadline, f"too few were told {outcome}: {self.outcomes}"
            time.sleep(0.02)

    def _call(self, caller: int, stop: threading.Event) -> None:
        for turn in count():
            if stop.is_set():
                return
            model = f"{caller}-{turn}"
            stream = turn % 2 == 0
            answer = create(self.port, {"model": model, "input": "hi", "stream": stream})
            outcome = read_outcome(answer)
            self.outcomes[outcome] += 1
            if outcome == STORED:
                response = answer.final if stream else answer.json
                self.told[response["id"]] = model


def read_outcome(answer: Answer) -> tuple[int, str]:
    """Return the status with the response's own, or with the code of its error."""
    if answer.status != 200:
        return answer.status, answer.error["code"]
    if answer.headers["content-type"] == "application/json":
        return 200, answer.json["status"]
    assert answer.body.endswith(b"data: [DONE]\n\n")
    final = answer.final
    return 200, final["status"] if final["error"] is None else final["error"]["code"]


def check(
    gateway: WatchedGateway, breaks: Callable[[], object], mends: Callable[[], object], *, in_doubt: int = 0
) -> None:
    """Break the database under load, mend it under load, and examine everything.

    Args:
        gateway: running, and idle.
        breaks: breaks the database.
        mends: mends it.
        in_doubt: how many responses may be stored although their callers were told of a failure.
    """
    idle, load = gateway.rest(), Load(gateway.port)
    memory = gateway.resident_mib
    with load.running():
        load.await_more(STORED)
        breaks()
        load.await_more(OVERLOADED)
        mends()
        load.await_more(STORED)
    assert gateway.settle(idle) == {}
    # A failure is told as what it is: with its own status, or at the end of a stream that had begun.
    assert set(load.outcomes) <= {STORED, OVERLOADED, (200, "server_is_overloaded")}
    campaign = Campaign(gateway, kills=0, seed=0)
    campaign.report.told = load.told
    campaign.examine()
    assert campaign.report.broken == []
    assert len(load.told) <= campaign.report.stored <= len(load.told) + in_doubt
    assert gateway.resident_mib - memory < 64
    assert "Traceback" not in gateway.log


@pytest.mark.timeout(120)
def test_a_disk_that_takes_no_more(tmp_path: Path, upstream: Upstream) -> None:
    """A limit on the size of files, which a write meets half-way, as it meets a full disk."""
    with WatchedGateway(tmp_path, upstream, SETTINGS) as gateway:

        def limit(size: int) -> None:
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        check(gateway, lambda: limit(64 * 1024), lambda: limit(resource.RLIM_INFINITY))


@pytest.mark.postgres
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_is_stopped_and_started(tmp_path: Path, upstream: Upstream, mode: str) -> None:
    server = PostgresServer()
    server.start()
    try:
        database = server.create_database()
        with WatchedGateway(tmp_path, upstream, SETTINGS, database) as gateway:
            # A server that dies in a commit takes along whether it was one: at most of what was being stored.
            check(gateway, lambda: server.stop(mode), server.start, in_doubt=CALLERS)
    finally:
        server.stop()
        server.remove()
