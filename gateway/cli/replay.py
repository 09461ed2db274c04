"""`gateway replay`: recordings checked, played to a server again, or served."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
    from gateway.cassette.checks import Finding
    from gateway.cassette.format import Cassette

_Depth = Literal["none", "outcomes", "texts"]
_SHOWN_PROBLEMS = 5


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--check", is_flag=True, help="Check the recording alone.")
@click.option("--url", metavar="URL", callback=check_url, help="Play its client to this server: http, https, ws, wss.")
@click.option("--serve", "port", type=click.IntRange(0, 65535), help="Serve it on this port; 0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve it on.")
@click.option("--model", metavar="NAME", help="The model to ask for instead of the recorded one.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Record the replay.")
@click.option("--force", is_flag=True, help="Replace the file of --out.")
@click.option(
    "--compare",
    type=click.Choice(("none", "outcomes", "texts")),
    default="outcomes",
    show_default=True,
    help="What must be as recorded: nothing, how everything ended, or the items with their texts too.",
)
@click.option("--quiet", is_flag=True, help="Do not show what is sent and received.")
@server_options
@bound_options
@click.pass_context
def command(context: click.Context, /, file: Path, **options: Any) -> None:
    """Check a recording, play it to a server again, or serve it.

    A replay sends each message once what it followed has been reached again, with the ids of the new session. Then the
    assertions A1 to A11 are checked. Exit codes: 0 all is well, 1 something is not, 2 wrong usage.
    """
    chosen = [name for name, given in (("check", options["check"]), ("url", options["url"])) if given]
    chosen += ["serve"] if options["port"] is not None else []
    if len(chosen) != 1:
        raise click.UsageError("say one of --check, --url and --serve")
    cassette = _load(file)
    if options["url"]:
        context.exit(_replay(cassette, options))
    if options["port"] is not None:
        context.exit(_serve(cassette, options["host"], options["port"]))
    context.exit(_check(cassette))


def _load(file: Path) -> "Cassette":
    from gateway.cassette.conversion import read_yaml
    from gateway.cassette.format import FormatError, load_cassette

    try:
        return read_yaml(file.read_bytes()) if file.suffix.lower() in {".yaml", ".yml"} else load_cassette(file)
    except FormatError as error:
        raise click.BadParameter(show_line(f"{file}: {error}"), param_hint="FILE") from error
    except OSError as error:
        raise click.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from error


def _check(cassette: "Cassette") -> int:
    from gateway.cassette.checks import check_sessions
    from gateway.cassette.transcript import read_sessions

    sessions = read_sessions(cassette.records)
    went_wrong = _report(check_sessions(sessions, cassette.head.scenario))
    if not cassette.is_complete:
        click.echo("the recording was killed: it has no end")
    elif not cassette.is_intact:
        print_error("the recording was changed: its sum does not fit")
        went_wrong = True
    return int(went_wrong)


def _replay(cassette: "Cassette", options: dict[str, Any]) -> int:
    from gateway.cassette.bounds import Bounds
    from gateway.cassette.format import read_cassette
    from gateway.cassette.recorder import FileSink, MemorySink, RecordingFailed
    from gateway.cassette.replay import judge_replay, replay_cassette
    from gateway.cassette.stage import Settings

    settings = Settings(
        url=options["url"],
        model=options["model"],
        key=read_key(options["key_file"], options["url"]),
        beta=options["beta"],
        tls=choose_tls(options["ca_file"], insecure=options["insecure"]),
        bounds=Bounds(**read_bounds(options)),
    )

    def tell(line: str) -> None:
        if not options["quiet"]:
            click.echo(show_line(line), err=True)

    out: Path | None = options["out"]
    try:
        sink = FileSink(out, replace=options["force"]) if out is not None else MemorySink()
        provider = guess_provider(options["url"])
        result = run_stoppable(replay_cassette(cassette, settings, sink, provider=provider, tell=tell))
        sink.close()
    except RecordingFailed as error:
        print_error(str(error))
        return 1
    replayed = _load(out) if out is not None else read_cassette(iter(sink.lines if hasattr(sink, "lines") else ()))
    depth: _Depth = options["compare"]
    went_wrong = _report(judge_replay(cassette, replayed, result, depth))
    if result.failure is not None:
        print_error(show_line(result.failure))
    return int(went_wrong or result.failure is not None)


def _serve(cassette: "Cassette", host: str, port: int) -> int:
    from gateway.cassette.playback import Playback, serve_playback

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        playback = Playback(cassette, lambda line: click.echo(show_line(line), err=True))
        async with serve_playback(playback, host, port) as url:
            click.echo(f"Recording served on {url}/v1/responses, by HTTP and by WebSocket")
            await stop.wait()

    try:
        asyncio.run(serve())
    except OSError as error:
        print_error(f"{host}:{port} cannot be listened on ({error.strerror or error}); choose another port")
        return 1
    return 0


def _report(findings: Sequence["Finding"]) -> bool:
    """Show findings; return whether one tells of a problem."""
    for finding in sorted(findings, key=lambda finding: (not finding.name.startswith("A"), len(finding.name))):
        state = "WRONG" if finding.problems else "ok" if finding.checked else "-"
        click.echo(f"{finding.name:4}{state:6}{finding.title} ({finding.checked})")
        for problem in finding.problems[:_SHOWN_PROBLEMS]:
            click.echo(show_line(f"          {problem}"))
        if len(finding.problems) > _SHOWN_PROBLEMS:
            click.echo(f"          and {len(finding.problems) - _SHOWN_PROBLEMS} more")
    return any(finding.problems for finding in findings)
