"""Write what follows from the schema: `gateway.toml`, the JSON Schema and the reference page.

`python -m gateway.config.render` writes all three into the checkout.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from gateway.config.findings import KeyPath
from gateway.config.schema import GatewayConfig
from gateway.config.secret import Secret
from gateway.config.tree import Entries, Leaf, Node, Table, env_name, format_path, gateway_tree

_WIDTH = 118
_PLACEHOLDER = "<NAME>"
_LABEL = "LABEL"

_TOML_HEAD = """\
#:schema ./gateway.schema.json
#
# Responses Gateway. Every key is listed with its default; uncomment what you want to change.
# Sizes: bytes, or "10MB", "8MiB". Durations: seconds, or "250ms", "30s", "5m", "1h", "30d".
# `gateway config check FILE` finds mistakes; `gateway config show --origin` tells where each value comes from.
# What applies on reload is read again on SIGHUP; every other key needs a restart.
"""

_REFERENCE_HEAD = """\
<!-- Written by `python -m gateway.config.render`; change the schema, not this page. -->

# Configuration

The gateway reads one TOML file, named by `--config` or by the environment variable `GATEWAY_CONFIG`; without either it
runs on the defaults. For each key on its own, the first of these that sets it wins:

1. `--set section.key=value` on the command line, as often as needed
2. the environment variable of the key
3. the file
4. the default

| kind | how it is written |
|---|---|
| size | a positive whole number of bytes, or a string with `B`, `KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`: `"8MiB"` |
| duration | a number of seconds, or a string with `ms`, `s`, `m`, `h` or `d`: `"250ms"`, `"30s"`, `"30d"` |
| secret | a string that is never shown; `<key>_file` names a file that holds it instead |

In the environment and after `--set`, strings are taken as they stand and every other value is written as in TOML; a
size or a duration needs no quotes there. Each level of tables is one `__` in a variable's name, and the names you give
to entries are upper-cased, with `_` for `-`: `GATEWAY_UPSTREAMS__FAST_GPU__URL`. A `GATEWAY_` variable that names no
key is an error, except the addresses that Kubernetes and Docker add for a service called `gateway`. Paths of files are
relative to the working directory. Of a secret and its `<key>_file` the one from the stronger source wins; one source
that sets both is an error.

`gateway config check` reports every problem at once, `gateway config show --origin` tells where each value comes from,
`gateway config init` writes a commented file, and `gateway config schema` prints the JSON Schema for editors.

