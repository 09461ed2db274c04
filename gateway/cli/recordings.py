"""The options of the commands that make and replay recordings."""

import asyncio
import signal
import ssl
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import rich_click as click

from gateway.cli.options import DURATION
from gateway.config.addresses import is_loopback
from gateway.config.certificates import CertificateFileError, trust_file
from gateway.telemetry.quantities import make_printable

_Command = TypeVar("_Command", bound=Callable[..., object])
_Result = TypeVar("_Result")
_MAX_KEY_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 160
_POSITIVE: Final = click.IntRange(min=1)
_OPENAI: Final = "api.openai.com"

_BOUNDS: Final = (
    ("--max-frames", "max_frames", 250_000, _POSITIVE, "Most frames and pieces of HTTP in a recording."),
    ("--max-bytes", "max_bytes", 128 * 1024 * 1024, _POSITIVE, "Most bytes of payload in a recording."),
    ("--max-frame-bytes", "max_frame_bytes", 16 * 1024 * 1024, _POSITIVE, "Most bytes of one message."),
    ("--max-injects", "max_injects", 100, _POSITIVE, "Most injects and steers that answer one create."),
    ("--max-creates", "max_creates", 32, _POSITIVE, "Most creates of a scenario on one connection."),
    ("--outstanding", "outstanding", 1, _POSITIVE, "Most injects of a response that wait for their outcome."),
    ("--connect-timeout", "connect_seconds", "10s", DURATION, "Longest wait for a connection and its handshake."),
    ("--timeout", "step_seconds", "2m", DURATION, "Longest time from one create to the end of what it began."),
    ("--close-timeout", "close_seconds", "5s", DURATION, "Longest wait for the other side's goodbye."),
)


def server_options(command: _Command) -> _Command:
    """Add how a server is reached; the command receives `key_file`, `ca_file`, `insecure` and `beta`."""
    for option in (
        click.option(
            "--beta/--no-beta",
            default=True,
            show_default=True,
            help="Send the header of the beta of multi-agent runs when connecting.",
        ),
        click.option("--insecure", is_flag=True, help="Take any certificate."),
        click.option("--ca-file", metavar="FILE", help="PEM file of the authorities to trust instead of the system's."),
        click.option(
            "--key-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="File that holds the API key; it is sent as bearer token and stands nowhere in the recording.",
        ),
    ):
        command = option(command)
    return command


def bound_options(command: _Command) -> _Command:
    """Add the bounds of a recording; the command receives them by the names of `Bounds`."""
    for option, name, default, kind, help in reversed(_BOUNDS):
        command = click.option(option, name, default=default, show_default=True, type=kind, help=help)(command)
    return command


def read_bounds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds among a command's options."""
    return {name: values[name] for _, name, *_ in _BOUNDS}


def check_url(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return the address of a server, with one of the schemes http, https, ws and wss."""
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https", "ws", "wss"} or not parts.hostname or not value.isprintable():
        raise click.BadParameter("not a URL; write http://HOST:PORT, https://HOST, ws://HOST:PORT or wss://HOST")
    try:
        _ = parts.port
    except ValueError:
        raise click.BadParameter("holds a port that is not between 0 and 65535") from None
    return value


def read_key(key_file: Path | None, url: str) -> str | None:
    """Return the key in a file; a key is only sent by TLS or within this machine."""
    if key_file is None:
        return None
    parts = urlsplit(url)
    if parts.scheme in {"http", "ws"} and not is_loopback(parts.hostname or ""):
        raise click.UsageError("the key would be sent in clear text; name the server by https:// or wss://")
    try:
        key = key_file.read_bytes()[: _MAX_KEY_BYTES + 1].decode(errors="replace").strip()
    except OSError as error:
        raise click.BadParameter(f"{key_file}: {error.strerror}", param_hint="--key-file") from error
    if not key or not key.isascii() or not key.isprintable() or len(key) > _MAX_KEY_BYTES:
        raise click.BadParameter(f"{key_file}: holds no key: one line of ASCII", param_hint="--key-file")
    return key


def choose_tls(ca_file: str | None, *, insecure: bool) -> ssl.SSLContext | None:
    """Return how certificates are checked; None for the authorities that the system trusts."""
    if ca_file is None and not insecure:
        return None
    try:
        context = trust_file(ca_file) if ca_file else ssl.create_default_context()
    except CertificateFileError as error:
        raise click.BadParameter(str(error), param_hint="--ca-file") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def run_stoppable(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run what records; SIGTERM ends it like SIGINT, with the recording's end written.

    Raises:
        Abort: it was stopped.
    """

    async def run() -> _Result:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise click.Abort from None


def guess_provider(url: str) -> str:
    """Return whose server it is, as far as its name tells."""
    return "openai" if urlsplit(url).hostname == _OPENAI else "gateway"


def show_line(line: str) -> str:
    """Return a line that may hold what a server sent, fit for a terminal."""
    return make_printable(line)[:_SHOWN_CHARACTERS]
