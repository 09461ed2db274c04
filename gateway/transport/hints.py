"""What to say to those who got the base URL wrong by its `/v1`, the most common reason for an unknown path."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from litestar.types.internal_types import PathParameterDefinition

_BASE: Final = "/v1"

Components = Sequence[str | PathParameterDefinition]


def find_hint(path: str, routes: Iterable[Components]) -> str:
    """Return how the base URL must be mended if a route exists then, as the end of a message, else an empty text.

    Args:
        path: the path that no route has.
        routes: the components of every route's path.
    """
    known = list(routes)
    if _exists(_BASE + path, known):
        return f" The same path exists under {_BASE}: the base URL must end in {_BASE}."
    if path.startswith(_BASE + "/") and _exists(path.removeprefix(_BASE), known):
        return f" The same path exists without the leading {_BASE}: leave it out."
    return ""


def _exists(path: str, routes: Iterable[Components]) -> bool:
    segments = [segment for segment in path.split("/") if segment]
    return any(_matches(segments, components) for components in routes)


def _matches(segments: Sequence[str], components: Components) -> bool:
    for place, component in enumerate(components):
        if place >= len(segments):
            return False
        if isinstance(component, str):
            if segments[place] != component:
                return False
        elif component.type is Path:
            return True
    return len(segments) == len(components)
