"""Engines: how connections to either database are opened."""

import math
import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

from gateway.storage.faults import StorageNotReady
from gateway.storage.settings import StoreSettings, is_sqlite

# Where a connection notes which file it has opened.
_FILE = "file"
_JOURNAL_RETRY_SECONDS = 0.01


def open_engine(settings: StoreSettings) -> Engine:
    """Return an engine with a connection for each reader, the writer and the sweeper; connects to nothing yet.

    Raises:
        StorageNotReady: the PostgreSQL driver is not installed.
    """
    arguments = _sqlite_arguments(settings) if is_sqlite(settings.url) else _postgres_arguments(settings)
    try:
        engine = create_engine(
            **arguments,
            hide_parameters=True,
            pool_size=settings.readers + 2,
            max_overflow=0,
            pool_timeout=settings.busy_timeout_seconds,
            pool_use_lifo=True,
        )
    except ModuleNotFoundError:
        raise StorageNotReady(
            "PostgreSQL needs its driver; install it with `pip install 'responses-gateway[postgres]'`."
        ) from None
    if is_sqlite(settings.url):
        event.listen(engine, "connect", _PragmaSetter(settings))
        guard = _FileGuard(_sqlite_path(settings.url))
        event.listen(engine, "connect", guard.remember)
        event.listen(engine, "checkout", guard.check)
    return engine


def create_file(url: URL) -> None:
    """Make the SQLite file, readable by its owner alone, unless it exists. Does nothing for PostgreSQL.

    Raises:
        StorageNotReady: its folder is missing or may not be written.
    """
    if not is_sqlite(url):
        return
    path = _sqlite_path(url)
    if not path.parent.is_dir():
        raise StorageNotReady(f"The folder {path.parent} of the database does not exist; create it or change the URL.")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        # Opening and closing the file again would drop the locks SQLite holds on it in this process.
        return
    except OSError as error:
        raise StorageNotReady(f"The database {path} cannot be created: {error.strerror}.") from None


class _PragmaSetter:
    """Prepares every new SQLite connection."""

    def __init__(self, settings: StoreSettings) -> None:
        self._synchronous = settings.sqlite_synchronous
        self._patience = settings.busy_timeout_seconds
        self._path = _sqlite_path(settings.url)

    def __call__(self, connection: sqlite3.Connection, _record: object) -> None:
        try:
            self._enter_wal(connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN or os.access(self._path.parent, os.W_OK):
                raise
            # What could not be opened is a file beside the database.
            raise StorageNotReady(
                f"The database is read-only: SQLite may not write in {self._path.parent}, where its journal belongs."
            ) from error
        # The first look at the tables opens the journal, which `_FileGuard` has to find.
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")

    def _enter_wal(self, connection: sqlite3.Connection) -> None:
        # SQLite does not honour its busy timeout while it changes the journal mode, which two starters may do at once.
        deadline = time.monotonic() + self._patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_JOURNAL_RETRY_SECONDS)
            else:
                return


class _FileGuard:
    """Gives up connections to a file, or journal, that is no longer there: what they write would vanish with them.

    An open file outlives its name. The next connection finds the file that has the name now, or none.
    """

    def __init__(self, path: Path) -> None:
        # As text: before every commit they are looked at, and a path costs more than the look.
        self._files = str(path), f"{path}-wal"

    def remember(self, _connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        """Note which files a new connection has opened."""
        record.info[_FILE] = self._files, _identify(self._files)

    def check(self, _connection: sqlite3.Connection, record: ConnectionPoolEntry, _proxy: object) -> None:
        """Refuse a pooled connection to another file, and with it every older one."""
        if not _is_same_file(record.info):
            raise InvalidatePoolError


def leads_to_database(connection: Connection) -> bool:
    """Whether what a connection kept since an earlier use would write is still written where it belongs."""
    return not connection.closed and not connection.invalidated and _is_same_file(connection.info)


def _is_same_file(info: Mapping[str, Any]) -> bool:
    if _FILE not in info:
        return True
    files, identity = info[_FILE]
    return bool(identity == _identify(files))


def _identify(files: tuple[str, str]) -> tuple[tuple[int, int] | None, ...]:
    """Tell the database and its journal from any that take their names later; None for one that is missing."""
    return _identify_file(files[0]), _identify_file(files[1])


def _identify_file(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sqlite_path(url: URL) -> Path:
    return Path(url.database or "").absolute()


def _sqlite_arguments(settings: StoreSettings) -> dict[str, Any]:
    path = quote(str(_sqlite_path(settings.url)))
    return {
        # Mode rw opens a file, but never makes one: that is for `create_file`, with its narrow permissions.
        "url": settings.url.set(database=f"file:{path}", query={"uri": "true", "mode": "rw"}),
        # IMMEDIATE takes the write lock at the first write, under the busy timeout, instead of failing on the way up.
        "connect_args": {"timeout": settings.busy_timeout_seconds, "isolation_level": "IMMEDIATE"},
    }


def _postgres_arguments(settings: StoreSettings) -> dict[str, Any]:
    statement = math.ceil(settings.statement_timeout_seconds * 1000)
    # Zero would mean no limit.
    lock = max(1, math.ceil(settings.busy_timeout_seconds * 1000))
    own_options = settings.url.query.get("options", "")
    connect_args = {
        "application_name": "responses-gateway",
        "connect_timeout": max(2, math.ceil(settings.busy_timeout_seconds)),
        "tcp_user_timeout": statement,
    }
    connect_args = {name: value for name, value in connect_args.items() if name not in settings.url.query}
    connect_args["options"] = f"-c statement_timeout={statement} -c lock_timeout={lock} {own_options}"
    return {"url": settings.url, "connect_args": connect_args, "use_native_hstore": False}
