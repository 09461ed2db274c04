"""`gateway usage`: how many tokens principals used."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec
import rich_click as click

from gateway.cli.database import open_current
from gateway.cli.options import database_options, load_database_config
from gateway.config.units import parse_duration
from gateway.storage.usage import COUNTS, Facet, sum_usage
from gateway.telemetry.quantities import make_printable, show_count

_PIPE_WIDTH = 1000


class Since(click.ParamType[date]):
    """A day, or how long ago it was."""

    name = "since"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """Return the day, in UTC."""
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            pass
        try:
            return (datetime.now(UTC) - timedelta(seconds=parse_duration(value))).date()
        except ValueError:
            self.fail("write a day as in 2026-01-31, or how long ago it was as in 7d", param, ctx)


@click.command("usage")
@database_options
@click.option("--principal", metavar="NAME", help="Only what this one used.")
@click.option("--since", type=Since(), metavar="DAY", help="From this day on, in UTC: 2026-01-31, or 7d for the last.")
@click.option(
    "--by",
    type=click.Choice(get_args(Facet)),
    multiple=True,
    default=("principal",),
    show_default=True,
    help="What to tell apart; may be given more than once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def command(
    config: Path | None,
    overrides: tuple[str, ...],
    database: str | None,
    principal: str | None,
    since: date | None,
    by: tuple[Facet, ...],
    *,
    as_json: bool,
) -> None:
    """Show how many tokens principals used.

    They are read from the database, to which every gateway adds what it counted each [storage] usage_interval_seconds.
    Exit codes: 0 shown, 1 the database cannot be used, 2 for wrong usage or an unusable configuration.
    """
    facets = tuple(dict.fromkeys(by))
    with (
        open_current(load_database_config(config, overrides, database).storage) as engine,
        engine.connect() as connection,
    ):
        rows = sum_usage(connection, facets, principal=principal, since=since)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)))
    else:
        _print_table(facets, rows)


def _print_table(facets: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    # A pipe has no width: nothing is cut there.
    console = Console(highlight=False, markup=False)
    console.width = console.width if console.is_terminal else _PIPE_WIDTH
    table = Table(*facets, box=None, show_footer=len(rows) > 1)
    table.columns[0].footer = "all"
    for name in COUNTS:
        total = show_count(sum(row[name] for row in rows))
        table.add_column(name.replace("_tokens", ""), total, justify="right")
    for row in rows:
        words = (make_printable(str(row[name])) for name in facets)
        table.add_row(*words, *(show_count(row[name]) for name in COUNTS))
    console.print(table)
