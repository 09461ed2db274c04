"""What a configuration that was read again changes in a running gateway, and what of it has to wait for a restart."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct, structs

from gateway.config.findings import KeyPath
from gateway.config.render import written_form
from gateway.config.schema import GatewayConfig, McpServerConfig
from gateway.config.tree import Entries, Leaf, Node, Table, format_path, gateway_tree, shorten

T = TypeVar("T")

_NONE: Final = "none"
_UPSTREAMS: Final = "upstreams"


class Change(Struct, frozen=True, kw_only=True):
    """One key with another value; secrets are redacted.

    Attributes:
        path: dotted path of the key, or of an inference server that came or went.
        old: the value in effect so far, as it may be shown.
        new: the value that was read, as it may be shown.
    """

    path: str
    old: str
    new: str


class Reload(Struct, frozen=True, kw_only=True):
    """What follows from reading the configuration again.

    Attributes:
        config: what is in effect from now on: the running configuration with the applied changes.
        applied: changes that are in it.
        pending: changes that need a restart, and those that must not go ahead of them.
    """

    config: GatewayConfig
    applied: tuple[Change, ...]
    pending: tuple[Change, ...]


class _Setting(Struct, frozen=True):
    node: Leaf | Entries
    value: Any

    @property
    def waits_for(self) -> frozenset[str]:
        return frozenset(self.node.extra.get("waits_for", ()) if isinstance(self.node, Leaf) else ())

    def show(self) -> str:
        if self.value is None:
            return _NONE
        if isinstance(self.node, Leaf):
            return self.node.show(self.value if self.node.secret else written_form(self.node, self.value))
        return shorten(json.dumps(self.value, ensure_ascii=False))


def compare(running: GatewayConfig, read: GatewayConfig) -> Reload:
    """Tell which changes apply now and which wait for a restart.

    Inference servers change together or not at all: while one of them waits, because its address is another or because
    it is new, no key of any of them applies. Else a secret could go to a server it was not meant for, and a model could
    leave one server before the other is there to take it.

    Args:
        running: the configuration in effect.
        read: the checked configuration that is wanted.
    """
    before, after = _list_settings(running), _list_settings(read)
    changed = [path for path in after if path in before and before[path].value != after[path].value]
    waiting = {path for path in changed if not after[path].node.live}
    moved = list(_list_moved(running, read))
    if moved or any(path[0] == _UPSTREAMS for path in waiting):
        waiting |= {path for path in changed if path[0] == _UPSTREAMS}
    named = {format_path(path) for path in waiting}
    waiting |= {path for path in changed if after[path].waits_for & named}

    several = bool(running.upstreams or read.upstreams)
    changes = {
        path: Change(path=_name(path, several=several), old=before[path].show(), new=after[path].show())
        for path in changed
    }
    applied = [path for path in changed if path not in waiting]
    return Reload(
        config=_merge(running, read, applied),
        applied=tuple(changes[path] for path in applied),
        pending=(*moved, *_list_joined(running, read), *(changes[path] for path in changed if path in waiting)),
    )


def _list_settings(config: GatewayConfig) -> dict[KeyPath, _Setting]:
    """Return every key by its path; the one server of `[upstream]` is listed as one of `[upstreams]`."""
    alike = structs.replace(config, upstream=None, upstreams=config.upstream_map())
    return dict(_walk(gateway_tree(), alike, ()))


def _walk(node: Node, value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, _Setting]]:
    if isinstance(node, Table):
        for name, child in node.fields.items() if value is not None else ():
            yield from _walk(child, getattr(value, name), (*path, name))
    elif isinstance(node, Entries) and not isinstance(node.item, Leaf):
        for name, item in value.items():
            yield from _walk(node.item, item, (*path, name))
    else:
        yield path, _Setting(node, value)


def _list_moved(running: GatewayConfig, read: GatewayConfig) -> Iterator[Change]:
    """Yield the inference servers that are in one configuration only, each with its address."""
    old, new = running.upstream_map(), read.upstream_map()
    for name in {**old, **new}:
        if (name in old) != (name in new):
            urls = (servers[name].url if name in servers else _NONE for servers in (old, new))
            yield Change(path=format_path((_UPSTREAMS, name)), old=next(urls), new=next(urls))


def _list_joined(running: GatewayConfig, read: GatewayConfig) -> Iterator[Change]:
    """Yield the MCP servers that are in one configuration only, each with where it is."""
    old, new = running.mcp.servers, read.mcp.servers
    for label in {**old, **new}:
        if (label in old) != (label in new):
            places = (_place(servers[label]) if label in servers else _NONE for servers in (old, new))
            yield Change(path=format_path(("mcp", "servers", label)), old=next(places), new=next(places))


def _place(server: McpServerConfig) -> str:
    return shorten(server.url or server.command or _NONE)


def _name(path: KeyPath, *, several: bool) -> str:
    return format_path(path if several or path[0] != _UPSTREAMS else ("upstream", *path[2:]))


def _merge(running: GatewayConfig, read: GatewayConfig, applied: Sequence[KeyPath]) -> GatewayConfig:
    merged = running
    for path in applied:
        if path[0] == _UPSTREAMS:
            merged = structs.replace(merged, upstream=read.upstream, upstreams=read.upstreams)
        else:
            merged = _adopt(merged, read, path)
    return merged


def _adopt(kept: T, read: T, path: KeyPath) -> T:
    """Return a table with what is read at one path; a map of names is read as a whole."""
    if not path or not isinstance(kept, Struct):
        return read
    name, *rest = path
    return structs.replace(kept, **{name: _adopt(getattr(kept, name), getattr(read, name), tuple(rest))})
