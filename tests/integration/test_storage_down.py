"""A database that is away, full, locked or read-only: told before the inference, and over as soon as it is."""

import os
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.client import Answer, client
from harness.engine import says
from harness.upstream import Upstream
from integration.databases import DatabaseGateway

from tests.postgres import PostgresServer

PATIENCE = 20.0
# Each create is checked, so that no test depends on when the last response was stored.
SETTINGS = {
    "storage.verify_after_seconds": "0",
    "storage.busy_timeout_seconds": "0.2",
    "storage.probe_timeout_seconds": "2",
}
FULL_DISK = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$
"""
END_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass
class Outage:
    """A running gateway, and how its database is broken and mended."""

    gateway: DatabaseGateway
    breaks: Callable[[], object]
    mends: Callable[[], object]
    says: str


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()
    server.remove()


def open_sqlite(tmp_path: Path, upstream: Upstream) -> DatabaseGateway:
    return DatabaseGateway(tmp_path, upstream.url, f"sqlite:///{tmp_path}/responses.db", SETTINGS)


def lose_sqlite(gateway: DatabaseGateway) -> Outage:
    away = gateway.database.with_name("away.db")
    return Outage(
        gateway,
        lambda: gateway.database.rename(away),
        lambda: away.rename(gateway.database),
        "The database file does not exist or cannot be opened.",
    )


def fill_sqlite(gateway: DatabaseGateway) -> Outage:
    """A limit on the size of files, which SQLite meets as it meets a full disk: in the middle of a write."""

    def limit(size: int) -> None:
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return Outage(
        gateway,
        lambda: limit(48 * 1024),
        lambda: limit(resource.RLIM_INFINITY),
        "The disk of the database reports an error.",
    )


def lock_sqlite(gateway: DatabaseGateway) -> Outage:
    other = sqlite3.connect(gateway.database, isolation_level=None, check_same_thread=False)
    return Outage(gateway, lambda: other.execute("BEGIN IMMEDIATE"), other.close, "locked by another process")


def write_protect_sqlite(gateway: DatabaseGateway) -> Outage:
    """A file whose header says that it was written by a later SQLite, which this one may only read."""
    path, kept = gateway.database, gateway.database.with_name("kept.db")

    def mark() -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = bytearray(path.read_bytes())
        content[18] = 3
        path.rename(kept)
        path.write_bytes(content)

    return Outage(gateway, mark, lambda: kept.replace(path), "The database is read-only.")


def stop_postgres(gateway: DatabaseGateway, server: PostgresServer) -> Outage:
    return Outage(gateway, lambda: server.stop("immediate"), server.start, "cannot be reached")


def freeze_postgres(gateway: DatabaseGateway, server: PostgresServer) -> Outage:
    """A server whose connections stay open and which answers nothing."""
    frozen: list[int] = []

    def freeze() -> None:
        frozen.append(int((server.data / "postmaster.pid").read_text().split()[0]))
        frozen.extend(
            pid for (pid,) in gateway.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
        )
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw() -> None:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return Outage(gateway, freeze, thaw, "did not answer within 2 seconds")


def fill_postgres(gateway: DatabaseGateway, server: PostgresServer) -> Outage:
    tables = ("conversations", "responses")
    return Outage(
        gateway,
        lambda: gateway.change(
            FULL_DISK,
            *(f"CREATE TRIGGER disk_full BEFORE INSERT ON {table} EXECUTE FUNCTION refuse()" for table in tables),
        ),
        lambda: gateway.change(*(f"DROP TRIGGER disk_full ON {table}" for table in tables)),
        "The disk of the database is full.",
    )


def write_protect_postgres(gateway: DatabaseGateway, server: PostgresServer) -> Outage:
    setting = "default_transaction_read_only"
    name = gateway.query("SELECT current_database()")[0][0]
    return Outage(
        gateway,
        lambda: gateway.change(f"ALTER DATABASE {name} SET {setting} = on", END_SESSIONS),
        lambda: gateway.change(f"SET {setting} = off", f"ALTER DATABASE {name} RESET {setting}", END_SESSIONS),
        "The database is read-only.",
    )


@pytest.fixture(params=[lose_sqlite, fill_sqlite, lock_sqlite, write_protect_sqlite], ids=lambda make: make.__name__)
def sqlite_outage(request: pytest.FixtureRequest, tmp_path: Path, upstream: Upstream) -> Iterator[Outage]:
    with open_sqlite(tmp_path, upstream) as gateway:
        yield request.param(gateway)


@pytest.fixture(
    params=[stop_postgres, freeze_postgres, fill_postgres, write_protect_postgres], ids=lambda make: make.__name__
)
def postgres_outage(
    request: pytest.FixtureRequest, tmp_path: Path, upstream: Upstream, own_server: PostgresServer
) -> Iterator[Outage]:
    with DatabaseGateway(tmp_path, upstream.url, own_server.create_database(), SETTINGS) as gateway:
        yield request.param(gateway, own_server)


def ask(gateway: DatabaseGateway, body: dict[str, Any]) -> Answer:
    with client(gateway.port) as caller:
        return caller.create({"input": "hi", **body})


def readiness(gateway: DatabaseGateway) -> Answer:
    with client(gateway.port) as caller:
        return caller.get("/readyz")


def expect_refusal(answer: Answer, says: str) -> None:
    assert answer.status == 503, answer.body
    assert (answer.headers["content-type"], answer.headers["retry-after"]) == ("application/json", "1")
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert says in answer.error["message"]
    assert (answer.error["type"], answer.error["code"], answer.error["param"]) == (
        "service_unavailable_error",
        "server_is_overloaded",
        None,
    )


def await_answer(gateway: DatabaseGateway, body: dict[str, Any]) -> Answer:
    """Ask until the gateway has found out that the database is back."""
    deadline = time.monotonic() + PATIENCE
    while (answer := ask(gateway, body)).status == 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer


def check_outage(outage: Outage, upstream: Upstream, model: str) -> None:
    gateway = outage.gateway
    model = upstream.script(model, says("well"))
    first = ask(gateway, {"model": model}).json
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    assert readiness(gateway).status == 200
    outage.breaks()
    try:
        calls = len(upstream.calls(model))
        for body in (
            {},
            {"store": True},
            {"stream": True},
            {"store": False, "previous_response_id": first["id"]},
            {"previous_response_id": first["id"], "stream": True},
            {"store": False, "input": [reference]},
        ):
            expect_refusal(ask(gateway, {"model": model, **body}), outage.says)
        assert len(upstream.calls(model)) == calls
        with ThreadPoolExecutor(16) as callers:
            for answer in callers.map(lambda _: ask(gateway, {"model": model}), range(100)):
                expect_refusal(answer, outage.says)
        assert len(upstream.calls(model)) == calls
        # What needs no database goes on.
        assert ask(gateway, {"model": model, "store": False}).json["status"] == "completed"
        assert ask(gateway, {"model": model, "store": False, "stream": True}).final["status"] == "completed"
        ready = readiness(gateway)
        assert ready.status == 503
        assert [reason for reason in ready.json["reasons"] if outage.says in reason and reason.startswith("storage: ")]
    finally:
        outage.mends()
    continued = await_answer(gateway, {"model": model, "previous_response_id": first["id"], "input": "and now?"})
    assert continued.status == 200, continued.body
    assert len(upstream.calls(model)[-1].body["input"]) == 3
    assert readiness(gateway).status == 200
    with client(gateway.port) as caller:
        assert caller.get(f"/v1/responses/{continued.json['id']}").json["output"] == continued.json["output"]


def test_sqlite(sqlite_outage: Outage, upstream: Upstream, request: pytest.FixtureRequest) -> None:
    check_outage(sqlite_outage, upstream, request.node.name)


@pytest.mark.postgres
def test_postgresql(postgres_outage: Outage, upstream: Upstream, request: pytest.FixtureRequest) -> None:
    check_outage(postgres_outage, upstream, request.node.name)
