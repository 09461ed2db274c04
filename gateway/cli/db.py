"""`gateway db`: the schema of the database, what is removed from it, and copies of it."""

import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rich_click as click

from gateway.cli.audit import audited
from gateway.cli.database import open_current, open_database, read_revision
from gateway.cli.errors import print_error
from gateway.cli.options import DURATION, database_options, load_database_config
from gateway.config.schema import GatewayConfig
from gateway.config.units import format_size
from gateway.storage import migrations
from gateway.storage.backup import back_up
from gateway.storage.expiry import Expiry
from gateway.storage.owners import Owned, OwnerChange
from gateway.storage.purge import Purge
from gateway.storage.retention import Removed
from gateway.storage.settings import database_url, is_sqlite
from gateway.storage.sweeper import PAUSE_SECONDS, find_cutoffs, sweep_gently
from gateway.storage.usage import remove_usage
from gateway.telemetry import names


@click.group("db")
def command() -> None:
    """Create, upgrade and inspect the database.

    Each command names the database on stderr. Exit codes: 0 done, 1 the database is not as asked for or does not
    answer, 2 for an unusable configuration.
    """


@command.command()
@database_options
@click.argument("revision", default="head")
def upgrade(config: Path | None, overrides: tuple[str, ...], database: str | None, revision: str) -> None:
    """Create the tables or bring them up to REVISION, the newest by default. Safe to run at any time."""
    loaded = load_database_config(config, overrides, database)
    with _audited(loaded, "db upgrade") as told, open_database(loaded.storage, create=True) as engine:
        before = read_revision(engine)
        after = migrations.upgrade(engine, revision)
        told |= {names.FIELD_OUTCOME: "unchanged" if before == after else "done", names.FIELD_REVISION: after}
    click.echo(f"The database is at revision {after}{' already' if before == after else ''}.")


@command.command()
@database_options
@click.argument("revision")
@click.option("--yes", is_flag=True, help="Do not ask.")
def downgrade(
    config: Path | None, overrides: tuple[str, ...], database: str | None, revision: str, *, yes: bool
) -> None:
    """Take the tables down to REVISION; `base` removes them with all they hold."""
    if not yes:
        click.confirm(f"Going down to {revision} may delete stored responses. Go on?", abort=True, err=True)
    loaded = load_database_config(config, overrides, database)
    with _audited(loaded, "db downgrade") as told, open_database(loaded.storage) as engine:
        after = told[names.FIELD_REVISION] = migrations.downgrade(engine, revision)
    click.echo("The database has no tables any more." if after is None else f"The database is at revision {after}.")


@command.command()
@database_options
def current(config: Path | None, overrides: tuple[str, ...], database: str | None) -> None:
    """Print the database's revision, or `none`."""
    with open_database(load_database_config(config, overrides, database).storage) as engine:
        click.echo(read_revision(engine) or "none")


@command.command()
@database_options
def check(config: Path | None, overrides: tuple[str, ...], database: str | None) -> None:
    """Tell by the exit code whether this gateway can use the database: 0 yes, 1 no."""
    with open_database(load_database_config(config, overrides, database).storage) as engine:
        revision = read_revision(engine)
        migrations.require_current(revision)
    click.echo(f"The database is at revision {revision}, the newest.")


