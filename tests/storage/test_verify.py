"""Whether the database takes writes, asked before anything is made that needs it."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import event, text

from gateway.ports import Deletion
from gateway.protocol.errors import ResponseNotFound, StorageUnavailable
from gateway.storage.memory import MemoryStore
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from tests.postgres import PostgresServer
from tests.storage.samples import make_item, make_response

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("database", ["postgres"], indirect=True)


FULL_DISK = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$
"""


def trials(store):
    """How often the database was tried or probed."""
    return store._metrics.registry.get_sample_value("gateway_storage_reads_total", {"query": "probe"}) or 0


def listen(store):
    statements = []
    event.listen(store._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    return statements


async def assert_refused(store, says):
    """Creates are refused, readiness says why, and neither lets a trial row stay."""
    with pytest.raises(StorageUnavailable, match=says) as caught:
        await store.verify()
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "server_is_overloaded", 1.0)
    health = await store.probe()
    assert not health.healthy
    assert says in health.detail


async def assert_recovers(store):
    """Without a restart, within the second for which the refusal is shared."""
    async with asyncio.timeout(20):
        while True:
            try:
                await store.verify()
            except StorageUnavailable:
                await asyncio.sleep(0.05)
            else:
                break
    assert (await store.probe()).healthy
    response = make_response(make_item())
    await store.append(response)
    assert await store.response("local", response.id) == response


def count_trial_rows(store):
    with store._engine.connect() as connection:
        return connection.scalar(text("SELECT count(*) FROM conversations"))


async def test_a_commit_proves_it_without_a_question(open_sql_store):
    store = await open_sql_store(verify_after_seconds=3600)
    await store.append(make_response(make_item()))
    statements = listen(store)
    for _ in range(3):
        await store.verify()
    assert (statements, trials(store)) == ([], 0)


async def test_without_a_commit_one_write_is_tried_for_all(open_sql_store):
    store = await open_sql_store(verify_after_seconds=3600)
    statements = listen(store)
    await asyncio.gather(*(store.verify() for _ in range(200)))
    assert trials(store) == 1
    assert any(statement.startswith("INSERT INTO conversations") for statement in statements)
    assert count_trial_rows(store) == 0


async def test_a_deletion_that_changed_nothing_proves_nothing(open_sql_store):
    store = await open_sql_store(verify_after_seconds=3600)
    with pytest.raises(ResponseNotFound):
        await store.delete(Deletion(id="resp_none", principal="local", at=1))
    await store.verify()
    assert trials(store) == 1


async def test_a_refused_response_asks_for_a_trial(open_sql_store):
    store = await open_sql_store(verify_after_seconds=3600)
    response = make_response(make_item())
    await store.append(response)
    with pytest.raises(StorageUnavailable):
        await store.append(response)
    await store.verify()
    await store.verify()
    assert trials(store) == 1


async def test_a_successful_probe_is_a_proof_too(open_sql_store):
    store = await open_sql_store(verify_after_seconds=3600)
    store._commit.in_doubt = True
    assert (await store.probe()).healthy
    await store.verify()
    assert trials(store) == 1


@ON_SQLITE
@pytest.mark.parametrize(
    ("breaks", "mends", "says"),
    [
        ("PRAGMA query_only=ON", "PRAGMA query_only=OFF", "The database is read-only."),
        ("PRAGMA max_page_count=1", "PRAGMA max_page_count=1000000", "The disk of the database is full."),
    ],
)
async def test_a_full_or_read_only_disk(open_sql_store, breaks, mends, says):
    store = await open_sql_store(verify_after_seconds=0)
    pragma = breaks
    event.listen(store._engine, "begin", lambda connection: connection.exec_driver_sql(pragma))
    await assert_refused(store, says)
    pragma = mends
    await assert_recovers(store)


@ON_SQLITE
async def test_a_lock_of_another_process(open_sql_store, database):
    store = await open_sql_store(verify_after_seconds=0, busy_timeout_seconds=0.05)
    other = sqlite3.connect(database.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    await assert_refused(store, "locked by another process")
    other.close()
    await assert_recovers(store)


@ON_SQLITE
async def test_a_file_that_is_gone(open_sql_store, database):
    store = await open_sql_store(verify_after_seconds=0)
    path = Path(database.database)
    kept = path.rename(path.with_name("kept.db"))
    await assert_refused(store, "does not exist")
    kept.rename(path)
    await assert_recovers(store)


@ON_POSTGRES
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("breaks", "mends", "says"),
    [
        (
            "ALTER DATABASE {name} SET default_transaction_read_only = on",
            "ALTER DATABASE {name} RESET default_transaction_read_only",
            "The database is read-only.",
        ),
        (
            "CREATE TRIGGER disk_full BEFORE INSERT ON conversations EXECUTE FUNCTION refuse()",
            "DROP TRIGGER disk_full ON conversations",
            "The disk of the database is full.",
        ),
    ],
)
async def test_a_full_or_read_only_server(open_sql_store, database, breaks, mends, says):
    store = await open_sql_store(verify_after_seconds=0)
    administer(store, FULL_DISK, breaks.format(name=database.database))
    # Settings of a database are for connections to come.
    store._engine.dispose()
    await assert_refused(store, says)
    administer(store, "SET default_transaction_read_only = off", mends.format(name=database.database))
    store._engine.dispose()
    await assert_recovers(store)


def administer(store, *statements):
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.execute(text(statement))


@pytest.mark.postgres
async def test_a_server_that_is_stopped_and_started_again():
    server = PostgresServer()
    server.start()
    try:
        settings = StoreSettings(
            url=database_url(server.create_database()), auto_migrate="always", verify_after_seconds=0
        )
        store = SqlStore(settings)
        await store.start()
        await store.verify()
        server.stop("immediate")
        await assert_refused(store, "cannot be reached")
        server.start()
        await assert_recovers(store)
        await store.close()
        server.stop()
    finally:
        server.remove()


async def test_a_trial_that_hangs_is_given_up_and_the_rest_is_told_at_once(open_sql_store):
    store = await open_sql_store(verify_after_seconds=0, probe_timeout_seconds=0.2, readers=1)
    # However slow the machine is, the shared second does not pass.
    store._proof._monotonic = lambda: 1000.0
    # The one reader is taken, as by a database that does not answer.
    await store._readers._permits.acquire()
    heard = await asyncio.gather(*(store.verify() for _ in range(100)), return_exceptions=True)
    assert {str(error) for error in heard} == {"The database did not answer within 0.2 seconds."}
    heard = await asyncio.gather(*(store.verify() for _ in range(1000)), return_exceptions=True)
    assert {type(error) for error in heard} == {StorageUnavailable}
    assert trials(store) == 1
    store._readers._permits.release()
    store._proof._monotonic = lambda: 1001.0
    await assert_recovers(store)


async def test_a_closed_store_refuses(open_sql_store):
    store = await open_sql_store(verify_after_seconds=0)
    await store.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await store.verify()


async def test_the_store_in_memory_takes_writes_until_it_is_closed():
    store = MemoryStore()
    await store.verify()
    await store.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await store.verify()
