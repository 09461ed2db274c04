"""A database of the first migration, filled and kept as SQL, comes up to the newest one with nothing lost.

`tests/storage/fixtures/generate.py` tells what is in it.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness.client import client, create
from harness.engine import says
from harness.processes import Gateway, free_port, run_command
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.trees import BETA, ON, ROOT, play

from gateway.ports import StoredItem
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore

FIXTURES = Path(__file__).parents[1] / "storage" / "fixtures"
EXPECTED = json.loads((FIXTURES / "first_migration.json").read_text())
# The columns of the first migration, whatever came later.
ROWS = {
    "conversations": "id, principal, metadata, created_at, deleted_at",
    "responses": "id, principal, parent_id, root_id, conversation_id, status, model, created_at, completed_at,"
    " deleted_at, item_bytes, snapshot",
    "items": "row_id, response_id, position, principal, role, type, id, call_id, status, agent, data",
    "conversation_items": "conversation_id, position, item_row_id, created_at",
    "agents": "response_id, position, path, parent_path, status, state",
}
# What is in the file was made long ago.
FOR_EVER = {"storage.retention_seconds": "0", "multi_agent.message_visibility": "plain"}
ALICES = ["resp_" + "a" * 32, "resp_" + "b" * 32]
STANDS_IN_THE_WAY = "CREATE INDEX ix_responses_deleted_at ON responses (deleted_at)"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database as the first migration left it."""
    script = (FIXTURES / f"first_migration.{request.param}.sql").read_text()
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_database")
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(script)
        return url
    with closing(sqlite3.connect(tmp_path / "old.db")) as file:
        file.executescript(script)
    return f"sqlite:///{tmp_path}/old.db"


@pytest.fixture
def start(upstream: Upstream, tmp_path: Path, database: str) -> Iterator[Callable[[str], DatabaseGateway]]:
    """Starts a gateway on the old database, under a policy of migration."""
    running: list[DatabaseGateway] = []

    def start_one(policy: str) -> DatabaseGateway:
        settings = {"storage.auto_migrate": policy, **FOR_EVER}
        running.append(DatabaseGateway(tmp_path, upstream.url, database, settings))
        return running[-1].__enter__()

    yield start_one
    for gateway in running:
        gateway.__exit__()


def command(*arguments: str) -> tuple[int, str]:
    """Run the product's own command and return its exit code and what it says."""
    done = run_command(*arguments)
    return done.returncode, done.stdout + done.stderr


def read_rows(database: str) -> dict[str, list[Any]]:
    """Return every row of every table, past the gateway."""
    look = DatabaseGateway(Path(), "http://127.0.0.1:1", database)
    return {
        table: [tuple(row) for row in look.query(f"SELECT {columns} FROM {table} ORDER BY 1, 2, 3")]
        for table, columns in ROWS.items()
    }


def expect_unchanged(gateway: Gateway, upstream: Upstream) -> None:
    """Every response, its input and its history are read as they were before."""
    with client(gateway.port) as caller:
        for response_id, was in EXPECTED["responses"].items():
            assert caller.get(f"/v1/responses/{response_id}").json == was["response"]
            inputs = caller.get(f"/v1/responses/{response_id}/input_items?order=asc&limit=100")
            assert inputs.json == was["input_items"]
            model = upstream.script(f"migrated-{response_id}", says("on"))
            already = len(upstream.calls(model))
            body = {"model": model, "input": "go on", "store": False, "previous_response_id": response_id}
            assert caller.create(body).status == was["continued"]["status"]
            sent = [call.body["input"] for call in upstream.calls(model)[already:]]
            assert sent == ([was["continued"]["input"]] if was["continued"]["input"] else [])
        for response_id in [*EXPECTED["deleted"], *ALICES]:
            assert caller.get(f"/v1/responses/{response_id}").status == 404


def expect_trees(gateway: DatabaseGateway, upstream: Upstream) -> None:
    """What was stored before there were trees of agents goes on as one."""
    model = upstream.script("trees", play({ROOT: [says("as a tree")]}))
    old = next(name for name, was in EXPECTED["responses"].items() if was["continued"]["status"] == 200)
    body = {"model": model, "input": "go on", "previous_response_id": old, "multi_agent": ON}
    tree = create(gateway.port, body, BETA).json["id"]
    assert create(gateway.port, {"model": model, "input": "and on", "previous_response_id": tree}).status == 200
    first, second = (call.body["input"] for call in upstream.calls(model)[-2:])
    assert first == EXPECTED["responses"][old]["continued"]["input"]
    assert second[: len(first)] == first
    assert len(gateway.query("SELECT path FROM agents")) == 3


