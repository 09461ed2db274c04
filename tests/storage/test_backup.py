import sqlite3
import stat
from contextlib import closing

import pytest

from gateway.storage.backup import BackupFailed, back_up
from gateway.storage.engine import create_file, open_engine
from gateway.storage.settings import StoreSettings, database_url


@pytest.fixture
def engine(tmp_path):
    """A database in use: one row of it is in the write-ahead log."""
    url = database_url(f"sqlite:///{tmp_path}/used.db")
    create_file(url)
    engine = open_engine(StoreSettings(url=url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE kept (text TEXT)")
        connection.exec_driver_sql("INSERT INTO kept VALUES ('a')")
    yield engine
    engine.dispose()


def read(file):
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT text FROM kept").fetchall()


def test_the_copy_is_one_file_of_the_owners_own(engine, tmp_path):
    (tmp_path / "copies").mkdir()
    target = tmp_path / "copies" / "copy.db"
    assert back_up(engine, target) == target.stat().st_size > 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert read(target) == [("a",)]
    assert list(target.parent.iterdir()) == [target]


def test_who_writes_meanwhile_neither_waits_nor_is_copied(engine, tmp_path):
    with engine.connect() as other:
        other.exec_driver_sql("INSERT INTO kept VALUES ('not yet committed')")
        back_up(engine, tmp_path / "copy.db")
        other.commit()
    assert read(tmp_path / "copy.db") == [("a",)]
    assert read(tmp_path / "used.db") == [("a",), ("not yet committed",)]


def test_what_is_there_is_kept(engine, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("precious")
    with pytest.raises(BackupFailed, match="taken cannot be made: File exists"):
        back_up(engine, taken)
    assert taken.read_text() == "precious"
    with pytest.raises(BackupFailed, match="No such file or directory"):
        back_up(engine, tmp_path / "missing" / "copy.db")
    half = tmp_path / "half.part"
    half.write_text("precious too")
    with pytest.raises(BackupFailed, match=r"half\.part cannot be written: File exists"):
        back_up(engine, tmp_path / "half")


def test_a_damaged_database_makes_no_copy(engine, tmp_path):
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE INDEX by_text ON kept (text)")
        connection.exec_driver_sql("PRAGMA writable_schema=ON")
        # An index that lacks what the table holds.
        connection.exec_driver_sql(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX by_text ON kept (text || 1)' WHERE type = 'index'"
        )
    with pytest.raises(BackupFailed, match="The database is damaged"):
        back_up(engine, tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))
