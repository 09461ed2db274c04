"""Names and results of the gateway's own tools."""

import pytest
from harness.tools import tool

from gateway.protocol.hosted import fail_call, name_function, read_queries


@pytest.mark.parametrize(
    ("label", "name", "expected"), [("s", "look", "mcp__s__look"), ("my-server", "a_b", "mcp__my-server__a_b")]
)
def test_a_plain_name_is_kept(label, name, expected):
    assert name_function(label, name) == expected


def test_names_are_what_engines_accept_and_tell_tools_apart():
    given = [
        ("s", "a.b"),
        ("s", "a_b"),
        ("s", "a/b"),
        ("s", "é"),
        ("s", "x" * 80),
        ("s", "x" * 81),
        ("s" * 70, "y"),
        ("", ""),
    ]
    names = [name_function(*one) for one in given]
    assert len(set(names)) == len(given)
    assert all(len(name) <= 64 and name.replace("-", "_").isascii() and name.isidentifier() for name in names)
    assert names == [name_function(*one) for one in given]


def test_a_failed_call_tells_why_in_the_words_of_its_kind():
    failed = fail_call(tool("look"), "x" * 5000)
    assert (failed.failed, failed.size, len(failed.output)) == (True, 2000, 2000)
    assert failed.fields["error"]["content"][0]["text"] == failed.output
    assert fail_call(tool("web_search", "", "web_search_call"), "No.").fields == {"status": "failed"}


@pytest.mark.parametrize(
    ("arguments", "queries"),
    [
        ('{"queries": ["a", "", 5, "b"]}', ["a", "b"]),
        ('{"query": "a"}', ["a"]),
        ('{"queries": "a"}', ["a"]),
        ("{}", []),
        ("[1]", []),
        ("cats", []),
        ("", []),
    ],
)
def test_queries_are_read_from_what_models_write(arguments, queries):
    assert read_queries(arguments) == queries
