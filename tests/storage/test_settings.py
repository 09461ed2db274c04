import pytest

from gateway.storage.faults import StorageNotReady
from gateway.storage.settings import StoreSettings, database_url


@pytest.mark.parametrize(
    ("text", "driver", "database"),
    [
        ("sqlite:///responses.db", "sqlite+pysqlite", "responses.db"),
        ("sqlite:////var/lib/a b.db", "sqlite+pysqlite", "/var/lib/a b.db"),
        ("postgresql://u:p@h:5433/d", "postgresql+psycopg", "d"),
        ("postgres://h/d", "postgresql+psycopg", "d"),
        ("postgresql+psycopg://h/d?sslmode=require", "postgresql+psycopg", "d"),
    ],
)
def test_accepts_both_kinds_of_database(text, driver, database):
    url = database_url(text)
    assert (url.drivername, url.database) == (driver, database)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("secret", "sqlite:///PATH"),
        ("postgresql://u:secret@h:port/d", "sqlite:///PATH"),
        ("mysql://u:secret@h/d", "'mysql' is no supported"),
        ("sqlite://", "names one file"),
        ("sqlite:///:memory:", "names one file"),
        ("sqlite:///a.db?secret=1", "names one file"),
    ],
)
def test_refuses_anything_else_without_repeating_it(text, says):
    with pytest.raises(StorageNotReady, match=says) as caught:
        database_url(text)
    assert "secret" not in str(caught.value)


def test_shows_no_password():
    settings = StoreSettings(url=database_url("postgresql://u:secret@h/d"))
    assert "secret" not in f"{settings} {settings!r}"


@pytest.mark.parametrize(
    ("url", "policy", "migrates"),
    [
        ("sqlite:///a.db", "auto", True),
        ("sqlite:///a.db", "never", False),
        ("postgresql://h/d", "auto", False),
        ("postgresql://h/d", "always", True),
    ],
)
def test_auto_migrates_sqlite_only(url, policy, migrates):
    assert StoreSettings(url=database_url(url), auto_migrate=policy).migrates_on_start is migrates
