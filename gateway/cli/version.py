"""`gateway version`."""

import platform

import rich_click as click

from gateway import __version__


@click.command("version")
def command() -> None:
    """Show the versions of the gateway and of Python."""
    click.echo(f"gateway {__version__} (Python {platform.python_version()})")
