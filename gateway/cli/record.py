"""`gateway record`: sessions with a Responses API, frame by frame, in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from gateway.cli.errors import print_error
from gateway.cli.recordings import (
    bound_options,
    check_url,
    choose_tls,
    guess_provider,
    read_bounds,
    read_key,
    run_stoppable,
    server_options,
    show_line,
)

if TYPE_CHECKING:
    from gateway.cassette.recorder import Sink
    from gateway.cassette.recording import Outcome
    from gateway.cassette.stage import Settings

_SCENARIOS: Final = tuple(f"R{number}" for number in range(1, 19))
_STORE: Final = {"true": True, "false": False, "omit": None}


@click.group("record", invoke_without_command=True)
@click.option(
    "--scenario", "names", multiple=True, type=click.Choice(_SCENARIOS), help="What to play; may be repeated."
)
@click.option("--all", "play_all", is_flag=True, help="Play every scenario.")
@click.option("--list", "show_list", is_flag=True, help="List the scenarios and end.")
@click.option("--url", metavar="URL", callback=check_url, help="The server: http, https, ws or wss.")
@click.option("--model", metavar="NAME", help="The model to ask for.")
@click.option("--out", metavar="PATH", type=click.Path(path_type=Path), help="File to write; with several a folder.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--provider", metavar="NAME", help="Whose server it is; by default as its name tells.")
@click.option(
    "--store",
    type=click.Choice(tuple(_STORE)),
    default="true",
    show_default=True,
    help="What creates say about storage; R12 says false whatever this is.",
)
@click.option("--prompt", metavar="TEXT", help="What to say instead of a scenario's own words.")
@click.option("--quiet", is_flag=True, help="Do not show what is sent and received.")
@server_options
@bound_options
@click.pass_context
def command(context: click.RichContext, /, **options: Any) -> None:
    """Record sessions with a Responses API, frame by frame, in a file.

    Plays scenarios of agent trees, injects and steering, answers the calls of the model itself, and writes each frame
    of both directions as it is seen. Exit codes: 0 recorded, 1 a scenario failed or its recording does not show what
    it should, 2 wrong usage.
    """
    if context.invoked_subcommand is not None:
        return
    if options["show_list"]:
        _show_scenarios()
        return
    names = _SCENARIOS if options["play_all"] else options["names"]
    for name, is_there in (("--scenario or --all", names), ("--url", options["url"]), ("--out", options["out"])):
        if not is_there:
            raise click.UsageError(f"{name} is missing")
    context.exit(1 if _record_all(names, options) else 0)


@command.command("convert")
@click.argument("source", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace the file that is written.")
@click.pass_context
def convert(context: click.Context, source: Path, target: Path, *, force: bool) -> None:
    """Convert a recording from JSON Lines to YAML or back.

    What the names end with tells the formats: .jsonl, and .yaml or .yml for responses-websocket-v1.
    """
    from gateway.cassette.conversion import read_yaml, write_lines, write_yaml
    from gateway.cassette.format import FormatError, load_cassette
    from gateway.cassette.recorder import FileSink, RecordingFailed

    try:
        cassette = read_yaml(source.read_bytes()) if _is_yaml(source) else load_cassette(source)
        sink = FileSink(target, replace=force)
        try:
            sink.write(write_yaml(cassette) if _is_yaml(target) else write_lines(cassette))
        finally:
            sink.close()
    except FormatError as error:
        print_error(show_line(f"{source}: {error}"))
        context.exit(1)
    except (OSError, RecordingFailed) as error:
        print_error(str(error))
        context.exit(1)
    click.echo(f"{target}: {len(cassette.records)} records")


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in {".yaml", ".yml"}


def _show_scenarios() -> None:
    from gateway.cassette.scenarios import SCENARIOS

    for scenario in SCENARIOS.values():
        click.echo(f"{scenario.name:4} {scenario.title}")


def _record_all(names: tuple[str, ...], options: dict[str, Any]) -> bool:
    """Record scenarios one after the other; return whether one went wrong."""
    from gateway.cassette.bounds import Bounds
    from gateway.cassette.recorder import FileSink, RecordingFailed
    from gateway.cassette.stage import Settings

    url: str = options["url"]
    settings = Settings(
        url=url,
        model=options["model"],
        key=read_key(options["key_file"], url),
        beta=options["beta"],
        store=_STORE[options["store"]],
        prompt=options["prompt"],
        tls=choose_tls(options["ca_file"], insecure=options["insecure"]),
        bounds=Bounds(**read_bounds(options)),
    )
    provider = options["provider"] or guess_provider(url)
    went_wrong = False
    for name in names:
        path = options["out"] / f"{name}.jsonl" if len(names) > 1 else options["out"]
        try:
            sink = FileSink(path, replace=options["force"])
            try:
                outcome = run_stoppable(_record(name, settings, sink, provider, quiet=options["quiet"]))
            finally:
                sink.close()
        except RecordingFailed as error:
            print_error(str(error))
            return True
        went_wrong = _report(name, path, outcome) or went_wrong
    return went_wrong


async def _record(name: str, settings: "Settings", sink: "Sink", provider: str, *, quiet: bool) -> "Outcome":
    from gateway.cassette.recording import record_scenario
    from gateway.cassette.scenarios import SCENARIOS

    def tell(line: str) -> None:
        if not quiet:
            click.echo(show_line(f"{name} {line}"), err=True)

    return await record_scenario(SCENARIOS[name], settings, sink, provider=provider, tell=tell)


def _report(name: str, path: Path, outcome: "Outcome") -> bool:
    counts = outcome.counts
    click.echo(
        f"{path}: {name}, {counts['sessions']} session(s), {counts['frames']} frames, {counts['http']} pieces of HTTP, "
        f"{counts['bytes']} bytes, {counts['redacted']} redacted"
    )
    if outcome.failure is not None:
        print_error(show_line(f"{name}: {outcome.failure}"))
    elif outcome.missed is not None:
        print_error(show_line(f"{name}: {outcome.missed}"))
    return outcome.failure is not None or outcome.missed is not None
