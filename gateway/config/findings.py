"""Where values come from, and what is wrong with them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct

KeyPath = tuple[str, ...]


class Origin(Struct, frozen=True):
    """Where a value was written.

    Attributes:
        kind: the kind of source; a later one in the list wins.
        name: path of the file, or name of the environment variable.
        line: line in the file, from 1; 0 where there is none.
    """

    kind: Literal["default", "file", "env", "cli"] = "default"
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "file":
                return f"{self.name}:{self.line}" if self.line else self.name
            case "env":
                return f"env {self.name}"
            case "cli":
                return "--set"
        return self.kind


DEFAULT = Origin()

NO_ORIGINS: Final[Mapping[str, Origin]] = MappingProxyType({})
"""Where it is not known of any value."""


class Finding(Struct, frozen=True, kw_only=True):
    """One problem or warning.

    Attributes:
        path: dotted path of the key, empty where the source as a whole is at fault.
        message: what is wrong and how to mend it.
        source: where the value was written.
        value: the offending value as it may be shown, or None.
    """

    path: str
    message: str
    source: str
    value: str | None = None

    def __str__(self) -> str:
        shown = self.path if self.value is None else f"{self.path} = {self.value}"
        return ": ".join(part for part in (self.source, shown, self.message) if part)


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        problems: everything that is wrong, not only the first.
        warnings: what was noticed besides.
    """

    def __init__(self, problems: Sequence[Finding], warnings: Sequence[Finding] = ()) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
