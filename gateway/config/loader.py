"""Join the sources into one configuration, or say everything that is wrong with them."""

import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gateway.config.checks import Review
from gateway.config.findings import DEFAULT, ConfigError, Finding, KeyPath, Origin
from gateway.config.schema import GatewayConfig
from gateway.config.sources import FILE_VARIABLE, Assignment, Sources
from gateway.config.tree import Entries, Leaf, Table, descend, format_path, gateway_tree, walk

_RANK: Final = ("default", "file", "env", "cli")
_SECRET_FILE_LIMIT: Final = 65_536


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """A configuration that can be used.

    Attributes:
        config: the values.
        origins: dotted path of every setting to where its value was written.
        warnings: combinations that work but surprise.
        file: the file that was read, or None.
    """

    config: GatewayConfig
    origins: Mapping[str, Origin]
    warnings: tuple[Finding, ...]
    file: Path | None


def load_config(
    file: Path | None = None, environ: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> LoadedConfig:
    """Load the configuration; per key the command line beats the environment, which beats the file.

    A secret `<key>` and its `<key>_file` count as one key.

    Args:
        file: a TOML file; None takes the one that `GATEWAY_CONFIG` names, if any.
        environ: the environment; None means none.
        overrides: `section.key=value` each.

    Raises:
        ConfigError: with every problem found.
    """
    environ = environ or {}
    if file is None and environ.get(FILE_VARIABLE):
        file = Path(environ[FILE_VARIABLE])
    root = gateway_tree()
    sources = Sources(root)
    if file is not None:
        sources.read_file(file)
    sources.read_overrides(overrides)
    sources.read_environment(environ)

    settling = _Settling(root, sources)
    config = settling.build()
    review = Review(config, settling.origins)
    review.run()
    problems = [*sources.problems, *settling.problems]
    problems += [finding for finding, paths in review.problems if not paths & settling.unusable]
    warnings = [*settling.warnings]
    warnings += [finding for finding, paths in review.warnings if not paths & settling.unusable]
    if problems:
        raise ConfigError(problems, warnings)
    origins = {format_path(path): settling.origins.get(path, DEFAULT) for path, _, _ in walk(root, config)}
    return LoadedConfig(config=config, origins=origins, warnings=tuple(warnings), file=file)


class _Settling:
    """Settles on one value per key and builds the structs.

    Attributes:
        origins: origin of every key and named table that somebody set.
        unusable: keys whose value is wrong; the default stands in, so that the other checks can still run.
    """

    def __init__(self, root: Table, sources: Sources) -> None:
        self._root = root
        self._values: dict[KeyPath, Any] = {}
        self.origins: dict[KeyPath, Origin] = dict(sources.entries)
        self.unusable: set[KeyPath] = set()
        self.problems: list[Finding] = []
        self.warnings: list[Finding] = []
        by_source: dict[tuple[KeyPath, str], list[Assignment]] = defaultdict(list)
        for assignment in sorted(sources.assignments, key=lambda item: _RANK.index(item.origin.kind)):
            self._settle(assignment)
            by_source[assignment.path, assignment.origin.kind].append(assignment)
        for (_, source), assignments in by_source.items():
            if source == "env":
                self._compare_names(assignments)
        for path, origin in list(self.origins.items()):
            self._read_twin(path, origin)

    def build(self) -> GatewayConfig:
        """Return the configuration."""
        config = self._build_table(self._root, ())
        assert isinstance(config, GatewayConfig)
        return config

    def _settle(self, assignment: Assignment) -> None:
        path = assignment.path
        self.origins[path] = assignment.origin
        try:
            self._values[path] = assignment.leaf.convert(assignment.value)
            self.unusable.discard(path)
        except ValueError as error:
            self._values.pop(path, None)
            self.unusable.add(path)
            self._complain(assignment, str(error))

    def _complain(self, assignment: Assignment, message: str) -> None:
        shown = assignment.leaf.show(assignment.value)
        self.problems.append(
            Finding(path=format_path(assignment.path), message=message, source=str(assignment.origin), value=shown)
        )

    def _compare_names(self, assignments: Sequence[Assignment]) -> None:
        """One key may have two variables; they must agree."""
        first, *others = assignments
        for other in others:
            try:
                equal = first.leaf.convert(first.value) == other.leaf.convert(other.value)
            except ValueError:
                continue  # reported already, by its own name
            if not equal:
                self._complain(other, f"{first.origin.name} sets the same key to {first.leaf.show(first.value)}")

    def _read_twin(self, path: KeyPath, origin: Origin) -> None:
        """Where `<key>_file` is set for a secret `<key>`, read the secret."""
        key = (*path[:-1], path[-1].removesuffix("_file"))
        leaf, depth = descend(self._root, key)
        named, _ = descend(self._root, path)
        if isinstance(named, Leaf) and named.secret:
            return  # an entry that its owner named so
        if key == path or depth < len(key) or not isinstance(leaf, Leaf) or not leaf.secret or path in self.unusable:
            return
        name = format_path(path)
        written = self.origins.get(key, DEFAULT)
        if _RANK.index(written.kind) > _RANK.index(origin.kind):
            # The weaker source gives way whole: a file named there is neither read nor shown.
            del self.origins[path], self._values[path]
            return
        if written.kind == origin.kind:
            message = f"{format_path(key)} is set as well ({written}); keep one of the two"
            self.problems.append(Finding(path=name, message=message, source=str(origin)))
            self.unusable.add(key)
            return
        self.origins[key] = origin
        self.unusable.discard(key)
        file = Path(self._values[path])
        try:
            text, world_readable = _read_secret(file)
            self._values[key] = leaf.convert(text)
        except (OSError, ValueError) as error:
            reason = (error.strerror or "it cannot be read") if isinstance(error, OSError) else str(error)
            self.problems.append(Finding(path=name, message=f"{file}: {reason}", source=str(origin)))
            self.unusable.add(key)
            return
        if world_readable:
            message = f"{file} can be read by everybody on this machine; chmod o-r it"
            self.warnings.append(Finding(path=name, message=message, source=str(origin)))

    def _build_table(self, table: Table, path: KeyPath) -> Struct:
        values: dict[str, Any] = {}
        for name, node in table.fields.items():
            below = (*path, name)
            if isinstance(node, Leaf):
                if below in self._values:
                    values[name] = self._values[below]
            elif isinstance(node, Entries):
                values[name] = dict(self._build_entries(node, below))
            elif self._names_below(below) or not (node.optional and self._names_below((*path, f"{name}s"))):
                # An optional table gives way to its plural, as [upstream] does to [upstreams].
                values[name] = self._build_table(node, below)
        return table.struct(**values)

    def _build_entries(self, entries: Entries, path: KeyPath) -> Iterator[tuple[str, Any]]:
        for name in self._names_below(path):
            below = (*path, name)
            if isinstance(entries.item, Table):
                yield name, self._build_table(entries.item, below)
            elif below in self._values:
                yield name, self._values[below]

    def _names_below(self, path: KeyPath) -> list[str]:
        depth = len(path)
        return list(
            dict.fromkeys(known[depth] for known in self.origins if known[:depth] == path and len(known) > depth)
        )


def _read_secret(file: Path) -> tuple[str, bool]:
    """Return the content without its last line break, and whether everybody may read the file."""
    with file.open("rb") as stream:
        world_readable = bool(os.fstat(stream.fileno()).st_mode & stat.S_IROTH)
        content = stream.read(_SECRET_FILE_LIMIT + 1)
    if len(content) > _SECRET_FILE_LIMIT:
        raise ValueError(f"holds more than {_SECRET_FILE_LIMIT} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r"), world_readable
