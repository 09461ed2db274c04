"""`gateway health`: whether the gateway of this configuration lives, for health checks of containers."""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click

from gateway.cli.answers import Answer, NoAnswer, ask, local_url
from gateway.cli.errors import print_error
from gateway.cli.options import config_options, load_or_exit, url_option
from gateway.config.certificates import CertificateFileError, trust_file
from gateway.telemetry.quantities import make_printable

_EXIT_UNHEALTHY = 1
_SHOWN_CHARACTERS = 300


@click.command("health")
@config_options
@url_option("Where the gateway is; without it, where the configuration has it listen.")
@click.option("--ca-file", metavar="FILE", help="PEM file of the authorities to trust for an https URL.")
@click.option("--insecure", is_flag=True, help="Take any certificate of an https URL.")
@click.option("--ready", is_flag=True, help="Ask whether it can serve requests now, not only whether it runs.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for an answer.",
)
@click.pass_context
def command(
    context: click.Context,
    *,
    config: Path | None,
    overrides: tuple[str, ...],
    url: str | None,
    ca_file: str | None,
    insecure: bool,
    ready: bool,
    timeout: float,
) -> None:
    """Ask a running gateway whether it is well.

    Prints one line. The certificate of a gateway that the configuration tells of is not checked: it is for the name
    that callers use, and nothing secret is sent. The one of an https URL is. Exit codes: 0 well, 1 not well or no
    answer, 2 for wrong usage or an unusable configuration.
    """
    target = url or _configured_url(config, overrides)
    path = "/readyz" if ready else "/livez"
    try:
        answer = ask(target, path, timeout, _choose_tls(target, ca_file, check=url is not None and not insecure))
    except NoAnswer as error:
        print_error(f"{target}{path}: {error}")
        context.exit(_EXIT_UNHEALTHY)
    if answer.status != 200:
        print_error(f"{target}{path}: {_describe(answer)}")
        context.exit(_EXIT_UNHEALTHY)
    click.echo(f"{target}: {'ready' if ready else 'alive'}")


def _configured_url(config: Path | None, overrides: Sequence[str]) -> str:
    server = load_or_exit(config, overrides).config.server
    if not server.port:
        raise click.UsageError("port 0 lets the system choose, so nobody can know it: name the gateway with --url")
    return local_url(server.host, server.port, "http" if server.tls_cert_file is None else "https")


def _choose_tls(target: str, ca_file: str | None, *, check: bool) -> ssl.SSLContext | None:
    if not target.startswith("https:"):
        return None
    try:
        context = trust_file(ca_file) if ca_file else ssl.create_default_context()
    except CertificateFileError as error:
        raise click.BadParameter(str(error), param_hint="--ca-file") from None
    if not check:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _describe(answer: Answer) -> str:
    """Return the status and, of a gateway, the reasons; others' answers are not repeated."""
    try:
        reasons = msgspec.json.decode(answer.body, type=dict[str, Any]).get("reasons")
    except msgspec.DecodeError:
        reasons = None
    if not isinstance(reasons, list):
        return f"status {answer.status}"
    told = "; ".join(str(reason) for reason in reasons)[:_SHOWN_CHARACTERS]
    return f"status {answer.status}, {make_printable(told)}"
