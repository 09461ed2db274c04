"""Read the file, the environment and `--set` into assignments, each with its origin."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gateway.config.findings import Finding, KeyPath, Origin
from gateway.config.tree import (
    ENV_PREFIX,
    Entries,
    Leaf,
    Node,
    Table,
    descend,
    env_label,
    env_name,
    format_path,
    leaves,
    suggest,
    toml_type,
)

FILE_VARIABLE: Final = ENV_PREFIX + "CONFIG"

# Kubernetes and Docker put the addresses of services into the environment; one called `gateway` meets our prefix.
_SERVICE_LINK = re.compile(
    r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_[A-Z]+(?:_(?:PROTO|PORT|ADDR))?)?)"
)
_SERVICE_PORT = re.compile(r"(?:\w+_)?PORT")
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")


class Assignment(Struct, frozen=True, kw_only=True):
    """One key set by one source.

    Attributes:
        path: where it belongs.
        leaf: the setting there.
        value: as written, not yet converted.
        origin: the source.
    """

    path: KeyPath
    leaf: Leaf
    value: Any
    origin: Origin


class Sources:
    """What the sources said, in the order they were read.

    Attributes:
        assignments: every key set, also more than once.
        entries: user-named tables that exist although no key in them may be set, with their origin.
        problems: what could not be placed.
    """

    def __init__(self, root: Table) -> None:
        self._root = root
        self.assignments: list[Assignment] = []
        self.entries: dict[KeyPath, Origin] = {}
        self.problems: list[Finding] = []

    def read_file(self, file: Path) -> None:
        """Read a TOML file; whatever is wrong with it becomes a problem."""
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            self._complain((), f"cannot read the configuration file: {reason}", Origin("file", str(file)))
            return
        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            at = re.search(r"at line (\d+)", str(error))
            line = int(at[1]) if at else text.count("\n") + 1
            self._complain((), f"not valid TOML: {error}", Origin("file", str(file), line))
            return
        lines = locate_keys(text)

        def origin_at(path: KeyPath) -> Origin:
            known = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in lines), ())
            return Origin("file", str(file), lines.get(known, 1))

        self._place(self._root, (), document, origin_at)

    def read_overrides(self, overrides: Sequence[str]) -> None:
        """Read `--set section.key=value` arguments."""
        for number, override in enumerate(overrides, start=1):
            key, separator, text = override.partition("=")
            path = _parse_key(key) if separator else None
            if path is None:
                # The argument itself may be a secret in the wrong place: it is not repeated.
                self._complain((), f"argument {number} is not section.key=value", Origin("cli"))
                continue
            origin = Origin("cli")
            node, depth = descend(self._root, path)
            if depth < len(path):
                self._reject_key(node, path[: depth + 1], origin)
            else:
                self._place(node, path, _parse_text(node, text), _always(origin))

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Read `GATEWAY_<SECTION>__<KEY>` and the aliases; read it last, so that it finds the named entries."""
        aliases = {leaf.extra["env"]: path for path, leaf in leaves(self._root) if "env" in leaf.extra}
        for name, text in sorted(environ.items()):
            origin = Origin("env", name)
            if name in aliases:
                path: KeyPath | None = aliases[name]
            elif name.startswith(ENV_PREFIX) and name != FILE_VARIABLE and not _is_service_link(name, text):
                path = self._find_label(name.removeprefix(ENV_PREFIX).split("__"))
            else:
                continue
            if path is None:
                self._complain((), f"unknown variable{self._suggest_variable(name)}", origin)
            else:
                node, _ = descend(self._root, path)
                self._place(node, path, _parse_text(node, text), _always(origin))

    def _place(self, node: Node, path: KeyPath, value: Any, origin_at: Callable[[KeyPath], Origin]) -> None:
        if isinstance(node, Leaf):
            self.assignments.append(Assignment(path=path, leaf=node, value=value, origin=origin_at(path)))
            return
        if not isinstance(value, dict):
            self._complain(path, f"expected a table, got {toml_type(value)}", origin_at(path))
            return
        if isinstance(node, Table) and isinstance(descend(self._root, path[:-1])[0], Entries):
            self.entries[path] = origin_at(path)
        for name, child in value.items():
            below = (*path, name)
            if isinstance(node, Entries):
                self._place(node.item, below, child, origin_at)
            elif name in node.fields:
                self._place(node.fields[name], below, child, origin_at)
            else:
                self._reject_key(node, below, origin_at(below))

    def _reject_key(self, node: Node, path: KeyPath, origin: Origin) -> None:
        known = list(node.fields) if isinstance(node, Table) else []
        hint = suggest(path[-1], known)
        if not hint:
            elsewhere = [format_path(other) for other, _ in leaves(self._root) if other[-1] == path[-1]]
            hint = f" (did you mean {elsewhere[0]}?)" if elsewhere else ""
        # The value is left out: it may be a secret under a misspelt name.
        self._complain(path, f"unknown {'key' if len(path) > 1 else 'section'}{hint}", origin)

    def _find_label(self, labels: Sequence[str]) -> KeyPath | None:
        node: Node = self._root
        path: KeyPath = ()
        for label in labels:
            name: str | None = None
            if isinstance(node, Table):
                name = next((name for name in node.fields if env_label(name) == label), None)
                node = node.fields[name] if name else node
            elif isinstance(node, Entries) and label == label.upper():
                known = (*self.entries, *(item.path for item in self.assignments))
                written = (other[len(path)] for other in known if other[: len(path)] == path)
                name = next((name for name in written if env_label(name) == label), label.lower())
                node = node.item
            if not name:
                return None
            path = (*path, name)
        return path

    def _suggest_variable(self, name: str) -> str:
        known = [env_name(path) for path, _ in leaves(self._root)]
        prefix = re.match(rf"{ENV_PREFIX}UPSTREAMS__[^_]+(?:_[^_]+)*__", name)
        if prefix:
            known += [prefix[0] + env_label(path[-1]) for path, _ in leaves(self._root) if path[0] == "upstream"]
        return suggest(name, known)

    def _complain(self, path: KeyPath, message: str, origin: Origin) -> None:
        self.problems.append(Finding(path=format_path(path), message=message, source=str(origin)))


