"""`gateway config`: check, show and generate the configuration."""

import os
from pathlib import Path

import rich_click as click

from gateway.cli.options import EXIT_UNUSABLE, config_options, load_or_exit, print_findings
from gateway.config import ConfigError, GatewayConfig, LoadedConfig, load_config
from gateway.config.display import show_settings, show_tables
from gateway.config.processes import describe_sharing
from gateway.config.render import render_schema, render_toml, to_toml_value, written_form
from gateway.config.tree import format_path, gateway_tree, walk

_EXIT_WARNINGS = 1
_PIPE_WIDTH = 10_000


@click.group("config")
def command() -> None:
    """Check, show and generate the configuration."""


@command.command("check")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_options
@click.option("--strict", is_flag=True, help="Exit with 1 when there are warnings.")
@click.pass_context
def check(
    context: click.Context, file: Path | None, config: Path | None, overrides: tuple[str, ...], *, strict: bool
) -> None:
    """Report every problem and warning. Exit codes: 0 fine, 1 warnings with --strict, 2 problems."""
    try:
        loaded = load_config(_named_file(file, config), os.environ, overrides)
    except ConfigError as error:
        print_findings(error.warnings, error.problems)
        click.echo(f"{_count(len(error.problems), 'problem')}, {_count(len(error.warnings), 'warning')}", err=True)
        context.exit(EXIT_UNUSABLE)
    print_findings(loaded.warnings)
    _print_sharing(loaded.config)
    noted = f", {_count(len(loaded.warnings), 'warning')}" if loaded.warnings else ""
    click.echo(f"{loaded.file or 'defaults and environment'}: ok{noted}")
    context.exit(_EXIT_WARNINGS if strict and loaded.warnings else 0)


def _named_file(file: Path | None, config: Path | None) -> Path | None:
    if file and config:
        raise click.UsageError("name the file once: as FILE or with --config")
    return file or config


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@command.command("show")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_options
@click.option("--origin", is_flag=True, help="Tell where each value comes from: as a table, or with --format json.")
@click.option("--format", "form", type=click.Choice(["toml", "json"]), help="Print for machines; toml by default.")
def show(file: Path | None, config: Path | None, overrides: tuple[str, ...], form: str | None, *, origin: bool) -> None:
    """Show the values in effect, written as in a file. Secrets are redacted."""
    if origin and form == "toml":
        raise click.UsageError("TOML has no place for origins; use --format json, or no --format for a table")
    loaded = load_or_exit(_named_file(file, config), overrides)
    _print_sharing(loaded.config)
    if origin and form is None:
        _print_table(loaded)
    elif form == "json":
        _print_json(loaded, origin=origin)
    else:
        import tomli_w

        click.echo(tomli_w.dumps(show_tables(loaded.config)), nl=False)


def _print_sharing(config: GatewayConfig) -> None:
    if line := describe_sharing(config):
        click.secho(f"note: {line}", dim=True, err=True)


def _print_table(loaded: LoadedConfig) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    # A pipe has no width: nothing is cut there.
    console = Console(highlight=False, markup=False)
    console.width = console.width if console.is_terminal else _PIPE_WIDTH
    table = Table(
        Column("key", no_wrap=True), Column("value", overflow="fold"), Column("origin", overflow="fold"), box=None
    )
    for path, node, value in walk(gateway_tree(), loaded.config):
        origin = loaded.origins[format_path(path)]
        shown = "" if value is None else to_toml_value(written_form(node, value))
        table.add_row(format_path(path), shown, str(origin), style="dim" if origin.kind == "default" else "")
    console.print(table)


def _print_json(loaded: LoadedConfig, *, origin: bool) -> None:
    import msgspec

    content = show_settings(loaded.config, loaded.origins) if origin else show_tables(loaded.config)
    click.echo(msgspec.json.format(msgspec.json.encode(content)))


@command.command("init")
@click.argument("file", default="gateway.toml", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite the file.")
def init(file: Path, *, force: bool) -> None:
    """Write a file with every key commented out, beside its description and default."""
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(render_toml())
    except FileExistsError:
        raise click.ClickException(f"{file} exists; --force overwrites it") from None
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from None
    click.echo(f"wrote {file}; `gateway config schema > gateway.schema.json` beside it lets editors complete keys")


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of the file."""
    click.echo(render_schema(), nl=False)
