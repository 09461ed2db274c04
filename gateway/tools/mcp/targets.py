"""What a session can be held with."""

import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

_SHORTEST_TOKEN: Final = 16  # among the segments of a path, whose others are words


class Endpoint(Struct, frozen=True, kw_only=True):
    """A server at a URL.

    Attributes:
        url: where it is.
        headers: sent with every call, names in lower case.
        private: whether it may have an address that only this network reaches.
        tls: what an https URL is checked with.
    """

    url: str
    headers: Mapping[str, str]
    private: bool
    tls: ssl.SSLContext

    @property
    def secrets(self) -> list[str]:
        """What must not be repeated: headers, and what of the URL may be a token as well."""
        parts = urlsplit(self.url)
        placed = [value for _, value in parse_qsl(parts.query)]
        placed += [segment for segment in parts.path.split("/") if len(segment) >= _SHORTEST_TOKEN]
        return [*(one for value in self.headers.values() for one in (value, value.removeprefix("Bearer "))), *placed]


class Program(Struct, frozen=True, kw_only=True):
    """A server that the gateway starts.

    Attributes:
        label: what it is called.
        command: the program and its arguments.
        env: variables set for it.
        env_pass: variables of the gateway's that it gets besides the usual ones.
        cwd: where it is started, or None.
    """

    label: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    env_pass: tuple[str, ...]
    cwd: str | None

    @property
    def secrets(self) -> list[str]:
        """What must not be repeated."""
        return list(self.env.values())


Target = Endpoint | Program
