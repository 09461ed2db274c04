"""What `tools` and `tool_choice` become, and what is refused by name."""

import pytest
from harness.tools import tool
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.carriage import MAX_NAME, Carried, list_tools
from gateway.protocol.choice import Offer
from gateway.protocol.client_tools import CLIENT_TOOLS
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.tools import build_toolset, list_loaded

F = {"type": "function", "name": "f", "parameters": {"type": "object"}}
G = {"type": "function", "name": "g"}
SHELL = {"type": "custom", "name": "shell"}
SEARCH = {"type": "web_search"}
MAIL = {"type": "namespace", "name": "mail", "description": "Mail.", "tools": [{**G, "name": "get"}, SHELL]}
NINE = {"type": "namespace", "name": "n", "tools": [{**F, "name": f"f{number}"} for number in range(9)]}
ALL = [F, G, SHELL, SEARCH, MAIL]


def build(tools, choice=None):
    return build_toolset(tools, choice, max_tools=10)


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_no_choice(tools):
    toolset = build(tools, "auto")
    assert (toolset.offers.first, toolset.unsupported, toolset.echo) == (Offer([], None), (), [])


def test_functions_pass_and_the_rest_is_carried_or_left_out():
    toolset = build([*ALL, {"type": "mcp", "server_label": "s"}, SEARCH])
    assert [tool["name"] for tool in toolset.offers.first.tools] == ["f", "g", "shell", "mail__get", "mail__shell"]
    assert {tool["type"] for tool in toolset.offers.first.tools} == {"function"}
    assert toolset.offers.first.choice == "auto"
    assert toolset.unsupported == ("web_search", "mcp")
    assert toolset.carriage.resolve("mail__shell") == Carried("shell", "mail", "custom")


def test_the_echo_is_what_the_caller_sent_with_functions_complete():
    toolset = build([F, SHELL, MAIL])
    assert toolset.echo == [
        {"type": "function", "name": "f", "description": None, "parameters": {"type": "object"}, "strict": None},
        SHELL,
        MAIL,
    ]


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_words_pass(choice):
    assert build([F], choice).offers.first.choice == choice


def test_no_choice_is_auto():
    assert build([F], None).offers.first.choice == "auto"


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "f"}, "f"),
        ({"type": "custom", "name": "shell"}, "shell"),
        ({"type": "function", "name": "get", "namespace": "mail"}, "mail__get"),
        ({"type": "custom", "name": "shell", "namespace": "mail"}, "mail__shell"),
    ],
)
def test_one_tool_can_be_required_by_the_name_its_caller_knows(choice, name):
    toolset = build(ALL, choice)
    assert toolset.offers.first.choice == {"type": "function", "name": name}
    assert len(toolset.offers.first.tools) == 5


TYPED = [{"type": "shell"}, {"type": "apply_patch"}, {"type": "computer_use_preview"}, SHELL, {**F, "name": "shell"}]


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({"type": "shell"}, 0),
        ({"type": "apply_patch"}, 1),
        ({"type": "computer"}, 2),
        ({"type": "computer_use"}, 2),
        ({"type": "custom", "name": "shell"}, 3),
        ({"type": "function", "name": "shell"}, 4),
    ],
)
def test_a_tool_is_required_by_its_type_where_that_is_all_it_has(choice, meant):
    toolset = build(TYPED, choice)
    (required,) = [tool for tool in toolset.offers.first.tools if tool["name"] == toolset.offers.first.choice["name"]]
    assert toolset.offers.first.tools.index(required) == meant
    allowed = build(TYPED, {"type": "allowed_tools", "tools": [choice]}).offers.first
    assert allowed.tools == [required]


@pytest.mark.parametrize(
    ("listed", "offered"),
    [
        ([{"type": "function", "name": "g"}], ["g"]),
        ([{"type": "custom", "name": "shell"}], ["shell", "mail__shell"]),
        ([{"type": "namespace", "name": "mail"}, {"type": "function", "name": "f"}], ["f", "mail__get", "mail__shell"]),
        ([{"type": "web_search"}, "junk", {"name": 5}], []),
    ],
)
def test_allowed_tools_are_the_only_ones_offered(listed, offered):
    toolset = build(ALL, {"type": "allowed_tools", "tools": listed})
    assert [tool["name"] for tool in toolset.offers.first.tools] == offered
    assert toolset.offers.first.choice == ("auto" if offered else None)
    assert len(toolset.echo) == 5


def test_allowed_tools_can_be_required():
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    assert build(ALL, choice).offers.first.choice == "required"


