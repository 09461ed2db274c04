"""`gateway keys`: who may call."""

import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import rich_click as click

from gateway.app.access import build_key_book
from gateway.cli.audit import audited
from gateway.cli.errors import print_error
from gateway.cli.options import DURATION, database_options, load_database_config
from gateway.cli.seal_key import command as seal_key
from gateway.config.schema import GatewayConfig
from gateway.ports import ApiKey, KeyBook, KeysUnreadable
from gateway.protocol.credentials import check_principal, digest_key, read_key_id, write_key
from gateway.storage.faults import StorageNotReady
from gateway.telemetry import names

_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH = 12
_SECRET_BYTES = 32
_NAME_LENGTH = 100
_SHOWN_ID = 64
_PIPE_WIDTH = 1000


@click.group("keys")
def command() -> None:
    """Make, list and revoke the keys of callers.

    They are kept where [auth] keys_in says, in a file or in the database, as hashes: a key is shown once. A running
    gateway notices a change within [auth] keys_revalidate_seconds. What was done is logged on stderr. Exit codes: 0
    done, 1 there is no such key or the keys cannot be used, 2 for an unusable configuration.
    """


@command.command()
@database_options
@click.option("--principal", required=True, metavar="NAME", help="Who owns what is stored with the key.")
@click.option("--name", default="", metavar="TEXT", help="What the key is for, to tell it from others.")
@click.option("--expires", type=DURATION, metavar="DURATION", help="The key counts for so long, as in 90d.")
def create(
    config: Path | None,
    overrides: tuple[str, ...],
    database: str | None,
    principal: str,
    name: str,
    expires: float | None,
) -> None:
    """Make a key and print it, alone, on stdout. It is not shown again."""
    try:
        check_principal(principal)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--principal") from None
    if len(name) > _NAME_LENGTH or not name.isprintable():
        raise click.BadParameter(f"a name is at most {_NAME_LENGTH} printable characters", param_hint="--name")
    loaded = load_database_config(config, overrides, database)
    text, key = _mint(principal, name, expires)
    told = {names.FIELD_PRINCIPAL: principal, names.FIELD_KEPT_IN: _describe_place(loaded)}
    with audited(loaded.telemetry, "keys create", key.id, **told), _open_book(loaded) as book:
        book.add(key)
    click.echo(text)


@command.command("list")
@database_options
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def list_keys(config: Path | None, overrides: tuple[str, ...], database: str | None, *, as_json: bool) -> None:
    """Print what is known of every key: its id, but never the key itself."""
    with _open_book(load_database_config(config, overrides, database)) as book:
        keys = book.list_all()
    if as_json:
        shown = [
            {name: getattr(key, name) for name in ApiKey.__struct_fields__ if name != "digest"} | {"state": _state(key)}
            for key in keys
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(shown)))
    else:
        _print_table(keys)


@command.command()
@database_options
@click.argument("key_id", metavar="ID")
def revoke(config: Path | None, overrides: tuple[str, ...], database: str | None, key_id: str) -> None:
    """Let the key with this ID count no more; a whole key does in the place of its id. What runs goes on."""
    loaded, key_id = load_database_config(config, overrides, database), read_key_id(key_id)
    place = _describe_place(loaded)
    # What is no id may be a mistyped key.
    shown = key_id if len(key_id) == _ID_LENGTH else "unknown"
    with audited(loaded.telemetry, "keys revoke", shown, **{names.FIELD_KEPT_IN: place}) as told:
        with _open_book(loaded) as book:
            key = book.revoke(key_id, int(time.time()))
        if key is None:
            print_error(f"there is no key {key_id[:_SHOWN_ID]!r}; `gateway keys list` shows those there are")
            sys.exit(1)
        told[names.FIELD_PRINCIPAL] = key.principal


command.add_command(seal_key)


def _mint(principal: str, name: str, expires: float | None) -> tuple[str, ApiKey]:
    """Return the text of a new key, and what is kept of it."""
    now = int(time.time())
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    text = write_key(key_id, secrets.token_bytes(_SECRET_BYTES))
    key = ApiKey(
        id=key_id,
        principal=principal,
        digest=digest_key(text),
        created_at=now,
        name=name,
        expires_at=None if expires is None else now + max(1, int(expires)),
    )
    return text, key


@contextmanager
def _open_book(config: GatewayConfig) -> Iterator[KeyBook]:
    """Open the configured keys, and tell where they are; a fault inside ends the process with one line and status 1."""
    click.secho(f"keys: {_describe_place(config)}", dim=True, err=True)
    if config.auth.mode != "api_keys":
        click.secho(f"note: [auth] mode is {config.auth.mode!r}, which asks nobody for such a key", dim=True, err=True)
    try:
        with closing(build_key_book(config)) as book:
            yield book
    except (KeysUnreadable, StorageNotReady) as error:
        print_error(str(error))
        sys.exit(1)


def _describe_place(config: GatewayConfig) -> str:
    return config.auth.keys_file if config.auth.keys_in == "file" else str(config.storage.url)


def _print_table(keys: Sequence[ApiKey]) -> None:
    from rich.console import Console
    from rich.table import Table

    # A pipe has no width: nothing is cut there.
    console = Console(highlight=False, markup=False)
    console.width = console.width if console.is_terminal else _PIPE_WIDTH
    table = Table("id", "principal", "name", "created", "expires", "state", box=None)
    for key in keys:
        state = _state(key)
        days = (_day(moment) for moment in (key.created_at, key.expires_at))
        table.add_row(key.id, key.principal, key.name, *days, state, style="" if state == "active" else "dim")
    console.print(table)


def _day(moment: int | None) -> str:
    return "never" if moment is None else datetime.fromtimestamp(moment, UTC).date().isoformat()


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= time.time():
        return "expired"
    return "active"
