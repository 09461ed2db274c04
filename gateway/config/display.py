"""A configuration as it may be shown: written as in a file, secrets redacted."""

from collections.abc import Mapping
from typing import Any

from gateway.config.findings import KeyPath, Origin
from gateway.config.render import written_form
from gateway.config.schema import GatewayConfig
from gateway.config.tree import Leaf, Node, format_path, gateway_tree, walk


def show_tables(config: GatewayConfig) -> dict[str, Any]:
    """Return the set values as nested tables; a secret read from a file is left to its `_file` key."""
    settings: list[tuple[KeyPath, Node, Any]] = list(walk(gateway_tree(), config))
    present = {path for path, _, value in settings if value is not None}
    tree: dict[str, Any] = {}
    for path, node, value in settings:
        twin = (*path[:-1], f"{path[-1]}_file")
        if value is None or (isinstance(node, Leaf) and node.secret and twin in present):
            continue
        table = tree
        for name in path[:-1]:
            table = table.setdefault(name, {})
        table[path[-1]] = written_form(node, value)
    return tree


def show_settings(config: GatewayConfig, origins: Mapping[str, Origin]) -> dict[str, dict[str, Any]]:
    """Return `value` and `origin` of every key, by dotted path; the value is None where there is none.

    Args:
        config: the values.
        origins: by dotted path; that of a key it does not hold is None.
    """
    shown: dict[str, dict[str, Any]] = {}
    for path, node, value in walk(gateway_tree(), config):
        origin = origins.get(format_path(path))
        shown[format_path(path)] = {
            "value": None if value is None else written_form(node, value),
            "origin": None if origin is None else str(origin),
        }
    return shown
