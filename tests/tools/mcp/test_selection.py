"""What of servers' tools a model is offered: names, bounds, filters, and what is reused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.schema import McpConfig
from gateway.protocol.hosted import name_function
from gateway.tools.mcp.declaration import ANY_TOOL, read_declaration
from gateway.tools.mcp.selection import Selection, find_listing, name_tools

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def declare(label: str = "docs", **tool):
    config = McpConfig(allow_private_addresses=True)
    return read_declaration({"server_label": label, "server_url": "http://127.0.0.1", **tool}, "tools[0]", config)


def tool(name: str = "say", **more) -> dict:
    return {"name": name, "inputSchema": SCHEMA, **more}


def test_schemas_and_descriptions_are_passed_on():
    selection = Selection(10, set(), lambda reason: None)
    found = selection.pick(declare(server_description="Docs."), [tool(description="Says.")], ANY_TOOL)
    (offered,) = found.offered
    assert offered.kind == "mcp_approval_request"
    assert offered.function == {
        "type": "function",
        "name": "mcp__docs__say",
        "description": "Says.\n\nDocs.",
        "parameters": SCHEMA,
        "strict": False,
    }
    assert found.tools == [{"name": "say", "description": "Says.", "input_schema": SCHEMA, "annotations": None}]


@pytest.mark.checklist(204)
def test_what_a_model_cannot_take_is_left_out_and_counted():
    reasons: list[str] = []
    selection = Selection(10, {"mcp__docs__taken"}, reasons.append)
    listed = [
        tool(""), tool(5), {"inputSchema": SCHEMA}, tool("x" * 257), tool("twice"), tool("twice"), tool("taken"),
        tool("a", inputSchema=None), tool("b", inputSchema=[]), tool("c", inputSchema={"type": "string"}),
        tool("d", inputSchema={}), {"name": "e"},
    ]  # fmt: skip
    found = selection.pick(declare(), listed, ANY_TOOL)
    assert [one.name for one in found.offered] == ["twice", "d"]
    assert found.offered[1].function["parameters"] == {"type": "object", "properties": {}}
    assert (reasons.count("name"), reasons.count("schema")) == (6, 4)


@pytest.mark.checklist(204)
def test_the_operator_and_the_request_both_say_which_tools():
    selection = Selection(10, set(), lambda reason: None)
    read_only = {"annotations": {"readOnlyHint": True}}
    listed = [tool("a", **read_only), tool("b"), tool("c", **read_only)]
    declaration = declare(allowed_tools={"read_only": True}, require_approval={"never": {"read_only": True}})
    found = selection.pick(declaration, listed, name_tools(("a", "b")))
    assert [(one.name, one.kind) for one in found.offered] == [("a", "mcp_call")]


def test_a_listing_in_the_conversation_is_found():
    item = {"type": "mcp_list_tools", "server_label": "docs", "tools": [{"name": "a", "input_schema": SCHEMA}, 5]}
    failed = {**item, "tools": [], "error": "no"}
    assert find_listing([item, failed], "docs") == [{"name": "a", "input_schema": SCHEMA}]
    assert find_listing([failed], "docs") is None
    assert find_listing([item], "other") is None
    assert find_listing([{**item, "tools": None}], "docs") is None
    found = Selection(10, set(), lambda reason: None).pick(declare(), find_listing([item], "docs"), ANY_TOOL)
    assert found.offered[0].function["parameters"] == SCHEMA


LABELS = st.text("ab_-", min_size=1, max_size=8)
NAMES = st.text("ab_-.\u00e9", min_size=1, max_size=80)


@pytest.mark.checklist(206)
@given(st.lists(st.tuples(LABELS, NAMES), min_size=2, max_size=20, unique=True))
def test_no_two_tools_have_the_same_name_for_the_model(tools):
    names = [name_function(*one) for one in tools]
    assert len(set(names)) == len(tools)
    assert names == [name_function(*one) for one in tools]
    assert all(len(name) <= 64 and name.replace("_", "a").replace("-", "a").isalnum() for name in names)
    assert all(name.isascii() for name in names)
