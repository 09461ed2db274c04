"""Write the tables of the page on the status document: `python -m docs.status_page` from the folder of the tests.

The words around the tables are written by hand; a table stands between two comments that name a class.
"""

import inspect
import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from docs.pages import ROOT
from msgspec import Struct

from gateway.telemetry import status
from gateway.telemetry.distribution import Distribution
from gateway.telemetry.status import Status

PAGE = ROOT / "docs/reference/status.md"
_TABLE = re.compile(r"(<!-- (\w+): generated -->\n).*?(<!-- end -->)", re.DOTALL)
_FIELD = re.compile(r"^(\w+): (.*?)(?=^\w+: |\Z)", re.MULTILINE | re.DOTALL)
_PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", NoneType: "null"}


def find_classes() -> dict[str, type[Struct]]:
    """Return every class of the document, by name."""
    named = {name: value for name, value in vars(status).items() if isinstance(value, type)}
    return {name: kind for name, kind in named.items() if issubclass(kind, Struct) and kind is not Struct}


def render(page: str) -> str:
    """Return the page with its tables as they must be.

    Raises:
        KeyError: it has a table of a class that nobody knows.
    """
    classes = find_classes()
    return _TABLE.sub(lambda found: found[1] + "\n".join(_list_fields(classes[found[2]])) + "\n" + found[3], page)


def _list_fields(kind: type[Struct]) -> Iterator[str]:
    meanings = _read_attributes(kind)
    assert set(meanings) == set(kind.__struct_fields__), kind
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    hints = get_type_hints(kind)
    for name in kind.__struct_fields__:
        yield f"| `{name}` | {_show_type(hints[name])} | {meanings[name]} |"


def _read_attributes(kind: type[Struct]) -> dict[str, str]:
    _, _, attributes = inspect.getdoc(kind).partition("Attributes:\n")  # type: ignore[union-attr]
    fields = inspect.cleandoc(attributes)
    return {name: re.sub(r"\bNone\b", "null", " ".join(words.split())) for name, words in _FIELD.findall(fields)}


def _show_type(hint: Any) -> str:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inside)
    if origin is UnionType:
        return " or ".join(map(_show_type, inside))
    if origin is tuple:
        return f"list of {_show_type(inside[0]).replace('number', 'numbers')}"
    return f"[{hint.__name__}](#{hint.__name__.lower()})"


CLASSES = (Status, *(kind for kind in find_classes().values() if kind not in {Status, Distribution}), Distribution)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