@command.command()
@database_options
@click.option(
    "--older-than", type=DURATION, metavar="DURATION", help="Instead of [storage] retention_seconds, as in 90d."
)
@click.option("--principal", metavar="NAME", help="Remove all that this one has stored instead, whatever its age.")
@click.option("--usage", is_flag=True, help="With --principal: forget how many tokens it used, too.")
@click.option("--dry-run", is_flag=True, help="Only tell how many would go.")
@click.option("--yes", is_flag=True, help="With --principal: do not ask.")
def purge(
    config: Path | None,
    overrides: tuple[str, ...],
    database: str | None,
    older_than: float | None,
    principal: str | None,
    *,
    usage: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove responses that are past their retention, and deleted ones that nothing continues from.

    A running gateway does the same by itself, every [storage] retention_interval_seconds. With --principal everything
    of one principal goes, in small transactions, so that a running gateway goes on; what it has in memory it may use
    for [storage] history_revalidate_seconds more, and on an open WebSocket until that closes.
    """
    loaded = load_database_config(config, overrides, database)
    if principal is not None:
        if older_than is not None:
            raise click.UsageError("--older-than and --principal exclude each other")
        _purge_principal(loaded, principal, usage=usage, dry_run=dry_run, yes=yes)
        return
    if usage or yes:
        raise click.UsageError("--usage and --yes go with --principal")
    storage = loaded.storage
    cutoffs = find_cutoffs(
        time.time(),
        retention_seconds=storage.retention_seconds if older_than is None else older_than,
        grace_seconds=storage.retention_interval_seconds,
    )
    with _audited(loaded, "db purge", skip=dry_run) as told, open_current(storage) as engine:
        sweep = Expiry(engine, batch_responses=storage.retention_batch_responses)
        total = sweep.count(cutoffs) if dry_run else sweep_gently(sweep, cutoffs, threading.Event())
        told.update(_tell(total))
    click.echo(f"{'To be removed' if dry_run else 'Removed'}: {_describe(total)}.")


def _purge_principal(loaded: GatewayConfig, principal: str, *, usage: bool, dry_run: bool, yes: bool) -> None:
    storage = loaded.storage
    with open_current(storage) as engine:
        found = Purge(engine, principal, batch_rows=storage.retention_batch_responses)
        expected = found.count()
        if dry_run:
            click.echo(f"To be removed: {_describe(expected)}.")
            return
        if not yes:
            click.confirm(f"Remove {_describe(expected)} of {principal!r} for good?", abort=True, err=True)
        total, forgotten = Removed(), 0
        with _audited(loaded, "db purge", {names.FIELD_PRINCIPAL: principal}) as told:
            try:
                with click.progressbar(length=expected.responses, label="responses", file=sys.stderr) as bar:
                    for removed in found.apply():
                        total += removed
                        bar.update(removed.responses)
                        # Others want to write, too.
                        time.sleep(PAUSE_SECONDS)
                if usage:
                    with engine.begin() as connection:
                        forgotten = remove_usage(connection, principal)
            finally:
                # What went before a fault is gone, too.
                told.update(_tell(total) | {names.FIELD_REMOVED_USAGE: forgotten})
        left = found.count()
    click.echo(f"Removed: {_describe(total)}{f', rows of usage {forgotten}' if usage else ''}.")
    if left != Removed():
        print_error(f"{_describe(left)} are there, stored or continued meanwhile; run the command again")
        sys.exit(1)


def _describe(removed: Removed) -> str:
    return f"responses {removed.responses}, items {removed.items}, conversations {removed.conversations}"


def _tell(removed: Removed) -> dict[str, Any]:
    return {
        names.FIELD_REMOVED_RESPONSES: removed.responses,
        names.FIELD_REMOVED_ITEMS: removed.items,
        names.FIELD_REMOVED_CONVERSATIONS: removed.conversations,
    }


@command.command("assign-owner")
@database_options
@click.option("--from", "old", required=True, metavar="OWNER", help="Who owns it now; `local` without access control.")
@click.option("--to", "new", required=True, metavar="OWNER", help="Who is to own it, as keys or tokens name him.")
@click.option("--dry-run", is_flag=True, help="Only tell how much would move.")
def assign_owner(
    config: Path | None, overrides: tuple[str, ...], database: str | None, old: str, new: str, *, dry_run: bool
) -> None:
    """Give everything that one owner stored to another.

    For the day on which callers begin to need keys: what was stored before belongs to `local`, whom nobody is any more.
    There is no way back once both have something. Responses move in small transactions, so that a running gateway goes
    on; interrupted, the command is run again.
    """
    if not new or not new.isprintable():
        raise click.BadParameter("an owner is printable text", param_hint="--to")
    loaded = load_database_config(config, overrides, database)
    storage = loaded.storage
    owners = {names.FIELD_PRINCIPAL: new, names.FIELD_FORMER_PRINCIPAL: old}
    with _audited(loaded, "db assign-owner", owners, skip=dry_run) as told, open_current(storage) as engine:
        change = OwnerChange(engine, old=old, new=new, batch_rows=storage.retention_batch_responses)
        total = change.count()
        if not dry_run:
            total = _move(change, total)
        told |= {names.FIELD_RESPONSES: total.responses, names.FIELD_ITEMS: total.items}
    click.echo(
        f"{'To be moved' if dry_run else 'Moved'}: responses {total.responses}, items {total.items}, "
        f"conversations {total.conversations}."
    )


@command.command()
@database_options
@click.argument("file", type=click.Path(path_type=Path))
def backup(config: Path | None, overrides: tuple[str, ...], database: str | None, file: Path) -> None:
    """Copy a SQLite database to FILE, which must not exist; a gateway may go on working on it.

    The copy is checked, is one file for its owner alone, and is put in the place of the database to restore it. A
    database of PostgreSQL is copied by pg_dump.
    """
    loaded = load_database_config(config, overrides, database)
    if not is_sqlite(database_url(loaded.storage.url.reveal())):
        raise click.UsageError("this copies SQLite databases; PostgreSQL has pg_dump for its own")
    with _audited(loaded, "db backup", {names.FIELD_FILE: str(file)}), open_database(loaded.storage) as engine:
        size = back_up(engine, file)
    click.echo(f"The database was copied to {file}, {format_size(size)}.")


def _move(change: OwnerChange, expected: Owned) -> Owned:
    """Move everything, with a bar on a terminal; returns what was moved."""
    total = Owned()
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=expected.responses, label="responses", file=sys.stderr, hidden=hidden) as bar:
        for moved in change.apply():
            total += moved
            bar.update(moved.responses)
    return total


def _audited(
    config: GatewayConfig, action: str, fields: Mapping[str, Any] = MappingProxyType({}), *, skip: bool = False
) -> AbstractContextManager[dict[str, Any]]:
    """Leave a record of what is done to the configured database, unless nothing is."""
    return nullcontext({}) if skip else audited(config.telemetry, action, str(config.storage.url), **fields)
