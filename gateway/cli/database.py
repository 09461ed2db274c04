"""How commands open the configured database."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import rich_click as click
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.cli.errors import print_error
from gateway.config.schema import StorageConfig
from gateway.storage import migrations
from gateway.storage.engine import create_file, open_engine
from gateway.storage.faults import StorageNotReady, explain_fault
from gateway.storage.settings import StoreSettings, database_url


@contextmanager
def open_database(storage: StorageConfig, *, create: bool = False) -> Iterator[Engine]:
    """Open the configured database, named on stderr; a fault inside ends the process with a line and status 1.

    Args:
        storage: which one.
        create: make the file of a SQLite database that has none.
    """
    # Without a configuration it is a default one, which is not what everybody expects.
    click.secho(f"database: {storage.url}", dim=True, err=True)
    try:
        settings = StoreSettings(
            url=database_url(storage.url.reveal()),
            sqlite_synchronous=storage.sqlite_synchronous,
            busy_timeout_seconds=storage.busy_timeout_seconds,
            statement_timeout_seconds=storage.statement_timeout_seconds,
        )
        if create:
            create_file(settings.url)
        engine = open_engine(settings)
        try:
            yield engine
        finally:
            engine.dispose()
    except (StorageNotReady, SQLAlchemyError) as error:
        print_error(explain_fault(error))
        sys.exit(1)


@contextmanager
def open_current(storage: StorageConfig) -> Iterator[Engine]:
    """Open a database whose schema fits; as `open_database`, and one that does not fit is a fault too."""
    with open_database(storage) as engine:
        migrations.require_current(read_revision(engine))
        yield engine


def read_revision(engine: Engine) -> str | None:
    """Return the database's revision, None when it was never migrated."""
    with engine.connect() as connection:
        return migrations.read_revision(connection)