def _always(origin: Origin) -> Callable[[KeyPath], Origin]:
    return lambda _: origin


def locate_keys(text: str) -> dict[KeyPath, int]:
    """Return the line of every table and key of a valid TOML document.

    A statement ends at the first line break at which it is a valid document of its own, so the TOML parser itself
    tells where each one starts.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    statement: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        statement.append(line)
        try:
            parsed = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue
        start = number - len(statement) + 1
        paths = list(_walk_keys(parsed))
        is_header = statement[0].lstrip().startswith("[")
        for path in paths:
            lines.setdefault(path if is_header else (*table, *path), start)
        table = paths[-1] if is_header else table
        statement.clear()
    return lines


def _walk_keys(value: Any) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield (name,)
            yield from ((name, *below) for below in _walk_keys(child))


def _parse_key(key: str) -> KeyPath | None:
    try:
        paths = list(_walk_keys(tomllib.loads(f"{key} = 0")))
    except (ValueError, RecursionError):
        return None
    return paths[-1] if paths and "\n" not in key else None


def _parse_text(node: Node, text: str) -> Any:
    """Return a TOML value; a text that is none, such as a bare `8MiB`, stays a string."""
    if isinstance(node, Leaf) and node.textual:
        return text
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


def _is_service_link(name: str, text: str) -> bool:
    rest = name.removeprefix(ENV_PREFIX)
    if "__" in rest or not _SERVICE_LINK.fullmatch(rest):
        return False
    # A forgotten underscore, as in GATEWAY_SERVER_PORT=9000, must not pass for a link.
    return not _SERVICE_PORT.fullmatch(rest) or rest.endswith("SERVICE_PORT") or bool(_SERVICE_ADDRESS.match(text))
