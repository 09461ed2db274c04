"""A copy of a SQLite database that is in use."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import cast

from sqlalchemy import Engine

from gateway.storage.faults import StorageNotReady

_SOUND = "ok"


class BackupFailed(StorageNotReady):
    """There is no copy; the text says why."""


def back_up(engine: Engine, target: Path) -> int:
    """Copy the database as it is at one moment; who writes to it meanwhile does not wait.

    The copy is one file, readable by its owner alone, and bears its name only when it is whole and sound.

    Args:
        engine: of a SQLite database.
        target: where the copy goes; nothing may be there.

    Returns:
        How many bytes it has.

    Raises:
        BackupFailed: there is something already, the copy cannot be written, or the database is damaged.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        _claim(target)
    except OSError as error:
        raise BackupFailed(f"{target} cannot be made: {error.strerror}.") from error
    try:
        _claim(part)
        _copy(engine, part)
        size = part.stat().st_size
        part.replace(target)
    except BaseException as error:
        for file in (part, target):
            with suppress(OSError):
                file.unlink()
        if isinstance(error, OSError | sqlite3.Error):
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BackupFailed(f"{part} cannot be written: {reason}.") from error
        raise
    return size


def _claim(file: Path) -> None:
    """Make an empty file of its owner's own where there is none."""
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _copy(engine: Engine, file: Path) -> None:
    with engine.connect() as connection, closing(sqlite3.connect(file)) as copy:
        source = cast("sqlite3.Connection", connection.connection.dbapi_connection)
        # In one step: between several, every write of a gateway would have it begin anew.
        source.backup(copy)
        # A copy that stays on one file can be read from anywhere; a gateway goes back to the other mode by itself.
        copy.execute("PRAGMA journal_mode=DELETE")
        ((found,), *_) = copy.execute("PRAGMA integrity_check").fetchall()
        if found != _SOUND:
            raise BackupFailed(f"The database is damaged, and so would be its copy: {found}.")
