"""What the store must know, with every bound it keeps."""

from typing import Literal

from msgspec import Struct
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from gateway.storage.faults import StorageNotReady

MIB = 1024 * 1024

_DRIVERS = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


class StoreSettings(Struct, frozen=True, kw_only=True):
    """Settings of one store; each field is the `[storage]` key of the same name.

    Attributes:
        url: the database, from `database_url`; its repr hides the password.
        auto_migrate: `always` and `never` mean what they say; `auto` migrates SQLite only.
        sqlite_synchronous: `FULL` keeps the last commits through a power loss, `NORMAL` may lose them.
        busy_timeout_seconds: longest wait for another process's lock and for a connection.
        statement_timeout_seconds: longest run of one statement.
        probe_timeout_seconds: longest wait for the answer to a probe.
        verify_after_seconds: how long a write proves that the next one will be taken, 0 for not at all.
        readers: threads, and on PostgreSQL connections, that read.
        reader_max_entries: reads that may wait or run at once.
        writer_max_entries: appends that may wait for a commit.
        writer_max_bytes: bytes that may wait for a commit; a single larger response passes an empty queue.
        writer_batch_entries: most responses in one transaction.
        history_max_responses: most responses in one chain.
        history_max_bytes: most item bytes in one chain.
        retention_seconds: how long a tree is kept after its newest response, 0 for ever.
        retention_interval_seconds: between two sweeps; a deleted response is kept that long too.
        retention_batch_responses: most responses removed in one transaction.
    """

    url: URL
    auto_migrate: Literal["auto", "always", "never"] = "auto"
    sqlite_synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    busy_timeout_seconds: float = 5.0
    statement_timeout_seconds: float = 30.0
    probe_timeout_seconds: float = 5.0
    verify_after_seconds: float = 1.0
    readers: int = 4
    reader_max_entries: int = 1024
    writer_max_entries: int = 1024
    writer_max_bytes: int = 256 * MIB
    writer_batch_entries: int = 256
    history_max_responses: int = 10_000
    history_max_bytes: int = 64 * MIB
    retention_seconds: float = 30 * 86_400.0
    retention_interval_seconds: float = 3600.0
    retention_batch_responses: int = 200

    @property
    def migrates_on_start(self) -> bool:
        """Whether `start()` brings the schema up to date by itself."""
        return self.auto_migrate == "always" or (self.auto_migrate == "auto" and is_sqlite(self.url))


def database_url(text: str) -> URL:
    """Parse the `[storage] url`: `sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/NAME`.

    Raises:
        StorageNotReady: the URL is malformed or names another kind of database. The message never holds the URL.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StorageNotReady(
            "The database URL cannot be read; write sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/NAME."
        ) from None
    backend = url.drivername.partition("+")[0]
    if backend not in _DRIVERS:
        raise StorageNotReady(f"'{backend}' is no supported kind of database; use sqlite or postgresql.")
    if backend == "sqlite" and (not url.database or ":memory:" in url.database or url.query):
        raise StorageNotReady("A SQLite URL names one file and nothing else: sqlite:///PATH.")
    return url.set(drivername=_DRIVERS[backend])


def is_sqlite(url: URL) -> bool:
    """Tell a SQLite URL from a PostgreSQL one."""
    return url.get_backend_name() == "sqlite"
