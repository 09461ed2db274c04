"""Paths of inference servers that callers may use."""

import re
from typing import Any, Final

OWN_PATHS: Final = (
    "/v1/responses",
    "/v1/conversations",
    "/v1/models",
    "/livez",
    "/readyz",
    "/health",
    "/version",
    "/docs",
    "/openapi.json",
)
"""What the gateway answers itself, and everything below it."""

_PATH = re.compile(r"(?:/[A-Za-z0-9_~.-]+)+")
_STEPS = frozenset({".", ".."})


def parse_paths(value: Any) -> tuple[str, ...]:
    """Return paths below a server's base.

    Raises:
        ValueError: the value is no array of paths, or one of them is the gateway's own.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(path, str) for path in value):
        raise ValueError('expected an array of paths such as ["/v1/embeddings"]')
    for path in value:
        if not _PATH.fullmatch(path) or _STEPS & set(path.split("/")):
            raise ValueError(
                f"{path!r} is no path; write it whole, such as /v1/embeddings, of letters, digits and - . _ ~ between "
                "single slashes"
            )
        if any(path == own or path.startswith(f"{own}/") for own in OWN_PATHS):
            raise ValueError(f"{path!r} is answered by the gateway itself and cannot be passed on")
    return tuple(value)
