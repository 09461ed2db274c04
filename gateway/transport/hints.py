"""What to say about an unknown path: the base URL has a `/v1` too much or too little, or the path is the engine's."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from litestar.types.internal_types import PathParameterDefinition

_BASE: Final = "/v1"

Components = Sequence[str | PathParameterDefinition]


def find_hint(path: str, routes: Iterable[Components]) -> str:
    """Return what would make the path known, as the end of a message, or an empty text.

    Args:
        path: the path that no route has.
        routes: the components of every route's path.
    """
    known = list(routes)
    if _exists(_BASE + path, known):
        return f" The same path exists under {_BASE}: the base URL must end in {_BASE}."
    if path.startswith(_BASE + "/") and _exists(path.removeprefix(_BASE), known):
        return f" The same path exists without the leading {_BASE}: leave it out."
    if path.startswith(_BASE + "/") and not _is_own(path, known):
        return " If the inference server has it, the operator can list it in upstream.passthrough."
    return ""


def _is_own(path: str, routes: Iterable[Components]) -> bool:
    """Whether routes of the gateway begin like the path."""
    beginning = [segment for segment in path.split("/") if segment][:2]
    return len(beginning) < 2 or any(list(components[:2]) == beginning for components in routes)


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
