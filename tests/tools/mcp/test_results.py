"""Results of tools as the model and the client are told them."""

import pytest

from gateway.tools.mcp.results import read_result

TEXT = {"type": "text", "text": "words"}


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"content": [TEXT, TEXT]}, "words\nwords"),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, "words"),
        ({"content": [], "structuredContent": {"a": 1}}, '{"a":1}'),
        ({"structuredContent": [1]}, "[1]"),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}]},
            "[image, image/png, 5 bytes, not shown]",
        ),
        ({"content": [{"type": "audio"}]}, "[audio, of unknown type, 0 bytes, not shown]"),
        ({"content": [{"type": "resource", "resource": {"uri": "f:a", "text": "x"}}]}, "f:a:\nx"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "f:a", "mimeType": "a/b", "blob": "aGk="}}]},
            "[resource f:a, a/b, 2 bytes, not shown]",
        ),
        ({"content": [{"type": "resource", "resource": 5}]}, "[resource None, of unknown type, 0 bytes, not shown]"),
        ({"content": [{"type": "resource_link", "uri": "f:a", "name": "n"}]}, "[n: f:a]"),
        ({"content": [5, {"type": "new"}, {}]}, "The tool returned nothing."),
        ({"content": "no list"}, "The tool returned nothing."),
        ({}, "The tool returned nothing."),
    ],
)  # fmt: skip
def test_content_becomes_text(result, told):
    read = read_result(result)
    assert (read.output, read.failed) == (told, False)
    assert read.fields == {"status": "completed", "output": told, "error": None}
    assert read.size > 0


@pytest.mark.parametrize(("content", "told"), [([TEXT], "words"), ([], "The tool failed and did not say why.")])
def test_an_error_is_a_failed_call(content, told):
    read = read_result({"content": content, "isError": True})
    assert (read.output, read.failed) == (told, True)
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": told}]}
    assert read.fields == {"status": "failed", "output": None, "error": error}


def test_secrets_are_not_repeated():
    text = {"type": "text", "text": "key is s3cret-key; 1234567 is not one"}
    assert read_result({"content": [text]}, ["s3cret-key", "1234567"]).output == "key is ***; 1234567 is not one"
