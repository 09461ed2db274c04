"""`gateway version`."""

import platform

import rich_click as click

from gateway import __version__


@click.command("version")
def command() -> None:
    """Show the versions of the gateway and of Python."""
    click.echo(describe_version())


def describe_version() -> str:
    """Return the one line that names this program, for `gateway version` and `--version`."""
    return f"Responses Gateway {__version__} (Python {platform.python_version()})"
