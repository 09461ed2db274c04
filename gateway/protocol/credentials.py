"""How callers prove who they are: the words for owners, and the text of the gateway's own keys.

A key is `rgw_<id>_<secret>`. Its id is no secret: it finds the key, and names it in lists and logs.
"""

import re
from hashlib import sha256
from typing import Final

MAX_PRINCIPAL: Final = 255

_ID: Final = "[a-z0-9]{12}"
_KEY = re.compile(rf"rgw_({_ID})_[0-9a-f]{{64}}")
_BEARER = re.compile(rf"[Bb][Ee][Aa][Rr][Ee][Rr] +(rgw_({_ID})_[0-9a-f]{{64}}) *".encode())
_PRINCIPAL = re.compile(rf"[!-~]{{1,{MAX_PRINCIPAL}}}")

KEY_ID_PATTERN: Final = rf"^{_ID}$"
DIGEST_PATTERN: Final = "^[0-9a-f]{64}$"


def check_principal(text: str) -> str:
    """Return the name of an owner if it is one.

    Raises:
        ValueError: it is empty, longer than 255 characters, or has one that is no printable ASCII, or a space.
    """
    if not _PRINCIPAL.fullmatch(text):
        raise ValueError(f"a principal is 1 to {MAX_PRINCIPAL} printable ASCII characters without spaces")
    return text


def write_key(key_id: str, secret: bytes) -> str:
    """Return the text of a key.

    Args:
        key_id: 12 lower-case letters and digits.
        secret: 32 random bytes.
    """
    return f"rgw_{key_id}_{secret.hex()}"


def read_key_id(text: str) -> str:
    """Return the id of a key that is given as its id or, as it may lie about somewhere, whole."""
    whole = _KEY.fullmatch(text.strip())
    return whole[1] if whole else text.strip()


def read_bearer(credential: bytes) -> tuple[str, bytes] | None:
    """Return the key's id and the digest of its text from the value of an Authorization header, None if it has none."""
    found = _BEARER.fullmatch(credential)
    return None if found is None else (found[2].decode(), sha256(found[1]).digest())


def digest_key(text: str) -> str:
    """Return what is kept of a key: its SHA-256 in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()
