"""What the page makes of a document."""

from typing import Any

import pytest

from gateway.transport.openapi.page import _inline, _kind, _prose, render_page


def make_document(**operation: Any) -> dict[str, Any]:
    described = {
        "operationId": "op", "summary": "S", "description": "D", "tags": ["T"], "parameters": [], "responses": {},
        **operation,
    }  # fmt: skip
    return {
        "info": {"title": "A <b>", "version": "1", "description": "About"},
        "tags": [{"name": "T", "description": "t"}],
        "paths": {"/p/{x}": {"get": described}},
        "components": {"schemas": {}, "parameters": {"Id": {"name": "id", "in": "header", "schema": {}}}},
    }


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "#/components/schemas/Item"}, '<a href="#schema-Item">Item</a>'),
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string | null"),
        ({}, "anything"),
        ({"type": "array"}, "array"),
        ({"type": "array", "items": {"type": "integer"}}, "array of integer"),
        ({"const": "<"}, "<code>&quot;&lt;&quot;</code>"),
        ({"enum": [False, None]}, "<code>false</code> | <code>null</code>"),
        ({"enum": list(range(13))}, " | ".join(f"<code>{n}</code>" for n in range(12)) + " | …"),
        ({"oneOf": [{"type": "string"}, {"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"allOf": [{"type": "object"}, {"properties": {}}]}, "object"),
        ({"type": "object", "properties": {"type": {"const": 1}}}, "object of type <code>1</code>"),
    ],
    ids=str,
)
def test_kinds_in_words(schema: dict[str, Any], words: str) -> None:
    assert _kind(schema) == words


def test_prose_is_escaped_and_marked() -> None:
    assert _inline("a `b<c` & d") == "a <code>b&lt;c</code> &amp; d"
    assert _prose("one\n\n* `a`: x\n* b") == "<p>one</p><ul><li><code>a</code>: x</li><li>b</li></ul>"


def test_nothing_of_the_document_becomes_markup() -> None:
    page = render_page(make_document(summary="<script>", description='"<i>'), "/o.json")
    assert "<script>" not in page
    assert "<i>" not in page
    assert "A &lt;b&gt; 1" in page


def test_parameters_are_resolved() -> None:
    page = render_page(make_document(parameters=[{"$ref": "#/components/parameters/Id"}]), "/o.json")
    assert "<code>id</code> <span class=kind>in the header: anything</span>" in page


def test_examples_of_a_body_are_shown() -> None:
    content = {"application/json": {"schema": {"type": "object"}, "examples": {"one": {"value": {"a": "<"}}}}}
    page = render_page(make_document(requestBody={"content": content}), "/o.json")
    assert '<p>one:</p><pre>{\n  "a": "&lt;"\n}</pre>' in page
