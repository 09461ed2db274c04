"""Entry point: one click group whose commands are imported only when they are called."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NoReturn

import rich_click as click

from gateway import __version__
from gateway.cli.errors import describe_refusal, print_error
from gateway.cli.version import describe_version

# What a command's own help says first; kept here, so that listing them imports none of them.
COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "serve": "Serve the Responses API until SIGTERM or SIGINT.",
        "health": "Ask a running gateway whether it is well.",
        "status": "Show what a running gateway holds and has seen.",
        "config": "Check, show and generate the configuration.",
        "db": "Create, upgrade and inspect the database.",
        "usage": "Show how many tokens principals used.",
        "keys": "Make, list and revoke the keys of callers.",
        "simulate": "Serve a scripted inference server that behaves like vLLM, and misbehaves on request.",
        "demo": "Show a gateway at work: an answer, what was stored, two forks on one WebSocket, a round of a tool.",
        "record": "Record sessions with a Responses API, frame by frame, in a file.",
        "replay": "Check a recording, play it to a server again, or serve it.",
        "openapi": "Print the OpenAPI document of the API.",
        "version": "Show the versions of the gateway and of Python.",
    }
)


class LazyGroup(click.RichGroup):
    """A group that lists its commands without importing them, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the command names in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a stand-in that knows the command's name and what it is for."""
        return click.Command(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import `gateway.cli.<name>` and return its `command` with the arguments left for it."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if name is None or stand_in is None:
            return name, stand_in, rest
        command: click.Command = importlib.import_module(f"gateway.cli.{name}").command
        return name, command, rest


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message=describe_version())
def cli() -> None:
    """The OpenAI Responses API in front of a vLLM server."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 a finding or failure, 2 wrong usage or configuration."""
    try:
        # What comes back is the code given to `exit`, or what the command returned: nothing.
        code = cli.main(args=argv, prog_name="gateway", standalone_mode=False)
    except click.ClickException as error:
        print_error(describe_refusal(error))
        code = error.exit_code
    except click.Abort:
        print_error("stopped")
        code = 1
    sys.exit(code)
