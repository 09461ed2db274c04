"""Two gateways on one PostgreSQL: what one made the other reads, continues and deletes, also after a kill."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from harness.client import client, create
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.failover import Failover, answer_after_a_while

pytestmark = pytest.mark.postgres
SETTINGS = {"storage.history_revalidate_seconds": "0"}


@pytest.fixture
def replicas(postgres_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[DatabaseGateway]]:
    """Two that start, and migrate, at the same time."""
    with Upstream() as upstream, ExitStack() as running:
        upstream.otherwise(answer_after_a_while)
        made = [
            DatabaseGateway(tmp_path_factory.mktemp("replica"), upstream.url, postgres_database, SETTINGS)
            for _ in range(2)
        ]
        with ThreadPoolExecutor(2) as starting:
            list(starting.map(running.enter_context, made))
        yield made


def test_a_killed_replica_takes_nothing_with_it_that_a_caller_saw(replicas: list[DatabaseGateway]) -> None:
    one, other = replicas
    made = create(one.port, {"model": "m", "input": "hi"}).json["id"]
    with client(other.port) as caller:
        assert caller.get(f"/v1/responses/{made}").json["id"] == made
        continued = caller.create({"model": "m", "input": "on", "previous_response_id": made}).json["id"]
        assert caller.call("DELETE", f"/v1/responses/{continued}").status == 200
        gone = create(one.port, {"model": "m", "input": "on", "previous_response_id": continued})
    assert (gone.status, gone.error["code"]) == (400, "previous_response_not_found")

    failover = Failover([one.port, other.port])
    report = failover.run(one.kill)
    failover.examine(other.port)
    assert report.broken == []
    # The kill came while there was something to lose, and chains went on across it.
    assert report.in_flight
    assert failover.crossings

    # A newer version has migrated meanwhile: what runs goes on, and is not started anew.
    other.change("UPDATE alembic_version SET version_num = '9999'")
    assert create(other.port, {"model": "m", "input": "hi"}).status == 200
    with pytest.raises(AssertionError, match="which this gateway does not know"):
        one.start("/livez")
