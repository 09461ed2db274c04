"""Callers' keys in a file: what a gateway of its own needs no database for."""

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from gateway.ports import ApiKey, KeysUnreadable
from gateway.protocol.credentials import DIGEST_PATTERN, KEY_ID_PATTERN, check_principal

_MAX_BYTES = 16 * 1024 * 1024
_HEAD = (
    "# Keys of the gateway's callers, as hashes. Written by `gateway keys`, which may be used while a gateway runs.\n\n"
)

_Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
_KeyId: TypeAlias = Annotated[str, Meta(pattern=KEY_ID_PATTERN)]
_Stamp: TypeAlias = tuple[int, ...]


class _Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One key as the file has it."""

    principal: str
    sha256: Annotated[str, Meta(pattern=DIGEST_PATTERN)]
    created_at: _Moment
    name: str = ""
    expires_at: _Moment | None = None
    revoked_at: _Moment | None = None


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    keys: dict[_KeyId, _Entry] = {}


class KeyFile:
    """`ports.KeyBook` in a TOML file. Several processes may read and write it at once.

    Args:
        path: the file; the first key makes it, readable by its owner alone.
        max_keys: most keys that may count at once.
    """

    def __init__(self, path: Path, *, max_keys: int) -> None:
        self._path = path
        self._max_keys = max_keys
        self._stamp: _Stamp | None = None
        self._keys: Mapping[str, ApiKey] = {}

    def read(self) -> Mapping[str, ApiKey]:
        """Return the keys that count; a file that has not changed is not read again.

        Raises:
            KeysUnreadable: there is no such file, others may write it, or what it holds is not in order.
        """
        stamp = self._examine()
        if stamp != self._stamp:
            keys = _select_live(self._load())
            if len(keys) > self._max_keys:
                raise KeysUnreadable(f"{self._path} holds more keys than [auth] keys_max ({self._max_keys}).")
            self._keys, self._stamp = keys, stamp
        return self._keys

    def list_all(self) -> Sequence[ApiKey]:
        """Return every key, the oldest first; none where there is no file.

        Raises:
            KeysUnreadable: as `read`.
        """
        return sorted(self._load_if_there().values(), key=lambda key: key.created_at)

    def add(self, key: ApiKey) -> None:
        """Write another key into the file.

        Raises:
            KeysUnreadable: as `read`, or the file cannot be written.
        """
        with self._rewriting() as keys:
            if len(_select_live(keys)) >= self._max_keys:
                raise KeysUnreadable(f"{self._path} holds as many keys as [auth] keys_max allows ({self._max_keys}).")
            keys[key.id] = key

    def revoke(self, key_id: str, at: int) -> ApiKey | None:
        """Mark a key as revoked; None if the file has none of that id.

        Raises:
            KeysUnreadable: as `add`.
        """
        with self._rewriting() as keys:
            if (key := keys.get(key_id)) is not None and key.revoked_at is None:
                keys[key_id] = key = msgspec.structs.replace(key, revoked_at=at)
        return key

    def close(self) -> None:
        """Do nothing: between two looks the file is not open."""

    def _examine(self) -> _Stamp:
        """Return what tells a changed file from an unchanged one."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            raise KeysUnreadable(
                f"There is no file {self._path} with the keys of callers; make the first key with "
                "`gateway keys create --principal NAME`, or name another file in [auth] keys_file."
            ) from None
        except OSError as error:
            raise self._fault(error) from error
        if not stat.S_ISREG(status.st_mode):
            # A pipe would be waited for without end.
            raise KeysUnreadable(f"{self._path} is no regular file.")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise KeysUnreadable(
                f"Others than its owner may write {self._path}, and so make keys; run `chmod go-w` on it."
            )
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev

    def _load_if_there(self) -> dict[str, ApiKey]:
        if not self._path.exists():
            return {}
        self._examine()
        return self._load()

    def _load(self) -> dict[str, ApiKey]:
        try:
            with self._path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise KeysUnreadable(f"{self._path} is larger than {_MAX_BYTES} bytes; keep the keys in the database.")
            entries = msgspec.toml.decode(content, type=_File).keys
            return {key_id: _to_key(key_id, entry) for key_id, entry in entries.items()}
        except OSError as error:
            raise self._fault(error) from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise KeysUnreadable(f"{self._path} is not as it should be: {error}.") from error

    @contextmanager
    def _rewriting(self) -> Iterator[dict[str, ApiKey]]:
        """Give the keys to the block, and write what it leaves behind; of several writers one at a time."""
        folder = self._path.resolve().parent
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise KeysUnreadable(f"The folder {folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = self._load_if_there()
            before = dict(keys)
            yield keys
            if keys != before:
                self._write(keys)
                os.fsync(lock)
        except OSError as error:
            raise self._fault(error) from error
        finally:
            os.close(lock)

    def _write(self, keys: Mapping[str, ApiKey]) -> None:
        """Replace the file at once, so that nobody reads half of it; its owner and permissions stay."""
        content = _HEAD.encode() + msgspec.toml.encode(_File(keys={key.id: _to_entry(key) for key in keys.values()}))
        path = self._path.resolve()
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                with suppress(FileNotFoundError):
                    status = path.stat()
                    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
                    os.fchown(descriptor, status.st_uid, status.st_gid)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _fault(self, error: OSError) -> KeysUnreadable:
        return KeysUnreadable(f"{self._path} cannot be used: {error.strerror}.")


def _select_live(keys: Mapping[str, ApiKey]) -> dict[str, ApiKey]:
    now = time.time()
    return {
        key.id: key
        for key in keys.values()
        if key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
    }


def _to_key(key_id: str, entry: _Entry) -> ApiKey:
    return ApiKey(
        id=key_id,
        principal=check_principal(entry.principal),
        digest=entry.sha256,
        created_at=int(entry.created_at.timestamp()),
        name=entry.name,
        expires_at=None if entry.expires_at is None else int(entry.expires_at.timestamp()),
        revoked_at=None if entry.revoked_at is None else int(entry.revoked_at.timestamp()),
    )


def _to_entry(key: ApiKey) -> _Entry:
    return _Entry(
        principal=key.principal,
        sha256=key.digest,
        created_at=_to_moment(key.created_at),
        name=key.name,
        expires_at=None if key.expires_at is None else _to_moment(key.expires_at),
        revoked_at=None if key.revoked_at is None else _to_moment(key.revoked_at),
    )


def _to_moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
