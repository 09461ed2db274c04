"""Schema revisions, run in code under a lock, so that two starters never race."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from importlib import resources
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from gateway.storage.faults import UNMIGRATED, StorageNotReady, is_contradiction

# Any number will do, as long as every version of the gateway uses the same.
_ADVISORY_LOCK = 7_303_014_821_066
# What Alembic calls the two ends of the line of revisions.
_NO_TABLES, _NEWEST = "base", "head"
# Alembic keeps the running migration in module globals.
_ALEMBIC = threading.Lock()


class SchemaState(Enum):
    """How the database's schema relates to this version of the gateway."""

    CURRENT = "current"
    UNMIGRATED = "unmigrated"
    OLDER = "older"
    NEWER = "newer"


def find_head() -> str:
    """Return the newest revision this version knows."""
    head = _scripts().get_current_head()
    if head is None:
        raise StorageNotReady("The gateway was installed without its migrations; install it again.")
    return head


def read_revision(connection: Connection) -> str | None:
    """Return the database's revision, None when it was never migrated."""
    return MigrationContext.configure(connection).get_current_revision()


def compare(revision: str | None) -> SchemaState:
    """Relate a database's revision to this version of the gateway; one it does not know is newer."""
    if revision is None:
        return SchemaState.UNMIGRATED
    if revision == find_head():
        return SchemaState.CURRENT
    return SchemaState.OLDER if revision in _list_revisions() else SchemaState.NEWER


def require_current(revision: str | None) -> None:
    """Refuse a database that is not at the newest revision.

    Raises:
        StorageNotReady: unmigrated, older or newer, and what to do.
    """
    state = compare(revision)
    if state is SchemaState.UNMIGRATED:
        raise StorageNotReady(UNMIGRATED)
    if state is SchemaState.OLDER:
        raise StorageNotReady(
            f"The database is at revision {revision}, this gateway needs {find_head()}; run `gateway db upgrade`."
        )
    if state is SchemaState.NEWER:
        raise StorageNotReady(
            f"The database is at revision {revision}, which this gateway does not know (its newest is {find_head()}); "
            "install the newer gateway, or run `gateway db downgrade` with that one."
        )


def upgrade(engine: Engine, revision: str = "head") -> str | None:
    """Migrate up to the revision and return where the database is now.

    Raises:
        StorageNotReady: there is no such revision, the database is newer than this gateway, or its tables are not
            those that its revision promises.
    """
    with _locked(engine) as connection:
        if compare(read_revision(connection)) is SchemaState.NEWER:
            require_current(read_revision(connection))
        _run(command.upgrade, connection, revision)
        return read_revision(connection)


def downgrade(engine: Engine, revision: str) -> str | None:
    """Migrate down to the revision (`base` empties the database) and return where the database is now.

    Raises:
        StorageNotReady: there is no such revision, or the database is newer than this gateway.
    """
    with _locked(engine) as connection:
        if compare(read_revision(connection)) is SchemaState.NEWER:
            require_current(read_revision(connection))
        _run(command.downgrade, connection, revision)
        return read_revision(connection)


@contextmanager
def _locked(engine: Engine) -> Iterator[Connection]:
    """One transaction around the whole migration that no other process shares."""
    with engine.connect() as connection:
        # The settings below must not stay with a connection that goes back to the pool.
        connection.detach()
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        yield connection
        connection.commit()


def _run(step: Callable[[Config, str], None], connection: Connection, revision: str) -> None:
    config = _config()
    config.attributes["connection"] = connection
    try:
        with _ALEMBIC:
            step(config, revision)
    except CommandError as error:
        raise StorageNotReady(_explain_refusal(revision, read_revision(connection))) from error
    except DBAPIError as error:
        if not is_contradiction(error):
            raise
        reason = " ".join(str(error.orig).split())
        raise StorageNotReady(
            f"The migration to '{revision}' failed and changed nothing: {reason}. Mend what the database names, or "
            "restore a backup; then run the command again."
        ) from error


def _explain_refusal(revision: str, current: str | None) -> str:
    known = _list_revisions()
    if revision in {*known, _NEWEST, _NO_TABLES}:
        return f"The way from revision {current or _NO_TABLES} to {revision} leads in the other direction."
    names = ", ".join((_NO_TABLES, *known, _NEWEST))
    return f"There is no revision '{revision}' to go to; this gateway knows {names}."


def _list_revisions() -> list[str]:
    """Return the revisions this version knows, the oldest first."""
    return [script.revision for script in _scripts().walk_revisions()][::-1]


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    packaged = Path(str(resources.files("gateway"))) / "_alembic"
    checkout = Path(__file__).parents[2] / "alembic"
    config = Config()
    config.set_main_option("script_location", str(packaged if packaged.is_dir() else checkout).replace("%", "%%"))
    return config


class SchemaGate:
    """Lets nothing through to a database until its schema was seen to fit.

    Attributes:
        revision: the one that was seen to fit, None before.
    """

    def __init__(self, engine: Engine, *, migrates: bool) -> None:
        self._engine = engine
        self._migrates = migrates
        self.revision: str | None = None

    def ensure(self) -> None:
        """Check the schema, and migrate it where that is wanted, until it fits once; free from then on.

        Raises:
            StorageNotReady: the schema does not fit; says what to do.
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        if self.revision is not None:
            return
        with self._engine.connect() as connection:
            revision = read_revision(connection)
        if self._migrates and compare(revision) is not SchemaState.CURRENT:
            revision = upgrade(self._engine)
        require_current(revision)
        self.revision = revision