def test_the_command_brings_it_up_and_changes_no_row(
    database: str, start: Callable[[str], DatabaseGateway], upstream: Upstream
) -> None:
    before = read_rows(database)
    assert all(before.values()), "each table holds something"
    code, says_first = command("db", "check", "--database", database)
    assert (code, "is at revision 0001" in says_first, "run `gateway db upgrade`" in says_first) == (1, True, True)
    assert command("db", "upgrade", "--database", database)[0] == 0
    assert command("db", "check", "--database", database)[0] == 0
    assert read_rows(database) == before
    gateway = start("never")
    expect_unchanged(gateway, upstream)
    new = create(gateway.port, {"model": upstream.script("after", says("new")), "input": "hi"}).json["id"]
    assert gateway.rows() == len(before["responses"]) + 1
    assert [row[1] for row in read_rows(database)["items"]].count(new) == 2
    expect_trees(gateway, upstream)


async def test_other_owners_keep_theirs(database: str) -> None:
    assert command("db", "upgrade", "--database", database)[0] == 0
    store = SqlStore(StoreSettings(url=database_url(database), retention_seconds=0))
    await store.start()
    try:
        history = await store.history("key:alice", ALICES[1])
        assert await store.response("local", ALICES[1]) is None
        child = await store.response("key:alice", ALICES[1])
    finally:
        await store.close()
    text = {"type": "output_text", "text": "Another owner's."}
    data = {"type": "message", "role": "assistant", "content": [text]}
    item = StoredItem(
        role="output", type="message", id="msg_other", data=json.dumps(data, separators=(",", ":")).encode()
    )
    assert history is not None
    assert list(history.items) == [item, item]
    assert child is not None
    assert (child.parent_id, list(child.items)) == (ALICES[0], [item])


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_serve_brings_sqlite_up_by_itself(
    database: str, start: Callable[[str], DatabaseGateway], upstream: Upstream
) -> None:
    before = read_rows(database)
    gateway = start("auto")
    assert command("db", "check", "--database", database)[0] == 0
    assert read_rows(database) == before
    expect_unchanged(gateway, upstream)


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_serve_leaves_postgresql_to_the_operator(database: str) -> None:
    expect_refusal(database, "is at revision 0001", "run `gateway db upgrade`", policy="auto")


def error_line(said: str) -> str:
    """The one line that says what is wrong; a record of the act follows it."""
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    return line


def test_a_migration_that_fails_changes_nothing_and_says_why(
    database: str, start: Callable[[str], DatabaseGateway], upstream: Upstream
) -> None:
    before = read_rows(database)
    look = DatabaseGateway(Path(), "http://127.0.0.1:1", database)
    look.change(STANDS_IN_THE_WAY)
    code, said = command("db", "upgrade", "--database", database)
    assert code == 1
    line = error_line(said)
    assert "failed and changed nothing: " in line
    assert "ix_responses_deleted_at" in line
    assert "already exists" in line
    assert "Traceback" not in said
    expect_refusal(database, "failed and changed nothing", "ix_responses_deleted_at", policy="always")
    assert "0001" in command("db", "current", "--database", database)[1].splitlines()
    assert read_rows(database) == before
    look.change("DROP INDEX ix_responses_deleted_at")
    expect_unchanged(start("always"), upstream)


def test_tables_that_are_partly_gone_are_named(database: str) -> None:
    look = DatabaseGateway(Path(), "http://127.0.0.1:1", database)
    look.change("DROP TABLE agents", "DROP TABLE conversation_items", "DROP TABLE items", "DROP TABLE responses")
    code, said = command("db", "upgrade", "--database", database)
    assert code == 1
    assert "failed and changed nothing: " in said
    assert "responses" in error_line(said)
    assert "Traceback" not in said


def expect_refusal(database: str, *words: str, policy: str) -> None:
    """The gateway does not start and says why in one line."""
    code, said = command(
        *("serve", "--port", str(free_port()), "--database", database),
        *("--set", f"storage.auto_migrate={policy}", "--set", "admin.enabled=false"),
    )
    assert code == 1
    assert all(word in said for word in words), said
    assert "Traceback" not in said
