"""A response of several agents that ends in the middle, because its client leaves or the process is killed."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from harness.upstream import Upstream
from integration.tree_moments import MOMENTS, SETTINGS, Scene
from integration.watched import WatchedGateway

WAYS = {"websocket": ("close", "leave", "reset", "half-close"), "sse": ("leave", "half-close")}
VISITS = [(name, transport) for transport, name in product(WAYS, MOMENTS) if transport in MOMENTS[name].transports]
SAMPLE = [("before commit", "sse"), ("after commit", "websocket")]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """One of the test's own: connections of other gateways must not count."""
    with Upstream() as running:
        yield running


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/trees.db"


def leave(folder: Path, upstream: Upstream, database: str, visits: Sequence[tuple[str, str]]) -> list[str]:
    """Have clients leave at each of these moments, in each way in its turn; return what is broken."""
    faults = []
    with WatchedGateway(folder, upstream, SETTINGS, database) as gateway:
        scene = Scene(gateway, upstream, database)
        scene.begin()
        idle = gateway.rest()
        for number, (name, transport) in enumerate(visits):
            way = WAYS[transport][number % len(WAYS[transport])]
            with scene.at(MOMENTS[name], transport) as visit:
                visit.visitor.ways[way]()
                # A commit that waits for the database is not given up.
                held = {} if MOMENTS[name].locked else gateway.settle(idle)
            held |= gateway.settle(idle)
            found = [f"{what}: {much:g} more than before" for what, much in held.items()] + scene.examine(visit)
            faults += [f"{name} on {transport}, {way}: {fault}" for fault in found]
    return faults


def kill(folder: Path, upstream: Upstream, database: str, visits: Sequence[tuple[str, str]]) -> list[str]:
    """Kill the gateway at each of these moments, on a transport each; return what is broken."""
    faults = []
    gateway = WatchedGateway(folder, upstream, SETTINGS, database)
    gateway.start("/readyz")
    try:
        scene = Scene(gateway, upstream, database)
        scene.begin()
        for name, transport in visits:
            with scene.at(MOMENTS[name], transport) as visit:
                gateway.kill()
            gateway.await_sessions_end()
            gateway.start("/readyz")
            faults += [f"{name} on {transport}: {fault}" for fault in scene.examine(visit)]
    finally:
        gateway.kill()
    return faults


@pytest.mark.checklist(18, 25)
def test_clients_that_leave_at_any_moment_leave_nothing_behind(
    tmp_path: Path, upstream: Upstream, database: str
) -> None:
    visits = [(name, "websocket") for name in MOMENTS]
    assert leave(tmp_path, upstream, database, visits) == []


@pytest.mark.full
def test_nor_do_those_over_http(tmp_path: Path, upstream: Upstream, database: str) -> None:
    visits = [(name, transport) for name, transport in VISITS if transport == "sse"]
    assert leave(tmp_path, upstream, database, visits) == []


@pytest.mark.full
def test_what_is_lost_or_torn_is_noticed(tmp_path: Path, upstream: Upstream, database: str) -> None:
    with WatchedGateway(tmp_path, upstream, SETTINGS, database) as gateway:
        scene = Scene(gateway, upstream, database)
        scene.begin()
        with scene.at(MOMENTS["terminal"], "sse") as visit:
            pass
        assert scene.examine(visit) == []
        gateway.change(f"DELETE FROM items WHERE response_id = '{visit.response_id}' AND role = 'output'")
        assert scene.examine(visit) == ["said []"]
        gateway.change("PRAGMA foreign_keys = OFF", f"DELETE FROM responses WHERE id = '{visit.response_id}'")
        assert scene.examine(visit)[:2] == ["GET is 404", f"items of {visit.response_id}"]


def test_a_killed_process_leaves_nothing_half_done(tmp_path: Path, upstream: Upstream, database: str) -> None:
    assert kill(tmp_path, upstream, database, SAMPLE) == []


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_at_whatever_moment_it_is_killed(tmp_path: Path, upstream: Upstream, database: str) -> None:
    assert kill(tmp_path, upstream, database, VISITS) == []


@pytest.mark.full
@pytest.mark.postgres
def test_clients_that_leave_leave_nothing_behind_on_postgresql(
    tmp_path: Path, upstream: Upstream, postgres_database: str
) -> None:
    assert leave(tmp_path, upstream, postgres_database, VISITS) == []


@pytest.mark.full
@pytest.mark.postgres
def test_a_killed_process_leaves_nothing_half_done_on_postgresql(
    tmp_path: Path, upstream: Upstream, postgres_database: str
) -> None:
    assert kill(tmp_path, upstream, postgres_database, [("tool pending", "websocket"), *SAMPLE]) == []
