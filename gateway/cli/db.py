"""`gateway db`: the schema of the database, and what is removed from it."""

import sys
import threading
import time
from pathlib import Path

import rich_click as click

from gateway.cli.audit import note_action
from gateway.cli.database import open_current, open_database, read_revision
from gateway.cli.options import DURATION, database_options, load_database_config
from gateway.storage import migrations
from gateway.storage.owners import Owned, OwnerChange
from gateway.storage.retention import Sweep
from gateway.storage.sweeper import find_cutoffs, sweep_gently
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
    with open_database(load_database_config(config, overrides, database).storage, create=True) as engine:
        before = read_revision(engine)
        after = migrations.upgrade(engine, revision)
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
    with open_database(load_database_config(config, overrides, database).storage) as engine:
        after = migrations.downgrade(engine, revision)
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
@click.option("--dry-run", is_flag=True, help="Only tell how many would go.")
def purge(
    config: Path | None, overrides: tuple[str, ...], database: str | None, older_than: float | None, *, dry_run: bool
) -> None:
    """Remove responses that are past their retention, and deleted ones that nothing continues from.

    A running gateway does the same by itself, every [storage] retention_interval_seconds.
    """
    storage = load_database_config(config, overrides, database).storage
    cutoffs = find_cutoffs(
        time.time(),
        retention_seconds=storage.retention_seconds if older_than is None else older_than,
        grace_seconds=storage.retention_interval_seconds,
    )
    with open_current(storage) as engine:
        sweep = Sweep(engine, batch_responses=storage.retention_batch_responses)
        total = sweep.count(cutoffs) if dry_run else sweep_gently(sweep, cutoffs, threading.Event())
    click.echo(f"{'To be removed' if dry_run else 'Removed'}: responses {total.responses}, items {total.items}.")


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
    with open_current(storage) as engine:
        change = OwnerChange(engine, old=old, new=new, batch_rows=storage.retention_batch_responses)
        total = change.count()
        if not dry_run:
            total = _move(change, total)
            former = {names.FIELD_FORMER_PRINCIPAL: old}
            note_action(loaded.telemetry, "owner assigned", new, str(storage.url), **former)
    click.echo(
        f"{'To be moved' if dry_run else 'Moved'}: responses {total.responses}, items {total.items}, "
        f"conversations {total.conversations}."
    )


def _move(change: OwnerChange, expected: Owned) -> Owned:
    """Move everything, with a bar on a terminal; returns what was moved."""
    total = Owned()
    with click.progressbar(length=expected.responses, label="responses", file=sys.stderr) as bar:
        for moved in change.apply():
            total += moved
            bar.update(moved.responses)
    return total
