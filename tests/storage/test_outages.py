import asyncio
import os
import sqlite3
import threading
from pathlib import Path

import pytest
from msgspec import structs
from sqlalchemy import event, text

from gateway.protocol.errors import StorageUnavailable
from gateway.storage.engine import create_file, open_engine
from gateway.storage.faults import StorageNotReady
from gateway.storage.migrations import upgrade
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from tests.postgres import PostgresServer
from tests.storage.samples import make_item, make_response

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("database", ["postgres"], indirect=True)


async def assert_append_fails(store, match):
    response = make_response(make_item("lost" * 10_000))
    with pytest.raises(StorageUnavailable, match=match) as caught:
        await store.append(response)
    for leaked in ("INSERT", "SELECT", "lost", "sqlalche", response.id):
        assert leaked not in caught.value.message
    return response


async def assert_unhealthy(store, says):
    for _ in range(2):
        health = await store.probe()
        assert not health.healthy
        assert says in health.detail


async def assert_works(store):
    response = make_response(make_item())
    await store.append(response)
    assert await store.response("local", response.id) == response
    assert (await store.probe()).healthy


@ON_SQLITE
async def test_recovers_when_another_process_lets_go_of_the_lock(open_sql_store, database):
    store = await open_sql_store(busy_timeout_seconds=0.05)
    other = sqlite3.connect(database.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    lost = await assert_append_fails(store, "locked by another process")
    await assert_unhealthy(store, "The database is locked by another process.")
    other.execute("ROLLBACK")
    other.close()
    assert await store.response("local", lost.id) is None
    await assert_works(store)


@ON_SQLITE
@pytest.mark.parametrize(
    ("breaks", "mends", "says"),
    [
        ("PRAGMA query_only=ON", "PRAGMA query_only=OFF", "read-only"),
        ("PRAGMA max_page_count=1", "PRAGMA max_page_count=1000000", "disk of the database is full"),
    ],
)
async def test_recovers_from_a_disk_that_was_full_or_read_only(sql_store, breaks, mends, says):
    pragma = breaks

    def apply(connection, _record, _proxy):
        connection.execute(pragma)

    event.listen(sql_store._engine, "checkout", apply)
    sql_store._commit.release()
    lost = await assert_append_fails(sql_store, says)
    await assert_unhealthy(sql_store, says)
    pragma = mends
    assert (await sql_store.probe()).healthy
    assert await sql_store.response("local", lost.id) is None
    await assert_works(sql_store)


async def test_a_trial_write_tells_whose_fault_a_refusal_was(open_sql_store):
    store = await open_sql_store()
    response = make_response(make_item())
    await store.append(response)
    with pytest.raises(StorageUnavailable, match="exists already"):
        await store.append(response)
    assert store._commit.in_doubt
    assert (await store.probe()).healthy
    assert not store._commit.in_doubt
    with store._engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM conversations")) == 0


async def test_a_batch_that_is_stored_ends_the_doubt(open_sql_store):
    store = await open_sql_store()
    response = make_response(make_item())
    await store.append(response)
    with pytest.raises(StorageUnavailable):
        await store.append(response)
    assert store._commit.in_doubt
    await store.append(make_response(make_item()))
    assert not store._commit.in_doubt


@ON_SQLITE
async def test_a_deleted_file_is_noticed_and_found_again(open_sql_store, database):
    store = await open_sql_store()
    await assert_works(store)
    path = Path(database.database)
    kept = path.rename(path.with_name("kept.db"))
    await assert_append_fails(store, "does not exist")
    await assert_unhealthy(store, "does not exist")
    with pytest.raises(StorageUnavailable, match="does not exist"):
        await store.response("local", "resp_1")
    kept.rename(path)
    assert (await store.probe()).healthy
    await assert_works(store)


@ON_SQLITE
async def test_a_replaced_file_is_used_once_it_has_tables(open_sql_store, database):
    store = await open_sql_store()
    await assert_works(store)
    path = Path(database.database)
    for name in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        name.unlink(missing_ok=True)
    create_file(database)
    await assert_append_fails(store, "gateway db upgrade")
    await assert_unhealthy(store, "gateway db upgrade")
    engine = open_engine(StoreSettings(url=database))
    upgrade(engine)
    engine.dispose()
    await assert_works(store)
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM responses").fetchone() == (1,)
    other.close()


@ON_SQLITE
@pytest.mark.parametrize(
    ("writable", "says"), [(False, "is read-only: SQLite may not write in "), (True, "cannot be opened")]
)
async def test_start_tells_a_read_only_folder_from_a_missing_file(
    open_sql_store, database, monkeypatch, writable, says
):
    store = await open_sql_store()
    await store.close()
    # SQLite cannot open its journal, as on a read-only file system; the user of the tests may write everywhere.
    Path(f"{database.database}-wal").mkdir()
    monkeypatch.setattr(os, "access", lambda _path, _mode: writable)
    with pytest.raises(StorageNotReady, match=says):
        await open_sql_store()


@ON_SQLITE
async def test_start_reports_a_locked_database(open_sql_store, database):
    store = await open_sql_store()
    await store.close()
    other = sqlite3.connect(database.database, isolation_level=None)
    other.execute("PRAGMA journal_mode=DELETE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageNotReady, match=r"locked by another process.*responses\.db"):
        await open_sql_store(busy_timeout_seconds=0.05)
    other.close()
    await assert_works(await open_sql_store())


@pytest.fixture(scope="module")
def own_server():
    server = PostgresServer()
    server.start()
    yield server
    server.stop()
    server.remove()


def settings_of(url, **changes):
    return StoreSettings(url=database_url(url), **{"auto_migrate": "always", **changes})


@pytest.mark.postgres
async def test_starts_without_its_server_and_recovers_with_it(own_server):
    url = own_server.create_database()
    own_server.stop()
    store = SqlStore(settings_of(url))
    await store.start()
    health = await store.probe()
    assert (health.healthy, health.detail) == (False, "The database cannot be reached or lets nobody in.")
    lost = await assert_append_fails(store, "cannot be reached")
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        await store.history("local", lost.id)
    own_server.start()
    await assert_works(store)
    assert await store.response("local", lost.id) is None
    await store.close()


@pytest.mark.postgres
async def test_keeps_working_when_its_server_restarts(own_server):
    store = SqlStore(settings_of(own_server.create_database()))
    await store.start()
    await assert_works(store)
    own_server.stop("immediate")
    await assert_append_fails(store, "cannot be reached|shutting down or starting")
    assert not (await store.probe()).healthy
    own_server.start()
    await assert_works(store)
    await store.close()


@pytest.mark.postgres
async def test_a_server_that_comes_up_unmigrated_is_unhealthy_until_it_is_migrated(own_server):
    url = own_server.create_database()
    own_server.stop()
    store = SqlStore(settings_of(url, auto_migrate="never"))
    await store.start()
    own_server.start()
    assert "gateway db upgrade" in (await store.probe()).detail
    await assert_append_fails(store, "gateway db upgrade")
    engine = open_engine(settings_of(url))
    upgrade(engine)
    engine.dispose()
    await assert_works(store)
    await store.close()


@pytest.mark.postgres
async def test_the_reason_is_for_the_log_and_not_for_callers(own_server, caplog):
    store = SqlStore(settings_of(own_server.url("missing_one")))
    await store.start()
    assert 'database "missing_one" does not exist' in caplog.text
    health = await store.probe()
    assert health.detail == "The database cannot be reached or lets nobody in."
    await store.close()


@pytest.mark.postgres
async def test_says_nothing_of_the_password(own_server, caplog):
    store = SqlStore(settings_of("postgresql://nobody:secret@127.0.0.1:1/nothing"))
    await store.start()
    await assert_append_fails(store, "cannot be reached")
    await store.close()
    assert "secret" not in caplog.text


@ON_POSTGRES
@pytest.mark.postgres
async def test_a_statement_that_takes_too_long_is_given_up(open_sql_store):
    store = await open_sql_store(statement_timeout_seconds=1.0)
    with pytest.raises(StorageUnavailable, match="statement_timeout_seconds"):
        await store._readers.run(lambda connection: connection.execute(text("SELECT pg_sleep(30)")), timeout=20)
    await assert_works(store)


@ON_POSTGRES
@pytest.mark.postgres
async def test_a_read_only_server_refuses_appends(open_sql_store, database):
    store = await open_sql_store()
    with store._engine.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {database.database} SET default_transaction_read_only = on"))
        connection.commit()
    store._engine.dispose()
    await assert_append_fails(store, "read-only")


async def test_a_probe_is_bounded_and_so_is_every_read(open_sql_store):
    store = await open_sql_store(readers=1, reader_max_entries=2, probe_timeout_seconds=0.05)
    stuck = threading.Event()
    running = asyncio.create_task(store._readers.run(lambda _connection: stuck.wait(), timeout=60))
    await asyncio.sleep(0)
    health = await store.probe()
    assert (health.healthy, health.detail) == (False, "The database did not answer within 0.05 seconds.")
    waiting = asyncio.create_task(store.response("local", "resp_1"))
    await asyncio.sleep(0)
    with pytest.raises(StorageUnavailable, match="reader_max_entries"):
        await store.history("local", "resp_1")
    stuck.set()
    await running
    assert await waiting is None
    store._settings = structs.replace(store._settings, probe_timeout_seconds=20.0)
    await assert_works(store)


async def test_a_reader_that_timed_out_keeps_its_thread_until_it_is_done(open_sql_store):
    store = await open_sql_store(readers=1, probe_timeout_seconds=0.05)
    stuck = threading.Event()
    with pytest.raises(StorageUnavailable, match="did not answer within"):
        await store._readers.run(lambda _connection: stuck.wait(), timeout=0.02)
    assert not (await store.probe()).healthy
    stuck.set()
    store._settings = structs.replace(store._settings, probe_timeout_seconds=20.0)
    assert await store.response("local", "resp_1") is None
    assert (await store.probe()).healthy


async def test_what_waits_for_a_reader_is_told_when_the_store_closes(open_sql_store):
    store = await open_sql_store(readers=1)
    stuck = threading.Event()
    running = asyncio.create_task(store._readers.run(lambda _connection: stuck.wait(), timeout=60))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(store.response("local", "resp_1"))
    closing = asyncio.create_task(store.close())
    await asyncio.to_thread(lambda: [None for _ in iter(lambda: store._readers._pool._shutdown, True)])
    stuck.set()
    await asyncio.gather(running, closing)
    with pytest.raises(StorageUnavailable, match="closed"):
        await waiting
