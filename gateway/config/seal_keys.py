"""Sealing keys as they are written: several in one secret, the newest first."""

import base64
import re
from typing import Any

from gateway.config.secret import Secret

_KEY_BYTES = 32
_SHAPE = re.compile(r"[A-Za-z0-9_-]{43}=")


def parse_seal_keys(value: Any) -> Secret:
    """Return the keys as one secret, a space between two; a line that begins with # is a comment.

    Raises:
        ValueError: there is no key, or one is not as `gateway keys seal-key` makes them; no key is repeated.
    """
    if isinstance(value, list):
        value = "\n".join(map(str, value))
    if not isinstance(value, str):
        raise ValueError("expected a string")  # noqa: TRY004 - every parser reports by ValueError
    lines = [line for line in value.splitlines() if not line.lstrip().startswith("#")]
    keys = "\n".join(lines).replace(",", " ").split()
    if not keys:
        raise ValueError("holds no key; `gateway keys seal-key` makes one")
    for number, key in enumerate(keys, start=1):
        if not _SHAPE.fullmatch(key) or len(base64.urlsafe_b64decode(key)) != _KEY_BYTES:
            raise ValueError(f"key {number} is not one that `gateway keys seal-key` makes (44 characters)")
    return Secret(" ".join(keys))


def list_seal_keys(secret: Secret) -> list[str]:
    """Return the keys of the secret, the newest first."""
    return secret.reveal().split()