@pytest.mark.checklist(107)
@pytest.mark.parametrize(
    ("tools", "choice", "param", "code", "words"),
    [
        ([F, "junk"], None, "tools[1]", "invalid_type", "must be an object with a type"),
        ([{"name": "f"}], None, "tools[0]", "invalid_type", "must be an object with a type"),
        ([{"type": "function"}], None, "tools[0].name", "invalid_type", "non-empty string"),
        ([{"type": "custom", "name": ""}], None, "tools[0].name", "invalid_type", "non-empty string"),
        ([{"type": "namespace", "tools": []}], None, "tools[0].name", "invalid_type", "a name and a list of tools"),
        ([{"type": "namespace", "name": "n"}], None, "tools[0].name", "invalid_type", "a name and a list of tools"),
        ([{"type": "namespace", "name": "n", "tools": [5]}], None, "tools[0].tools[0]", "invalid_type", "an object"),
        ([F, F], None, "tools[1].name", "invalid_value", "repeats the tool name 'f'"),
        ([{"type": "shell"}, {"type": "shell"}], None, "tools[1].name", "invalid_value", "repeats the tool name"),
        ([F] * 11, None, "tools", "array_above_max_length", "11 entries, .*; at most 10"),
        ([NINE, F], None, "tools", "array_above_max_length", "11 entries, those inside namespaces included; at most"),
        ([{"type": "", "name": "f"}], None, "tools[0]", "invalid_type", "must be an object with a type"),
        ([SEARCH], "required", "tool_choice", "invalid_value", "no tool is offered"),
        ([], "required", "tool_choice", "invalid_value", "no tool is offered"),
        ([F], "sometimes", "tool_choice", "invalid_value", "must be"),
        ([SEARCH], {"type": "web_search"}, "tool_choice", "invalid_value", "'web_search', which this gateway cannot"),
        (
            [F],
            {"type": "mcp", "server_label": "docs"},
            "tool_choice",
            "invalid_value",
            "the MCP server 'docs', of which",
        ),
        ([F], {"type": "shell"}, "tool_choice", "invalid_value", "'shell', which is not among the tools"),
        ([F], {}, "tool_choice.type", "invalid_value", "a type"),
        ([F], {"type": "function", "name": "h"}, "tool_choice.name", "invalid_value", "'h', which is not among"),
        ([F], {"type": "function"}, "tool_choice.name", "invalid_value", "not among the tools"),
        ([F], {"type": "allowed_tools"}, "tool_choice", "invalid_value", "needs a mode"),
        ([F], {"type": "allowed_tools", "mode": "none", "tools": []}, "tool_choice", "invalid_value", "needs a mode"),
        (
            [F],
            {"type": "allowed_tools", "mode": "required", "tools": [{"name": "h"}]},
            "tool_choice.tools",
            "invalid_value",
            "none of them is offered",
        ),
    ],
)
def test_refusals_name_the_field(tools, choice, param, code, words):
    with pytest.raises(InvalidRequest, match=words) as refused:
        build(tools, choice)
    assert (refused.value.param, refused.value.code, refused.value.status) == (param, code, 400)


def test_a_namespace_inside_a_namespace_is_left_out():
    nested = {"type": "namespace", "name": "outer", "tools": [MAIL, F]}
    toolset = build([nested])
    assert [tool["name"] for tool in toolset.offers.first.tools] == ["outer__f"]
    assert toolset.unsupported == ("namespace",)


def test_members_of_namespaces_count():
    assert len(build([NINE]).offers.first.tools) == 9


def test_unsupported_types_are_shown_as_a_header_can_hold_them():
    assert build([{"type": "é"}, {"type": "a b\r\n\ud800"}]).unsupported == ("unnamed", "ab")


def test_long_names_are_not_repeated_at_length():
    with pytest.raises(InvalidRequest) as refused:
        build([F], {"type": "x" * 10_000})
    assert len(refused.value.message) < 200
    assert build([{"type": "y" * 10_000}]).unsupported == ("y" * 64,)


FIND = {"type": "tool_search", "execution": "client", "description": "Finds."}
LATER = {**F, "name": "later", "description": "Does it later.", "defer_loading": True}
FILES = {
    "type": "namespace",
    "name": "files",
    "description": "Files.",
    "tools": [{**F, "name": "read", "defer_loading": True}, {**F, "name": "list", "defer_loading": True}],
}


def names(toolset):
    return [tool["name"] for tool in toolset.offers.first.tools]


def load(*tools, given=(), choice=None):
    loaded = [("input[0].tools", list(tools))] if tools else []
    return build_toolset(list(given), choice, max_tools=10, loaded=loaded)


def test_functions_keep_their_names_wherever_they_stand():
    assert names(build([{"type": "shell"}, SHELL, {**F, "name": "shell"}]))[2] == "shell"


