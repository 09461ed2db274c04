"""Database errors in the gateway's own words: no SQL, no values, no secrets."""

import sqlite3

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gateway.protocol.errors import StorageUnavailable

_UNREACHABLE = "The database cannot be reached or lets nobody in."
_MAX_REASON_CHARS = 1000
UNMIGRATED = "The database has no tables of this gateway yet; run `gateway db upgrade` with the same configuration."

_SQLITE = {
    "SQLITE_BUSY": "The database is locked by another process.",
    "SQLITE_LOCKED": "The database is locked by another process.",
    "SQLITE_FULL": "The disk of the database is full.",
    "SQLITE_READONLY": "The database is read-only.",
    "SQLITE_CANTOPEN": "The database file does not exist or cannot be opened.",
    "SQLITE_IOERR": "The disk of the database reports an error.",
    "SQLITE_CORRUPT": "The database file is damaged.",
    "SQLITE_NOTADB": "The database file is not a SQLite database.",
    "SQLITE_PERM": "The database file may not be opened by this user.",
    "SQLITE_CONSTRAINT": "The database refused the response: its id exists already or its parent is gone.",
    "SQLITE_TOOBIG": "The response is larger than the database accepts.",
}

# SQLSTATE codes, longest prefix first.
_POSTGRES = {
    "25006": "The database is read-only.",
    "3D000": "The database named in the URL does not exist.",
    "42P01": UNMIGRATED,
    "42501": "The database user lacks a permission.",
    "53100": "The disk of the database is full.",
    "53300": "The database has no connection left.",
    "55P03": "The database is locked by another process.",
    "57014": "The database did not answer within statement_timeout_seconds.",
    "22": "The database refused a value of the response.",
    "23": "The database refused the response: its id exists already or its parent is gone.",
    "28": "The database refused the user name or password.",
    "40": "The database gave way to another transaction.",
    "53": "The database lacks resources.",
    "54": "The response is larger than the database accepts.",
    "57": "The database is shutting down or starting.",
    "58": "The disk of the database reports an error.",
}


class StorageNotReady(Exception):
    """The store cannot start as configured; waiting will not mend it. Its text says what to do."""


def describe_fault(error: Exception) -> str:
    """Return one sentence on a database error, fit for callers and logs."""
    if isinstance(error, StorageNotReady):
        return str(error)
    if isinstance(error, PoolTimeout):
        return "The database has no connection left."
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return _describe_sqlite(cause)
    state = getattr(cause, "sqlstate", None)
    if state:
        known = (text for prefix, text in _POSTGRES.items() if state.startswith(prefix))
        return next(known, f"The database reports an error (SQLSTATE {state}).")
    if isinstance(error, DBAPIError):
        return _UNREACHABLE
    return f"The store met an unexpected {type(error).__name__}."


def explain_fault(error: Exception) -> str:
    """Return the same sentence for logs and terminals: with the server's own reason where it let nobody in.

    The reason may name hosts, users and databases, but no passwords.
    """
    sentence = describe_fault(error)
    if not isinstance(error, DBAPIError) or sentence != _UNREACHABLE:
        return sentence
    reason = " ".join(str(error.orig).split())
    return f"{sentence} ({reason[:_MAX_REASON_CHARS]})"


class DriverErrors:
    """Raises what the driver itself raises in a `with` block as SQLAlchemy would, and gives up a lost connection.

    Args:
        connection: whose driver is used directly.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        dialect = self._connection.dialect
        if error is None or dialect.loaded_dbapi is None or not isinstance(error, dialect.loaded_dbapi.Error):
            return
        lost = dialect.is_disconnect(error, self._connection.connection, None)
        if lost:
            self._connection.invalidate(error)
        raise DBAPIError.instance(
            None,
            None,
            error,
            dialect.loaded_dbapi.Error,
            hide_parameters=True,
            connection_invalidated=lost,
            dialect=dialect,
        ) from error


def is_contradiction(error: DBAPIError) -> bool:
    """Tell whether the database understood a statement and refused it: what it holds or permits does not fit."""
    if isinstance(error.orig, sqlite3.Error):
        primary = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        return primary in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}
    return (getattr(error.orig, "sqlstate", None) or "")[:2] in {"23", "42"}


def unavailable(error: Exception) -> StorageUnavailable:
    """Wrap a database error for the caller."""
    return StorageUnavailable(describe_fault(error))


def _describe_sqlite(error: sqlite3.Error) -> str:
    if str(error).startswith("no such table"):
        return UNMIGRATED
    name = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
    # Extended names, such as SQLITE_BUSY_SNAPSHOT, start with the primary one.
    known = (text for primary, text in _SQLITE.items() if name == primary or name.startswith(f"{primary}_"))
    return next(known, f"The database reports an error ({name}).")
