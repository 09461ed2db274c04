import os
import stat

import pytest
from sqlalchemy import text

from gateway.storage.engine import create_file, leads_to_database, open_engine
from gateway.storage.faults import StorageNotReady
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from tests.storage.samples import make_response


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a b%?#.db"


@pytest.fixture
def settings(path):
    return StoreSettings(url=database_url("sqlite:///a").set(database=str(path)), sqlite_synchronous="FULL")


@pytest.fixture(autouse=True)
def _usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


async def test_the_file_and_its_companions_are_the_owners_alone(settings, path, tmp_path):
    store = SqlStore(settings)
    await store.start()
    await store.append(make_response())
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}
    await store.close()


async def test_a_missing_folder_is_named_and_not_made(tmp_path):
    store = SqlStore(StoreSettings(url=database_url(f"sqlite:///{tmp_path}/missing/a.db")))
    with pytest.raises(StorageNotReady, match=r"/missing of the database does not exist"):
        await store.start()
    await store.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_no_database_is_named(settings, path):
    path.write_bytes(b"not a database" * 100)
    store = SqlStore(settings)
    with pytest.raises(StorageNotReady, match="not a SQLite database"):
        await store.start()
    await store.close()
    assert path.read_bytes() == b"not a database" * 100


def test_an_engine_makes_no_file_by_itself(settings, path):
    engine = open_engine(settings)
    with pytest.raises(Exception, match="unable to open"), engine.connect():
        pass
    assert not path.exists()


def test_every_connection_has_its_pragmas(settings):
    create_file(settings.url)
    engine = open_engine(settings)
    with engine.connect() as connection:
        pragmas = {
            name: connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }
    engine.dispose()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 5000, "foreign_keys": 1}


@pytest.mark.postgres
def test_postgres_sessions_are_bounded_and_named(postgres_database):
    url = database_url(f"{postgres_database}?options=-c%20search_path%3Dmine&application_name=other")
    engine = open_engine(StoreSettings(url=url, statement_timeout_seconds=7, busy_timeout_seconds=0))
    names = ("statement_timeout", "lock_timeout", "search_path", "application_name")
    with engine.connect() as connection:
        values = [connection.scalar(text(f"SHOW {name}")) for name in names]
    engine.dispose()
    assert values == ["7s", "1ms", "mine", "other"]


@pytest.mark.parametrize("names", [["-wal"], ["-wal", "-shm"]])
def test_a_connection_whose_journal_was_removed_is_given_up(settings, path, names):
    create_file(settings.url)
    engine = open_engine(settings)
    kept = engine.connect()
    with kept.begin():
        kept.execute(text("CREATE TABLE t (x)"))
    assert leads_to_database(kept)
    for name in names:
        path.with_name(path.name + name).unlink()
    assert not leads_to_database(kept)
    kept.close()
    with engine.connect() as fresh:
        assert leads_to_database(fresh)
        assert path.with_name(path.name + "-wal").exists()
    engine.dispose()
