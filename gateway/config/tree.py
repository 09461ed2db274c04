"""The schema as a tree of tables and leaves, the one view that loading and rendering share."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from gateway.config.findings import KeyPath
from gateway.config.schema import GatewayConfig
from gateway.config.secret import REDACTED, Secret, redact_url

ENV_PREFIX = "GATEWAY_"
_SHOWN_CHARACTERS = 120
_WORDS = {"int": "a whole number", "float": "a number", "str": "a string", "array": "an array"}
_TOML_TYPES = {
    dict: "a table",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
}


class Leaf(Struct, frozen=True, kw_only=True):
    """One setting.

    Attributes:
        type: its annotation.
        base: the annotation without metadata and without None.
        description: for people.
        default: the value used when nobody sets it.
        extra: what `kinds` says about it.
    """

    type: Any
    base: Any
    description: str
    default: Any
    extra: Mapping[str, Any]

    @property
    def live(self) -> bool:
        """Whether a reload applies a change."""
        return bool(self.extra.get("live"))

    @property
    def secret(self) -> bool:
        """Whether its value is hidden."""
        return isinstance(self.base, type) and issubclass(self.base, Secret)

    @property
    def textual(self) -> bool:
        """Whether a value outside a file is taken as it stands, not as TOML."""
        return self.secret or self.base is str or get_origin(self.base) is Literal

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values allowed, if there are such."""
        literal = next((part for part in (self.base, *get_args(self.base)) if get_origin(part) is Literal), None)
        return get_args(literal) if literal else ()

    @property
    def kind(self) -> str:
        """What the reference page calls the type."""
        if kind := self.extra.get("kind"):
            return str(kind)
        if get_origin(self.base) is tuple:
            return "array of strings"
        return {bool: "boolean", int: "integer"}.get(self.base, "string")

    def convert(self, value: Any) -> Any:
        """Return the value in its final type.

        Raises:
            ValueError: the value does not fit; the message says what does.
        """
        if parse := self.extra.get("parse"):
            value = parse(value)
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise ValueError(self._explain(value, str(error))) from None

    def _explain(self, value: Any, message: str) -> str:
        if self.choices and isinstance(value, list) == (get_origin(self.base) is tuple):
            given = value if isinstance(value, list) else [value]
            wrong = next((str(item) for item in given if item not in self.choices), "")
            return f"expected one of {', '.join(self.choices)}{suggest(wrong, self.choices)}"
        message = message.partition(" - at ")[0].replace("Expected `", "expected `").replace("`bool`", "a boolean")
        return re.sub(r"`(\w+)(?: \| null)?`", lambda match: _WORDS.get(match[1], match[1]), message)

    def show(self, value: Any) -> str:
        """Return a value, right or wrong, as it may be shown."""
        if self.secret:
            # A text that is no URL may hold its password anywhere, so only what parses as one is shown in part.
            return str(value) if isinstance(value, Secret) else REDACTED
        shown = json.dumps(redact_url(value) if isinstance(value, str) else value, default=str, ensure_ascii=False)
        return shorten(shown)


class Table(Struct, frozen=True, kw_only=True):
    """A table with known keys.

    Attributes:
        struct: the Struct it becomes.
        description: for people.
        fields: its keys.
        optional: whether it may be absent.
    """

    struct: type[Struct]
    description: str
    fields: "Mapping[str, Leaf | Table | Entries]"
    optional: bool = False


class Entries(Struct, frozen=True, kw_only=True):
    """A table whose keys the user names.

    Attributes:
        item: what each entry is.
        description: for people.
        live: whether a reload applies a change of the whole.
    """

    item: "Leaf | Table | Entries"
    description: str
    live: bool = False


Node = Leaf | Table | Entries


def gateway_tree() -> Table:
    """Return the tree of the whole configuration."""
    return _describe_table(GatewayConfig, optional=False)


def _describe(annotation: Any, default: Any) -> Node:
    base, optional, description, extra = _unwrap(annotation)
    if get_origin(base) is Mapping:
        item = _describe(get_args(base)[1], None)
        return Entries(item=item, description=description, live=bool(extra.get("live")))
    if isinstance(base, type) and issubclass(base, Struct):
        return _describe_table(base, optional=optional)
    return Leaf(type=annotation, base=base, description=description, default=default, extra=extra)


def _describe_table(struct: type[Struct], *, optional: bool) -> Table:
    fields = {field.name: _describe(field.type, _default(field)) for field in msgspec.structs.fields(struct)}
    return Table(struct=struct, description=(struct.__doc__ or "").strip(), fields=fields, optional=optional)


def _unwrap(annotation: Any) -> tuple[Any, bool, str, dict[str, Any]]:
    optional, description, extra = False, "", dict[str, Any]()
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *metas = get_args(annotation)
            for meta in metas:
                if isinstance(meta, Meta):
                    description = meta.description or description
                    extra = {**extra, **(meta.extra or {})}
        elif origin in {Union, UnionType}:
            annotation = next(part for part in get_args(annotation) if part is not NoneType)
            optional = True
        else:
            return annotation, optional, description, extra


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default is not NODEFAULT else field.default_factory()


def leaves(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Leaf]]:
    """Yield every setting below a node with its path; user-named entries are left out."""
    if isinstance(node, Leaf):
        yield path, node
    elif isinstance(node, Table):
        for name, child in node.fields.items():
            yield from leaves(child, (*path, name))


def descend(node: Node, path: KeyPath) -> tuple[Node, int]:
    """Return the deepest node on a path that exists, and how many names lead to it."""
    for depth, name in enumerate(path):
        if isinstance(node, Table) and name in node.fields:
            node = node.fields[name]
        elif isinstance(node, Entries):
            node = node.item
        else:
            return node, depth
    return node, len(path)


def walk(node: Node, value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node, Any]]:
    """Yield every setting of a configuration with its value; a map of settings without entries is one itself."""
    if isinstance(node, Leaf) or (isinstance(node, Entries) and isinstance(node.item, Leaf) and not value):
        yield path, node, value
    elif isinstance(node, Entries):
        for name, item in value.items():
            yield from walk(node.item, item, (*path, name))
    elif isinstance(node, Table) and value is not None:
        for name, child in node.fields.items():
            yield from walk(child, getattr(value, name), (*path, name))


def format_path(path: KeyPath) -> str:
    """Return the dotted path as TOML writes it: names with odd characters are quoted."""
    return ".".join(
        name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False) for name in path
    )


def env_label(name: str) -> str:
    """Return how an environment variable spells a name."""
    return name.upper().replace("-", "_")


def env_name(path: KeyPath) -> str:
    """Return the environment variable of a path."""
    return ENV_PREFIX + "__".join(env_label(name) for name in path)


def shorten(text: str) -> str:
    """Return a value's text, cut where it is too long to be shown in a message."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def toml_type(value: Any) -> str:
    """Return what a value is, in the words of TOML."""
    return _TOML_TYPES.get(type(value), f"a {type(value).__name__}")


def suggest(name: str, known: Mapping[str, Any] | tuple[str, ...] | list[str]) -> str:
    """Return ` (did you mean …?)`, or nothing when no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""
