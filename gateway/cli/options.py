"""The options by which every command finds its configuration."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import rich_click as click

from gateway.cli.errors import print_error
from gateway.config import ConfigError, Finding, LoadedConfig, load_config
from gateway.config.addresses import parse_http_url
from gateway.config.schema import GatewayConfig
from gateway.config.units import parse_duration

_Command = TypeVar("_Command", bound=Callable[..., object])

EXIT_UNUSABLE = 2


class Duration(click.ParamType[float]):
    """A duration as in the configuration, above zero."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds."""
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not seconds:
            self.fail("must be above 0", param, ctx)
        return seconds


DURATION: Final = Duration()


def config_options(command: _Command) -> _Command:
    """Add `--config` and `--set`; the command receives `config: Path | None` and `overrides: tuple[str, ...]`."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.KEY=VALUE",
        help="Set one key, as often as needed; beats the environment and the file.",
    )(command)
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="TOML file to read; without it the one that GATEWAY_CONFIG names, if any.",
    )(command)


def database_options(command: _Command) -> _Command:
    """Add `--database` to the options of `config_options`; the command receives `database: str | None` besides."""
    command = click.option("--database", metavar="URL", help="The database; same as --set storage.url=….")(command)
    return config_options(command)


def url_option(help: str) -> Callable[[_Command], _Command]:
    """Add `--url`, the address of a running gateway; the command receives `url: str | None`, checked."""
    return click.option("--url", metavar="URL", callback=_check_url, help=help)


def _check_url(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else parse_http_url(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def load_or_exit(config: Path | None, overrides: Sequence[str]) -> LoadedConfig:
    """Load the configuration; warnings and problems go to stderr, and problems end the process with status 2."""
    try:
        loaded = load_config(config, os.environ, overrides)
    except ConfigError as error:
        print_findings(error.warnings, error.problems)
        sys.exit(EXIT_UNUSABLE)
    print_findings(loaded.warnings)
    return loaded


def load_database_config(config: Path | None, overrides: Sequence[str], database: str | None) -> GatewayConfig:
    """Load the configuration with the database that `--database` names, if it does; ends as `load_or_exit`."""
    named = () if database is None else (f"storage.url={database}",)
    return load_or_exit(config, (*overrides, *named)).config


def print_findings(warnings: Sequence[Finding], problems: Sequence[Finding] = ()) -> None:
    """Write findings to stderr, one a line."""
    for finding in warnings:
        click.secho(f"warning: {finding}", fg="yellow", err=True)
    for finding in problems:
        print_error(str(finding))
