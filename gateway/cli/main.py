"""Entry point: one click group whose commands are imported only when they are called."""

import importlib
from collections.abc import Sequence

import rich_click as click

from gateway import __version__

_COMMANDS: dict[str, str] = {
    "serve": "Serve the Responses API.",
    "config": "Check, show and generate the configuration.",
    "db": "Create, upgrade and inspect the database.",
    "simulate": "Serve a scripted inference server.",
    "demo": "Show a gateway at work.",
    "version": "Show the version.",
}


class LazyGroup(click.RichGroup):
    """A group that knows the names of its commands without importing them, so `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the command names in the order of use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import `gateway.cli.<name>` and return its `command`."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"gateway.cli.{cmd_name}")
        command: click.Command = module.command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="gateway")
def cli() -> None:
    """The OpenAI Responses API in front of a vLLM server."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Exit codes: 0 done, 1 a finding or failure, 2 wrong usage or configuration."""
    cli.main(args=argv, prog_name="gateway")