@pytest.mark.checklist(106)
def test_deferred_tools_wait_for_a_search_of_the_clients_and_are_told_of():
    toolset = build([FIND, LATER, {**LATER, "name": "mute", "description": None}, FILES, F])
    assert names(toolset) == ["tool_search", "f"]
    assert toolset.offers.first.tools[0]["description"] == (
        "Finds.\n\nThere are tools for:\n- later: Does it later.\n- mute\n- files: Files."
    )
    assert toolset.carriage.resolve("files__read") == Carried("read", "files")


@pytest.mark.checklist(106)
def test_deferred_tools_are_offered_at_once_where_nobody_could_find_them():
    toolset = build([{"type": "tool_search"}, LATER])
    assert names(toolset) == ["later"]
    assert "defer_loading" not in toolset.offers.first.tools[0]
    assert toolset.unsupported == ("tool_search",)


def test_what_the_input_brings_is_offered_whatever_it_says():
    toolset = load(LATER, FILES, {"type": "apply_patch"}, given=[FIND, LATER, F])
    assert names(toolset) == ["tool_search", "later", "f", "files__read", "files__list", "apply_patch"]
    assert len(toolset.echo) == 3


def test_tools_may_come_with_the_input_alone_and_again():
    toolset = load(F, G, {**F, "description": "New."}, choice={"type": "function", "name": "g"})
    assert names(toolset) == ["f", "g"]
    assert toolset.offers.first.tools[0]["description"] == "New."
    assert toolset.offers.first.choice == {"type": "function", "name": "g"}


def test_what_comes_later_takes_no_name_that_is_given():
    given = [FIND, {"type": "shell"}]
    toolset = load({**F, "name": "shell"}, given=given)
    assert names(toolset)[:2] == names(load(given=given)) == ["tool_search", "shell"]
    assert toolset.carriage.resolve(names(toolset)[2]) == Carried("shell")


@pytest.mark.parametrize(
    ("tool", "param", "code"),
    [("junk", "input[0].tools[0]", "invalid_type"), (NINE, "tools", "array_above_max_length")],
)
def test_refusals_of_what_the_input_brings(tool, param, code):
    with pytest.raises(InvalidRequest) as refused:
        load(tool, given=[F, G])
    assert (refused.value.param, refused.value.code) == (param, code)


def test_hosted_tools_of_the_input_are_left_out():
    class Types:
        def runs(self, kind):
            return kind == "mcp"

    toolset = build_toolset([], None, max_tools=10, types=Types(), loaded=[("input[0].tools", [{"type": "mcp"}])])
    assert (toolset.hosted, toolset.unsupported) == ([], ("mcp",))


def test_items_that_load_tools_are_found():
    items = [
        {"type": "message"},
        {"type": "additional_tools", "tools": [F]},
        {"type": "tool_search_output", "tools": []},
        {"type": "additional_tools", "tools": None},
    ]
    assert list_loaded(items) == [("input[1].tools", [F]), ("input[2].tools", [])]


@pytest.mark.parametrize(
    ("tool", "function"),
    [
        ({"type": "browse", "parameters": {"type": "object"}}, {"name": "browse", "parameters": {"type": "object"}}),
        ({"type": "browse", "execution": "client"}, {"name": "browse", "parameters": {"type": "object"}}),
        (
            {"type": "browse", "name": "b", "description": "Looks.", "input_schema": {"type": "object", "a": 1}},
            {"name": "b", "description": "Looks.", "parameters": {"type": "object", "a": 1}},
        ),
    ],
)
def test_unknown_tools_that_clients_run_are_functions(tool, function):
    toolset = build([tool], {"type": "browse"})
    assert toolset.offers.first.tools == [{"type": "function", **function}]
    assert toolset.offers.first.choice == {"type": "function", "name": function["name"]}
    assert toolset.carriage.resolve(function["name"]) == Carried(function["name"])
    assert toolset.echo == [tool]


def test_unknown_tools_need_a_name_that_is_one():
    with pytest.raises(InvalidRequest, match="non-empty string"):
        build([{"type": "browse", "name": 5, "execution": "client"}])


@pytest.mark.parametrize("kind", ["file_search", "web_search_preview", "programmatic_tool_calling", "shell"])
def test_tools_of_servers_are_never_functions(kind):
    tool = {"type": kind, "parameters": {}, "environment": {"type": "container_auto"}}
    assert build([tool]).unsupported == (kind,)


declarations = st.one_of(
    st.builds(
        lambda kind, name: {"type": kind, "name": name},
        st.sampled_from(["function", "custom"]),
        st.sampled_from(["shell", "apply_patch", "n__a", "a", "n" * 64, "n" * 70, "n__" + "a" * 70]),
    ),
    st.builds(lambda kind: {"type": kind, "execution": "client"}, st.sampled_from([*CLIENT_TOOLS, "browse"])),
)
spaces = st.builds(
    lambda name, members: {"type": "namespace", "name": name, "tools": members},
    st.sampled_from(["n", "shell", "m" * 64]),
    st.lists(declarations.filter(lambda tool: "name" in tool), max_size=3),
)


