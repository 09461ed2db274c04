"""The public keys of an issuer."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.telemetry.names import LOGGER_OIDC

_logger = logging.getLogger(LOGGER_OIDC)
_KEY_TYPES: Mapping[str, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
# 2048 bits, in the 6 bits of a character; shorter keys can be broken.
_RSA_CHARACTERS = 342

Key = RSAKey | ECKey | OKPKey


class SigningKeys:
    """The keys of one JWK set, found by their ids.

    Args:
        document: the set, `{"keys": [...]}`. Keys of unknown kinds, weak ones and those for other ends are left out:
            one that the gateway cannot use must not take the others with it.

    Raises:
        ValueError: it is no JWK set.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        entries = document.get("keys")
        if not isinstance(entries, list):
            raise ValueError("it holds no array 'keys'")  # noqa: TRY004  # said of a document, not of an argument
        self._document = document
        self._by_id: dict[str | None, list[Key]] = defaultdict(list)
        for entry in entries:
            key = _read_key(entry)
            if key is not None:
                self._by_id[key.kid].append(key)

    def __len__(self) -> int:
        return sum(map(len, self._by_id.values()))

    def renewed(self, document: Mapping[str, Any]) -> Self:
        """Return the keys of a newer set, which are these where nothing has changed.

        Raises:
            ValueError: it is no JWK set.
        """
        return self if document == self._document else type(self)(document)

    def find(self, key_id: str | None) -> Sequence[Key]:
        """Return the keys a token may have been signed with; one that names none fits an only key alone."""
        if key_id is None:
            keys = [key for same_id in self._by_id.values() for key in same_id]
            return keys if len(keys) == 1 else ()
        return self._by_id.get(key_id, ())


def _read_key(entry: Any) -> Key | None:
    """Return the public key of one entry, or None where no signature of a token can be checked with it."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kind, modulus = str(entry.get("kty")), str(entry.get("n"))
    if kind not in _KEY_TYPES or (kind == "RSA" and len(modulus) < _RSA_CHARACTERS):
        return None
    try:
        key = _KEY_TYPES[kind].import_key(entry)
        key.check_key_op("verify")
    except (JoseError, ValueError, TypeError, LookupError) as error:
        _logger.warning("a key of the issuer cannot be used: %s", error)
        return None
    return key
