import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import inspect, text

from gateway.storage.engine import create_file, open_engine
from gateway.storage.faults import StorageNotReady
from gateway.storage.migrations import (
    SchemaState,
    compare,
    downgrade,
    find_head,
    read_revision,
    upgrade,
)
from gateway.storage.settings import StoreSettings
from tests.storage.samples import make_response


@pytest.fixture
def database(bare_database):
    """What stores are opened on here."""
    return bare_database


@pytest.fixture
def engine(database):
    create_file(database)
    engine = open_engine(StoreSettings(url=database))
    yield engine
    engine.dispose()


def revision_of(engine):
    with engine.connect() as connection:
        return read_revision(connection)


def set_revision(engine, revision):
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_upgrades_and_downgrades(engine):
    assert revision_of(engine) is None
    assert upgrade(engine) == find_head() == revision_of(engine)
    assert upgrade(engine) == find_head()
    assert downgrade(engine, "base") is None
    assert inspect(engine).get_table_names() == ["alembic_version"]
    assert upgrade(engine) == find_head()


def test_a_failed_migration_leaves_nothing_behind(engine):
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE items (mine INTEGER)"))
    with pytest.raises(StorageNotReady, match=r"failed and changed nothing: .*items.* already exists\. Mend"):
        upgrade(engine)
    assert inspect(engine).get_table_names() == ["items"]
    assert revision_of(engine) is None


def test_names_a_revision_that_does_not_exist(engine):
    with pytest.raises(StorageNotReady, match="'nonsense'"):
        upgrade(engine, "nonsense")
    with pytest.raises(StorageNotReady, match="'nonsense'"):
        downgrade(engine, "nonsense")


def test_refuses_to_touch_a_newer_database(engine):
    upgrade(engine)
    set_revision(engine, "9999")
    with pytest.raises(StorageNotReady, match=r"9999.*newer gateway"):
        upgrade(engine)
    with pytest.raises(StorageNotReady, match="9999"):
        downgrade(engine, "base")


def test_tells_the_states_apart():
    assert compare(None) is SchemaState.UNMIGRATED
    assert compare(find_head()) is SchemaState.CURRENT
    assert compare("9999") is SchemaState.NEWER


async def test_start_migrates_only_where_it_may(open_sql_store, database):
    with pytest.raises(StorageNotReady, match="gateway db upgrade"):
        await open_sql_store(auto_migrate="never")
    if database.get_backend_name() == "postgresql":
        with pytest.raises(StorageNotReady, match="gateway db upgrade"):
            await open_sql_store(auto_migrate="auto")
        store = await open_sql_store(auto_migrate="always")
    else:
        store = await open_sql_store(auto_migrate="auto")
    await store.append(make_response())
    assert (await (await open_sql_store(auto_migrate="never")).probe()).healthy


async def test_start_refuses_an_older_and_a_newer_schema(open_sql_store, engine, monkeypatch):
    upgrade(engine)
    set_revision(engine, "9999")
    for policy in ("auto", "always", "never"):
        with pytest.raises(StorageNotReady, match="9999"):
            await open_sql_store(auto_migrate=policy)
    set_revision(engine, find_head())
    monkeypatch.setattr("gateway.storage.migrations.find_head", lambda: "9998")
    with pytest.raises(StorageNotReady, match=r"needs 9998; run `gateway db upgrade`"):
        await open_sql_store(auto_migrate="never")


async def test_a_running_store_watches_its_schema(sql_store, engine):
    set_revision(engine, "9999")
    health = await sql_store.probe()
    assert health.healthy
    assert "9999" in health.detail
    set_revision(engine, find_head())
    downgrade(engine, "base")
    health = await sql_store.probe()
    assert not health.healthy
    assert "gateway db upgrade" in health.detail


START = """
import asyncio, sys
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore

async def main():
    store = SqlStore(StoreSettings(url=database_url(sys.argv[1]), auto_migrate="always"))
    sys.stdin.readline()
    await store.start()
    await store.close()

asyncio.run(main())
"""


def test_starters_do_not_race(engine, database):
    command = [sys.executable, "-c", START, database.render_as_string(hide_password=False)]
    starters = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) for _ in range(4)
    ]
    with ThreadPoolExecutor(len(starters)) as pool:
        outputs = list(pool.map(lambda starter: starter.communicate(b"\n", timeout=30), starters))
    assert [starter.returncode for starter in starters] == [0] * len(starters), outputs
    assert revision_of(engine) == find_head()


async def test_two_stores_of_one_process_may_start_at_once(open_sql_store):
    stores = await asyncio.gather(*(open_sql_store() for _ in range(4)))
    assert all([(await store.probe()).healthy for store in stores])
