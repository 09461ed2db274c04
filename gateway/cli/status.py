"""`gateway status`: what a running gateway holds and has seen, for people at a terminal."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import rich_click as click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gateway.cli.answers import NoAnswer, ask, local_url
from gateway.cli.errors import print_error
from gateway.cli.options import config_options, load_or_exit, url_option
from gateway.config.addresses import split_bind
from gateway.telemetry.digest import find_troubles, group_uses, list_latencies, show_distribution
from gateway.telemetry.quantities import (
    NOTHING,
    make_printable,
    show_bytes,
    show_count,
    show_share,
    show_span,
    show_time,
)
from gateway.telemetry.status import Status

_EXIT_NO_ANSWER = 1
_TIMEOUT_SECONDS = 10.0
_ERRORS_SHOWN = 10
_BAR_WIDTH = 20
# What the tables of limits and errors take with all their columns. A narrower terminal gets fewer limits' columns and
# two lines for an error, so that neither breaches nor request ids are cut off.
_WIDE = 118


@click.command("status")
@config_options
@url_option("The admin listener; without it, where the configuration has it.")
@click.option("--json", "as_json", is_flag=True, help="Print the document as it is served, for programs.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks with --watch.",
)
@click.pass_context
def command(
    context: click.Context,
    *,
    config: Path | None,
    overrides: tuple[str, ...],
    url: str | None,
    as_json: bool,
    watch: bool,
    interval: float,
) -> None:
    """Show what a running gateway holds and has seen.

    Exit codes: 0 shown, 1 no answer, 2 for wrong usage or an unusable configuration.
    """
    if as_json and watch:
        raise click.UsageError("--json prints one document; leave --watch out")
    target = url or _configured_url(config, overrides)
    if watch:
        _watch(target, interval)
        return
    try:
        body, status = _read(target)
    except NoAnswer as error:
        print_error(f"{target}: {error}")
        context.exit(_EXIT_NO_ANSWER)
    if as_json:
        click.echo(body.decode())
    else:
        console = Console(highlight=False, markup=False)
        console.print(render(status, console.width))


def _configured_url(config: Path | None, overrides: Sequence[str]) -> str:
    admin = load_or_exit(config, overrides).config.admin
    host, port = split_bind(admin.bind)
    if not admin.enabled:
        raise click.UsageError("the configuration has no admin listener (admin.enabled); name one with --url")
    if not port:
        raise click.UsageError("port 0 lets the system choose, so nobody can know it: name the listener with --url")
    return local_url(host, port)


def _read(url: str) -> tuple[bytes, Status]:
    """Return the document as it was sent, and read.

    Raises:
        NoAnswer: there is none, or none that this version can read.
    """
    answer = ask(url, "/status.json", _TIMEOUT_SECONDS)
    if answer.status != 200:
        raise NoAnswer(f"/status.json was answered with {answer.status}")
    try:
        return answer.body, msgspec.json.decode(answer.body, type=Status)
    except msgspec.DecodeError as error:
        raise NoAnswer("what /status.json answered is no status of this version") from error


def _watch(url: str, interval: float) -> None:
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        raise click.UsageError("--watch draws on a terminal; without one, ask for --json as often as you like")
    with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
        try:
            while True:
                live.update(_look(url, console.width), refresh=True)
                time.sleep(interval)
        except KeyboardInterrupt:
            return


def _look(url: str, width: int) -> RenderableType:
    try:
        return render(_read(url)[1], width)
    except NoAnswer as error:
        return Text(f"{url}: {error}", style="red")


def render(status: Status, width: int) -> RenderableType:
    """Return a status as it is shown at a terminal of so many columns."""
    wide = width >= _WIDE
    tables = (
        *(_uses(status), _latencies(status), _limits(status, wide=wide)),
        *(_outcomes(status), _rejections(status), _tokens(status), _principals(status), _errors(status, wide=wide)),
    )
    return Group(*_head(status), *(Padding(table, (1, 0, 0, 0)) for table in tables if table.row_count))


def _head(status: Status) -> Iterator[RenderableType]:
    processes = ", ".join(str(process.pid) for process in status.processes)
    yield Text.assemble(
        (f"Responses Gateway {status.version}", "bold"),
        f"  up {show_span(status.uptime)}  auth {status.auth}  process {processes}  {show_time(status.time)} UTC",
    )
    for server in status.upstreams:
        facts = f"{server.dialect}, circuit breaker {server.breaker.replace('_', '-')}"
        yield _verdict(server.healthy, f"inference server {server.name} at {server.url}: {facts}")
    yield _verdict(status.storage.healthy, f"database {status.storage.database}")
    for trouble in find_troubles(status):
        yield Text(f"! {make_printable(trouble)}", style="red")


def _verdict(healthy: bool, words: str) -> Text:
    return Text.assemble(("● ", "green" if healthy else "red"), make_printable(words))


def _uses(status: Status) -> Table:
    table = _table("in use", "now", "high", "limit", "")
    for group, rows in group_uses(status):
        for row in rows:
            use, show = row.use, row.show
            bar = "" if use.limit is None else ProgressBar(max(1, use.limit), use.now, width=_BAR_WIDTH)
            limit = NOTHING if use.limit is None else show(use.limit)
            table.add_row(make_printable(f"{group}: {row.name}"), show(use.now), show(use.high), limit, bar)
    return table


def _latencies(status: Status) -> Table:
    table = _table("times", "count", "p50", "p99", "longest")
    for name, seen in list_latencies(status):
        table.add_row(name, *show_distribution(seen))
    return table


def _limits(status: Status, *, wide: bool) -> Table:
    seen = slice(None) if wide else slice(-1, None)
    table = _table("limits", *("count", "p50", "p99", "largest")[seen], "limit", "used", "breaches")
    for limit in status.limits:
        used = NOTHING if limit.seen.max is None else show_share(limit.seen.max, limit.limit)
        breaches = Text(show_count(limit.breaches), style="red" if limit.breaches else "")
        sizes = show_distribution(limit.seen, show_bytes)[seen]
        table.add_row(limit.key, *sizes, show_bytes(limit.limit), used, breaches)
    return table


def _outcomes(status: Status) -> Table:
    table = _table("responses", "ended as", "count")
    for outcome in status.responses:
        table.add_row(outcome.transport, outcome.status, show_count(outcome.count))
    return table


def _rejections(status: Status) -> Table:
    table = _table("refused because of", "times")
    for rejection in status.rejections:
        table.add_row(rejection.key, show_count(rejection.count))
    return table


def _tokens(status: Status) -> Table:
    table = _table("tokens", "input", "cached", "output", "reasoning")
    for tokens in status.tokens:
        table.add_row(make_printable(tokens.model), *map(show_count, msgspec.structs.astuple(tokens)[1:]))
    return table


def _principals(status: Status) -> Table:
    table = _table("tokens of", "responses", "input", "cached", "output", "reasoning")
    for one in status.principals:
        table.add_row(make_printable(one.principal), *map(show_count, msgspec.structs.astuple(one)[1:]))
    return table


def _errors(status: Status, *, wide: bool) -> Table:
    last = ("code", "request") if wide else ("code, request",)
    table = Table("last errors (UTC)", "where", "status", *last, box=None, header_style="bold")
    table.columns[1].overflow = "fold"
    table.columns[-1].no_wrap = True
    for error in status.last_errors[:_ERRORS_SHOWN]:
        found = tuple(map(make_printable, (error.code, error.request_id)))
        words = map(make_printable, (show_time(error.time), error.route, str(error.status)))
        table.add_row(*words, *(found if wide else ("\n".join(found),)))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column(first, min_width=30)
    for name in others:
        table.add_column(name, justify="right")
    return table
