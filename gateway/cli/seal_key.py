"""`gateway keys seal-key`: a key for what clients carry for the gateway."""

import os
import sys
import tempfile
from pathlib import Path

import rich_click as click

from gateway.cli.audit import audited
from gateway.cli.errors import print_error
from gateway.config.schema import TelemetryConfig
from gateway.config.seal_keys import parse_seal_keys

_OWNER_ONLY = 0o600
_HEAD = "# Sealing keys of the gateway, the newest first: the first seals, all open.\n"


@click.command("seal-key")
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), help="Put the key first in this file.")
def command(file: Path | None) -> None:
    """Make a sealing key and print it, alone, on stdout; or put it first in a file.

    The key belongs into [security] seal_keys or the file that seal_keys_file names; every replica needs the same ones.
    To rotate, put a new key first, and drop the old one when nothing sealed with it is used any more. Of several
    replicas all must be able to open with the new key before one seals with it: let it stand last at first. A running
    gateway reads its keys when it starts. Exit codes: 0 done, 1 the file cannot be used.
    """
    # What it needs takes longer to load than all other commands.
    from cryptography.fernet import Fernet

    key = Fernet.generate_key().decode()
    if file is None:
        click.echo(key)
        return
    with audited(TelemetryConfig(), "keys seal-key", str(file)):
        try:
            _prepend(file, key)
        except OSError as error:
            print_error(f"{file} cannot be written: {error.strerror}")
            sys.exit(1)
        except ValueError as error:
            print_error(f"{file} is no file of sealing keys: it {error}")
            sys.exit(1)


def _prepend(file: Path, key: str) -> None:
    """Replace the file at once by one with the key before those it has; its permissions stay."""
    path = file.resolve()
    before, mode = "", _OWNER_ONLY
    if path.exists():
        before, mode = path.read_text(encoding="utf-8").removeprefix(_HEAD), path.stat().st_mode & 0o777
        if before.strip():
            parse_seal_keys(before)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as draft:
            os.fchmod(descriptor, mode)
            draft.write(f"{_HEAD}{key}\n{before}")
            draft.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
