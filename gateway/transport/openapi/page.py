"""The OpenAPI document as one HTML page: no script, no other file, readable on a phone."""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final

from gateway.transport.openapi.schemas import Schema

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --link: #0b62c4; }
@media (prefers-color-scheme: dark) { :root { --link: #7db7ff; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 0 1rem 4rem; }
body { overflow-wrap: anywhere; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
h3 { margin-top: 2.5rem; }
code { font: .9em ui-monospace, monospace; background: var(--soft); padding: .1em .25em; border-radius: .2em; }
pre { background: var(--soft); padding: .5rem; overflow-x: auto; }
a { color: var(--link); }
nav ul { list-style: none; padding: 0; }
dl { margin: .5rem 0; }
dt { margin-top: .5rem; }
dd { margin: 0 0 0 1rem; }
dd p, dd ul { margin: .1rem 0; }
.kind { font-size: .9em; }
""".strip()

POLICY: Final = (
    "default-src 'none'; "
    f"style-src 'sha256-{b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: its own style and nothing else."""

_MARKED = re.compile(r"`([^`]+)`")
_MAX_CHOICES = 12


def render_page(document: Mapping[str, Any], source: str) -> str:
    """Return the page.

    Args:
        document: a decoded OpenAPI document.
        source: where the document itself is served.
    """
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    sections = [*_contents(document), *_operations(document), *_schemas(document["components"]["schemas"])]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<header><h1>{title}</h1>{_prose(info['description'])}",
            f'<p>For programs: <a href="{escape(source)}">{escape(source)}</a></p></header>',
            *sections,
            "</body></html>\n",
        ]
    )


def _walk(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def _contents(document: Mapping[str, Any]) -> Iterator[str]:
    yield "<nav><h2>Contents</h2>"
    for tag in document["tags"]:
        yield f"<p><b>{escape(tag['name'])}</b>: {_inline(tag['description'])}</p><ul>"
        for path, method, operation in _walk(document):
            if tag["name"] in operation["tags"]:
                yield f'<li><a href="#{operation["operationId"]}"><code>{method} {escape(path)}</code></a></li>'
        yield "</ul>"
    yield '<p><a href="#schemas">Schemas</a></p></nav>'


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    components = document["components"]
    yield "<main><h2>Operations</h2>"
    for path, method, operation in _walk(document):
        yield f'<section id="{operation["operationId"]}"><h3><code>{method} {escape(path)}</code></h3>'
        yield f"<p><b>{escape(operation['summary'])}</b></p>{_prose(operation['description'])}"
        yield "<h4>Parameters</h4>" + _parameters(operation["parameters"], components["parameters"])
        if body := operation.get("requestBody"):
            yield f"<h4>Body</h4>{_media(body['content'])}"
            for media in body["content"].values():
                yield from (_example(name, one["value"]) for name, one in media["examples"].items())
        yield "<h4>Answers</h4><dl>"
        yield from (_answer(status, answer) for status, answer in operation["responses"].items())
        yield "</dl></section>"


def _example(name: str, value: Any) -> str:
    return f"<p>{escape(name)}:</p><pre>{escape(json.dumps(value, indent=2), quote=False)}</pre>"


def _answer(status: str, answer: Schema) -> str:
    headers = ", ".join(f"<code>{escape(name)}</code>" for name in answer["headers"])
    told = _prose(answer["description"]) + _media(answer.get("content", {}))
    return f"<dt><code>{status}</code></dt><dd>{told}<p>Headers: {headers}</p></dd>"


def _parameters(parameters: list[Schema], shared: Mapping[str, Schema]) -> str:
    resolved = [shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in parameters]
    return _terms((one["name"], f"in the {one['in']}: {_kind(one['schema'])}", one) for one in resolved)


def _media(content: Mapping[str, Any]) -> str:
    return "".join(f"<p><code>{escape(name)}</code>: {_kind(one['schema'])}</p>" for name, one in content.items())


def _schemas(schemas: Mapping[str, Schema]) -> Iterator[str]:
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in schemas.items():
        yield f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3>{_prose(schema.get("description", ""))}'
        if "properties" in schema:
            yield _properties(schema)
        else:
            yield f"<p class=kind>{_kind(schema)}</p>"
        yield "</section>"
    yield "</main>"


def _properties(schema: Schema) -> str:
    required = schema.get("required", ())
    return _terms(
        (name, _kind(one) + (", required" if name in required else ""), one)
        for name, one in schema["properties"].items()
    )


def _terms(terms: Iterable[tuple[str, str, Schema]]) -> str:
    """Return a list of names, each with its kind, which is HTML, and its description."""
    rows = (
        f"<dt><code>{escape(name)}</code> <span class=kind>{kind}</span></dt>"
        f"<dd>{_prose(described.get('description', ''))}</dd>"
        for name, kind, described in terms
    )
    return f"<dl>{''.join(rows)}</dl>"


def _kind(schema: Schema) -> str:
    """Return what a schema takes, in a few words, with links to the schemas it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    for word in ("oneOf", "anyOf", "allOf"):
        if word in schema and "properties" not in schema:
            kinds = [_kind(one) for one in schema[word] if one.keys() != {"properties"}]
            return (" and " if word == "allOf" else " | ").join(dict.fromkeys(kinds))
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        more = " | …" if len(schema["enum"]) > _MAX_CHOICES else ""
        return " | ".join(map(_literal, schema["enum"][:_MAX_CHOICES])) + more
    if schema.get("type") == "array":
        return f"array of {_kind(schema['items'])}" if "items" in schema else "array"
    if schema.get("type") == "object" and "type" in schema.get("properties", {}):
        return f"object of type {_kind(schema['properties']['type'])}"
    kinds = schema.get("type", "anything")
    return escape(kinds if isinstance(kinds, str) else " | ".join(kinds))


def _literal(value: Any) -> str:
    return f"<code>{escape(json.dumps(value))}</code>"


def _prose(text: str) -> str:
    """Return paragraphs and lists; the documents use no other Markdown but backticks."""
    blocks = []
    for block in filter(None, text.split("\n\n")):
        if block.startswith("* "):
            entries = (f"<li>{_inline(line.removeprefix('* '))}</li>" for line in block.split("\n"))
            blocks.append(f"<ul>{''.join(entries)}</ul>")
        else:
            blocks.append(f"<p>{_inline(block)}</p>")
    return "".join(blocks)


def _inline(text: str) -> str:
    return _MARKED.sub(r"<code>\1</code>", escape(text, quote=False))
