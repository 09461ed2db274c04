"""Values that must never be shown."""

import re
from typing import Any, Final

REDACTED: Final = "***"

_USERINFO = re.compile(r"^([A-Za-z][\w+.-]*://)([^:/@]*):.*@", re.DOTALL)
# What a server is asked for over HTTP may be a key under any name.
_HTTP_QUERY = re.compile(r"^(https?://[^?#]*[?#]).+", re.IGNORECASE | re.DOTALL)
_QUERY_PASSWORD = re.compile(r"([?&](?:sslpassword|password|passfile)=)[^&]*", re.IGNORECASE)


def redact_url(text: str) -> str:
    """Return a URL without its passwords, one of HTTP without its query.

    Userinfo reaches to the last `@`, so that odd passwords hide too.
    """
    text = _HTTP_QUERY.sub(rf"\1{REDACTED}", _USERINFO.sub(rf"\1\2:{REDACTED}@", text))
    return _QUERY_PASSWORD.sub(rf"\1{REDACTED}", text)


class Secret:
    """A string that shows itself only to `reveal`; every rendering is redacted."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def parse(cls, value: Any) -> "Secret":
        """Return the secret.

        Raises:
            ValueError: the value is no string, is empty or holds a control character.
        """
        if not isinstance(value, str):
            raise ValueError("expected a string")  # noqa: TRY004 - every parser reports by ValueError
        if not value:
            raise ValueError("is empty; leave it out instead")
        if not value.isprintable():
            raise ValueError("holds a line break or another control character")
        return cls(value)

    def reveal(self) -> str:
        """Return the secret itself."""
        return self._value

    @property
    def redacted(self) -> str:
        """What may be shown."""
        return REDACTED

    def __str__(self) -> str:
        return self.redacted

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.redacted!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


class SecretUrl(Secret):
    """A URL whose passwords are hidden; the rest may be shown."""

    __slots__ = ()

    @property
    def redacted(self) -> str:
        """The URL with its passwords replaced."""
        return redact_url(self._value)