@pytest.mark.checklist(104)
@given(st.lists(st.one_of(declarations, spaces), max_size=8), st.lists(declarations, max_size=3))
def test_names_are_unique_short_reversible_and_stay(given, later):
    keys = [(tool["type"], tool.get("name"), name) for tool, name in list_tools(given)]
    if len(set(keys)) < len(keys):
        with pytest.raises(InvalidRequest, match="repeats"):
            build_toolset(given, None, max_tools=99)
        return
    before = build_toolset(given, None, max_tools=99)
    toolset = build_toolset(given, None, max_tools=99, loaded=[("input[0].tools", later)])
    assert names(toolset)[: len(names(before))] == names(before)
    assert len(set(names(toolset))) == len(names(toolset))
    assert all(0 < len(name) <= MAX_NAME for name in names(toolset))
    for offered in toolset.offered:
        found = toolset.carriage.resolve(offered.function["name"])
        assert (found.name, found.namespace) == (offered.name, offered.group)
        assert toolset.carriage.name_of(found) == offered.function["name"]


# ---------------------------------------------------------------- tools that the gateway runs


class Types:
    """Runs `mcp` and web searches."""

    def runs(self, kind):
        return kind == "mcp" or kind.startswith("web_search")

    def check(self, declared):
        self.declared = declared

    def show(self, tool):
        return {"type": tool["type"]}


MCP = {"type": "mcp", "server_label": "s", "headers": {"a": "s3cret"}}
HOSTED = [tool("look"), tool("see"), tool("get", "t"), tool("web_search", "", "web_search_call")]
OFFERED = ["f", *(tool.function["name"] for tool in HOSTED)]


def build_hosted(choice=None):
    return build_toolset([F, MCP, SEARCH, {"type": "image_generation"}], choice, max_tools=10, types=Types())


def names_of(offer):
    return [tool["name"] for tool in offer.tools]


def test_the_gateways_own_tools_are_kept_aside_and_shown_as_their_provider_says():
    types = Types()
    toolset = build_toolset([F, MCP, SEARCH], None, max_tools=10, types=types)
    assert types.declared == [("tools[1]", MCP), ("tools[2]", SEARCH)]
    assert (toolset.hosted, toolset.unsupported, toolset.names) == ([MCP, SEARCH], (), {"f"})
    assert toolset.echo[1:] == [{"type": "mcp"}, {"type": "web_search"}]
    assert build_hosted().unsupported == ("image_generation",)


@pytest.mark.parametrize(
    ("choice", "first", "offered", "later"),
    [
        (None, "auto", OFFERED, "auto"),
        ("none", "none", OFFERED, "none"),
        ("required", "required", OFFERED, "auto"),
        ({"type": "mcp", "server_label": "s"}, "required", ["mcp__s__look", "mcp__s__see"], "auto"),
        ({"type": "mcp", "server_label": "t"}, {"type": "function", "name": "mcp__t__get"}, OFFERED, "auto"),
        ({"type": "web_search_preview"}, {"type": "function", "name": "web_search"}, OFFERED, "auto"),
    ],
)
def test_a_choice_is_applied_once_the_tools_are_known(choice, first, offered, later):
    offers = build_hosted(choice).complete(HOSTED)
    assert (offers.first.choice, names_of(offers.first)) == (first, offered)
    assert (offers.later.choice, names_of(offers.later)) == (later, OFFERED)
    assert offers.later.without_calls() == Offer(offers.later.tools, "none")


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_may_be_of_both_kinds(mode):
    listed = [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s", "name": "see"}, SEARCH]
    offers = build_hosted({"type": "allowed_tools", "mode": mode, "tools": listed}).complete(HOSTED)
    assert names_of(offers.first) == names_of(offers.later) == ["f", "mcp__s__see", "web_search"]
    assert (offers.first.choice, offers.later.choice) == (mode, "auto")


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "mcp", "server_label": "s"},
        {"type": "web_search"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp", "server_label": "s"}]},
    ],
)
def test_a_choice_of_what_is_not_known_yet_is_refused_only_when_it_is_known(choice):
    toolset = build_hosted(choice)
    with pytest.raises(InvalidRequest):
        toolset.complete([])


@pytest.mark.parametrize("choice", ["sometimes", {"type": "file_search"}, {"type": "function", "name": "g"}])
def test_what_no_listing_can_mend_is_refused_at_once(choice):
    with pytest.raises(InvalidRequest):
        build_hosted(choice)


def test_tools_of_the_gateways_inside_a_namespace_are_left_out():
    toolset = build_toolset([{"type": "namespace", "name": "n", "tools": [MCP]}], None, max_tools=10, types=Types())
    assert (toolset.hosted, toolset.unsupported) == ([], ("mcp",))
