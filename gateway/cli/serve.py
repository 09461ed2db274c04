"""`gateway serve`."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import rich_click as click

from gateway.cli.options import config_options, load_or_exit
from gateway.config import load_config


@click.command("serve")
@config_options
@click.option("--host", help="Address to listen on; same as --set server.host=….")
@click.option("--port", type=int, help="Port to listen on, 0 for a free one; same as --set server.port=….")
@click.option("--upstream", metavar="URL", help="The inference server; same as --set upstream.url=….")
@click.option("--database", metavar="URL", help="Where responses are kept; same as --set storage.url=….")
@click.option("--workers", type=int, help="Processes that serve; same as --set server.workers=….")
@click.option(
    "--wait-upstream",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait so long for a healthy inference server before listening; exit with 1 when it does not come.",
)
@click.pass_context
def command(
    context: click.Context,
    *,
    config: Path | None,
    overrides: tuple[str, ...],
    host: str | None,
    port: int | None,
    upstream: str | None,
    database: str | None,
    workers: int | None,
    wait_upstream: float | None,
) -> None:
    """Serve the Responses API until SIGTERM or SIGINT.

    Logs go to stderr. The first signal lets running responses finish, a second one ends them as failed. SIGHUP reads
    the configuration again and applies what needs no restart. With several workers, signals go to this process, which
    passes them on. Exit codes: 0 after an orderly end, 1 when the start failed or a second signal cut work off, 2 for
    an unusable configuration.
    """
    flags = {
        "server.host": host,
        "server.port": port,
        "server.workers": workers,
        "upstream.url": upstream,
        "storage.url": database,
    }
    with _holding_hangups():
        context.exit(_serve(config, (*overrides, *_as_overrides(flags)), wait_upstream))


def _serve(config: Path | None, overrides: tuple[str, ...], wait_upstream: float | None) -> int:
    loaded = load_or_exit(config, overrides)

    from gateway.server import serve, supervise
    from gateway.telemetry.logs import configure_logging, use_json
    from gateway.telemetry.names import LOGGER_SERVER

    telemetry = loaded.config.telemetry
    configure_logging(telemetry.log_level, telemetry.log_format, sys.stderr, audit_file=telemetry.audit_file)
    # Where machines read the log, the start line is a record like the others.
    for_machines = use_json(telemetry.log_format, sys.stderr)
    announce = logging.getLogger(LOGGER_SERVER).info if for_machines else click.echo
    several = loaded.config.server.workers > 1
    run = partial(supervise, file=config, overrides=overrides) if several else serve
    return run(
        loaded.config,
        origins=loaded.origins,
        load=partial(load_config, config, dict(os.environ), overrides),
        announce=announce,
        report=lambda line: click.echo(line, err=True),
        wait_upstream=wait_upstream,
    )


@contextmanager
def _holding_hangups() -> Iterator[None]:
    """Hold back SIGHUP until the server takes it: nobody is helped if a reload during the start ends the process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _as_overrides(flags: dict[str, str | int | None]) -> Iterator[str]:
    return (f"{key}={value}" for key, value in flags.items() if value is not None)
