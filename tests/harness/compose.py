"""Reads docker-compose.yml as the program does that it is written for, as far as it is used here."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def read_compose(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the file with merge keys resolved and variables put in.

    Args:
        environment: variables that take the place of the file's defaults.
    """

    def fill_in(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: fill_in(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [fill_in(inner) for inner in value]
        return _VARIABLE.sub(substitute, value) if isinstance(value, str) else value

    def substitute(found: re.Match[str]) -> str:
        return (environment or {}).get(found[1]) or found[2] or ""

    return fill_in(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def find_variables(text: str) -> dict[str, str]:
    """Return every variable a text asks for, with its default."""
    return {name: default or "" for name, default in _VARIABLE.findall(text)}