On SIGHUP the gateway reads the same sources again and applies the keys that say so, without interrupting anything; see
[Change the configuration without a restart](../howto/reload.md).
"""


def render_toml() -> str:
    """Return a configuration file in which every key is commented out, with its description and default."""
    lines = [_TOML_HEAD]
    root = gateway_tree()
    for name, node in root.fields.items():
        if isinstance(node, Table):
            lines += _render_table(name, node)
        elif isinstance(node, Entries):
            lines += ["# Several inference servers instead of [upstream], each with the same keys:"]
            lines += [f"# [{name}.fast]", '# url = "http://127.0.0.1:8000"', '# models = ["qwen"]', ""]
    return "\n".join(lines).rstrip() + "\n"


def _render_table(name: str, table: Table) -> Iterator[str]:
    yield from _comment(table.description)
    yield f"[{name}]"
    yield ""
    for key, child in table.fields.items():
        if isinstance(child, Table):
            yield from _render_table(f"{name}.{key}", child)
        elif isinstance(child, Entries) and isinstance(child.item, Table):
            yield from _render_example(f"{name}.{key}", child.item)
        else:
            yield from _comment(_describe(child))
            yield f"# {key} = {_toml_default(child)}"
            yield ""


def _render_example(name: str, item: Table) -> Iterator[str]:
    yield from _comment(item.description)
    yield f"# [{name}.{_LABEL}]"
    yield ""
    for key, child in item.fields.items():
        yield from _comment(_describe(child))
        # Not as the keys above: uncommented alone, it would stand in the wrong table.
        yield f"#   {key} = {_toml_default(child)}"
        yield ""


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]


def _describe(node: Node) -> str:
    words = [node.description]
    if isinstance(node, Leaf) and node.choices:
        words.append(f"One of: {', '.join(node.choices)}.")
    if _is_live(node):
        words.append("Applies on reload.")
    return " ".join(words)


def _is_live(node: Node) -> bool:
    return not isinstance(node, Table) and node.live


def _toml_default(node: Node) -> str:
    if isinstance(node, Entries):
        return "{}"
    assert isinstance(node, Leaf)
    return '""' if node.default is None else to_toml_value(written_form(node, node.default))


def written_form(node: Node, value: Any) -> Any:
    """Return a value as a person would write it: `"8MiB"` for a size; secrets are redacted."""
    if isinstance(value, Secret):
        return value.redacted
    if isinstance(node, Leaf) and (render := node.extra.get("render")):
        return render(value)
    return list(value) if isinstance(value, tuple) else value


def to_toml_value(value: Any) -> str:
    """Return one value in TOML, an array in one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml_value, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def render_schema() -> str:
    """Return the JSON Schema, draft 2020-12."""
    schema = msgspec.json.schema(GatewayConfig, schema_hook=_describe_secret)
    for definition in schema["$defs"].values():
        for entry in definition["properties"].values():
            # A pattern on a number marks the kinds that may be written with a unit.
            if "pattern" in entry and entry.get("type") in {"integer", "number"}:
                entry["type"] = [entry["type"], "string"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Responses Gateway configuration"}
    return json.dumps({**head, **schema}, indent=2) + "\n"


def _describe_secret(kind: type) -> dict[str, Any]:
    if issubclass(kind, Secret):
        return {"type": "string", "minLength": 1}
    raise NotImplementedError(kind)


def render_reference() -> str:
    """Return the reference page in Markdown: a heading for each section and each key."""
    parts = [_REFERENCE_HEAD]
    for name, node in gateway_tree().fields.items():
        if isinstance(node, Table):
            parts += _render_section((name,), node)
        elif isinstance(node, Entries):
            variables = env_name((name, _PLACEHOLDER, "<KEY>"))
            parts += [
                f"## `[{name}.<name>]`\n",
                "Several inference servers, each with the keys of `[upstream]`; not together with `[upstream]`.",
                f"Their variables are `{variables}`.\n",
            ]
    return "\n".join(parts).rstrip() + "\n"


def _render_section(path: KeyPath, table: Table) -> Iterator[str]:
    yield f"## `[{'.'.join(path)}]`\n"
    yield f"{table.description}\n"
    for key, child in table.fields.items():
        if isinstance(child, Table):
            yield from _render_section((*path, key), child)
        elif isinstance(child, Entries) and isinstance(child.item, Table):
            yield from _render_section((*path, key, _LABEL), child.item)
        else:
            yield from _render_key((*path, key), child)


def _render_key(path: KeyPath, node: Node) -> Iterator[str]:
    yield f"### `{format_path(path)}`\n"
    yield f"{node.description}\n"
    if isinstance(node, Leaf):
        choices = f", one of {', '.join(f'`{choice}`' for choice in node.choices)}" if node.choices else ""
        yield f"- Type: {node.kind}{choices}{_bounds(node)}"
        yield f"- Default: {'none' if node.default is None else f'`{_toml_default(node)}`'}"
        aliases = [f" or `{node.extra['env']}`"] if "env" in node.extra else []
        yield f"- Environment: `{env_name(path)}`{''.join(aliases)}"
    else:
        yield "- Type: table of strings"
        yield "- Default: `{}`"
        yield f"- Environment: `{env_name((*path, _PLACEHOLDER))}`, or `{env_name(path)}` with the whole table"
    yield f"- Applies: {'on reload' if _is_live(node) else 'after a restart'}\n"


def _bounds(leaf: Leaf) -> str:
    info = msgspec.inspect.type_info(leaf.type)
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    if not isinstance(info, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return ""
    bounds = {"above": info.gt, "at least": info.ge, "at most": info.le}
    words = [f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None]
    return "".join(f", {word}" for word in words)


def written_files() -> Mapping[Path, str]:
    """Return the generated files by their path in the checkout."""
    return {
        Path("config/gateway.toml"): render_toml(),
        Path("config/gateway.schema.json"): render_schema(),
        Path("docs/reference/configuration.md"): render_reference(),
    }


def main() -> None:
    """Write the generated files into the checkout this module belongs to."""
    checkout = Path(__file__).parents[2]
    for path, text in written_files().items():
        (checkout / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
