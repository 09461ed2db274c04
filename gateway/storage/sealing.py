"""Sealing of what clients carry for the gateway: authenticated encryption, bound to an owner and a kind."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ports import KeyStore, SealMismatch
from gateway.protocol import codec
from gateway.protocol.errors import Unavailable

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_OWNER_ONLY = 0o600
_MAX_FILE_BYTES = 65_536


class GivenKeys:
    """`ports.KeyStore` of keys from the configuration.

    Args:
        keys: the newest first.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    def keys(self) -> Sequence[bytes]:
        """Return the keys; the first seals, all open."""
        return self._keys


class OwnKeyFile:
    """`ports.KeyStore` in a file beside a SQLite database, made when it is first needed.

    Args:
        path: the file: keys in lines of their own, the newest first; readable by its owner alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def keys(self) -> Sequence[bytes]:
        """Return the keys; the first seals, all open.

        Raises:
            Unavailable: the file can neither be read nor made, or holds no key.
        """
        try:
            if not self._path.exists():
                self._make()
            with self._path.open("rb") as file:
                keys = file.read(_MAX_FILE_BYTES).split()
            if keys:
                _open(keys)
        except (OSError, ValueError) as error:
            raise Unavailable(
                "The gateway cannot use its sealing keys; the operator finds the reason in its log."
            ) from error
        if not keys:
            raise Unavailable("The gateway's file of sealing keys is empty.")
        return keys

    def _make(self) -> None:
        """Write the file whole under another name first; of several processes that do so one wins."""
        from cryptography.fernet import Fernet  # noqa: PLC0415 - as in `_open`

        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(Fernet.generate_key() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if not self._path.exists():
                os.link(draft, self._path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()


class FernetSealer:
    """`ports.Sealer` by Fernet. The keys are fetched when something is sealed or opened for the first time.

    Args:
        keys: where they come from.
    """

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    def seal(self, principal: str, kind: str, plaintext: bytes) -> str:
        """Return a token bound to the principal and the kind.

        Raises:
            Unavailable: the keys cannot be had.
        """
        return self._fernet.encrypt(_bind(principal, kind) + plaintext).decode("ascii")

    def unseal(self, principal: str, kind: str, token: str) -> bytes | None:
        """Return the plaintext; None for what none of the keys opens, which somebody else may have sealed.

        Raises:
            SealMismatch: it was sealed here for another principal, or as another kind.
            Unavailable: the keys cannot be had.
        """
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as in `_open`

        try:
            opened = self._fernet.decrypt(token.encode("utf-8", "replace"))
        except InvalidToken:
            return None
        binding = _bind(principal, kind)
        if not opened.startswith(binding):
            raise SealMismatch
        return opened[len(binding) :]

    @cached_property
    def _fernet(self) -> "MultiFernet":
        return _open(self._keys.keys())


def _open(keys: Sequence[bytes]) -> "MultiFernet":
    """Return what seals and opens with the keys.

    Raises:
        ValueError: one of them is none.
    """
    # It takes 6 MB, which most gateways have no use for.
    from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415

    return MultiFernet([Fernet(key) for key in keys])


def _bind(principal: str, kind: str) -> bytes:
    """Return what stands before the plaintext: JSON escapes line breaks, so that none of it can be mistaken."""
    return codec.encode([principal, kind]) + b"\n"
