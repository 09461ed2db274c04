"""What `multi_agent` of a request may say, and what it may not stand beside."""

from typing import Any

import pytest

from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.agents.asked import (
    AgentsPolicy,
    AgentsRequest,
    choose_limit,
    find_agents,
    find_replayed,
    has_beta_header,
    refuse_beside_agents,
    refuse_trees,
)
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.items import TREE_TYPES
from gateway.protocol.requests import CreateFields, CreateRequest, RequestPolicy, check_request

ON: dict[str, Any] = {"enabled": True}
POLICY = AgentsPolicy()
LIMIT = "multi_agent.max_concurrent_subagents"


def check(policy: AgentsPolicy | None = POLICY, *, header: bool = True, **given: Any) -> CreateRequest:
    body = {"model": "m", "input": "hi", "multi_agent": ON, **given}
    return check_request(body, RequestPolicy(agents=policy, compact_threshold=100), agents_header=header)


def refusal(policy: AgentsPolicy | None = POLICY, *, header: bool = True, **given: Any) -> tuple[Any, Any]:
    with pytest.raises(InvalidRequest) as refused:
        check(policy, header=header, **given)
    assert str(refused.value.param) in refused.value.message
    return refused.value.param, refused.value.code


@pytest.mark.agents(1)
def test_it_needs_the_header() -> None:
    assert refusal(header=False) == ("multi_agent", "unknown_parameter")
    assert check(AgentsPolicy(needs_header=False), header=False).agents == AgentsRequest(3)


@pytest.mark.agents(2)
@pytest.mark.parametrize("given", [None, {"enabled": False}, {"enabled": False, "max_concurrent_subagents": None}])
def test_an_ordinary_response_needs_none(given: Any) -> None:
    assert check(header=False, multi_agent=given).agents is None
    assert check(None, header=False, multi_agent=given).agents is None


@pytest.mark.agents(3)
@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], False),
        ([b"responses_multi_agent=v1"], True),
        ([b"responses=v1, responses_multi_agent=v1 ,x"], True),
        ([b"assistants=v2", b"responses_multi_agent=v1"], True),
        ([b"responses_multi_agent=v1", b"responses_multi_agent=v1"], True),
        ([b"Responses_Multi_Agent=v1"], False),
        ([b"responses_multi_agent=v10"], False),
        ([b"responses_multi_agent"], False),
    ],
)
def test_the_header_may_stand_in_any_line(lines: list[bytes], found: bool) -> None:
    headers = [(b"host", b"responses_multi_agent=v1"), *((b"openai-beta", line) for line in lines)]
    assert has_beta_header(headers) is found


@pytest.mark.agents(4, 5, 6)
@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, ("multi_agent.enabled", "missing_required_parameter")),
        ({"enabled": None}, ("multi_agent.enabled", "invalid_type")),
        ({"enabled": 1}, ("multi_agent.enabled", "invalid_type")),
        ({"enabled": "true"}, ("multi_agent.enabled", "invalid_type")),
        (True, ("multi_agent", "invalid_type")),
        (ON | {"max_concurrent_subagents": 0}, (LIMIT, "integer_below_min_value")),
        (ON | {"max_concurrent_subagents": -1}, (LIMIT, "invalid_type")),
        (ON | {"max_concurrent_subagents": "x"}, (LIMIT, "invalid_type")),
        (ON | {"max_concurrent_subagents": 1.5}, (LIMIT, "invalid_type")),
        (ON | {"max_concurrent_subagents": True}, (LIMIT, "invalid_type")),
        (ON | {"depth": 3}, ("multi_agent.depth", "unknown_parameter")),
        ({"enabled": False, "depth": 3}, ("multi_agent.depth", "unknown_parameter")),
        # The first that fails is told: types, then names, then numbers.
        ({"enabled": 1, "depth": 3}, ("multi_agent.enabled", "invalid_type")),
        (ON | {"depth": 3, "max_concurrent_subagents": 0}, ("multi_agent.depth", "unknown_parameter")),
    ],
)
def test_what_is_malformed(given: Any, refused: tuple[str, str]) -> None:
    assert refusal(header=False, multi_agent=given) == refused


def test_how_many_may_be_active() -> None:
    policy = AgentsPolicy(default_concurrent=2, max_concurrent=4)
    assert check(policy).agents == AgentsRequest(2)
    assert check(policy, multi_agent=ON | {"max_concurrent_subagents": 4}).agents == AgentsRequest(4)
    assert refusal(policy, multi_agent=ON | {"max_concurrent_subagents": 5}) == (LIMIT, "integer_above_max_value")
    assert choose_limit(5, AgentsPolicy()) == AgentsRequest(5)


@pytest.mark.agents(7, 8, 9, 11)
@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"store": False}, "store"),
        ({"max_tool_calls": 1}, "max_tool_calls"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"generate_summary": "auto"}}, "reasoning.summary"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        # The first of several is told.
        ({"background": True, "store": False, "max_tool_calls": 1}, "store"),
    ],
)
def test_what_it_cannot_stand_beside(given: dict[str, Any], param: str) -> None:
    assert refusal(**given) == (param, "unsupported_parameter")
    assert check(multi_agent={"enabled": False}, **given | {"store": True}).agents is None


@pytest.mark.agents(7, 8, 9)
@pytest.mark.parametrize(
    "given", [{}, {"store": True}, {"store": None}, {"max_tool_calls": None}, {"reasoning": {"effort": "low"}}]
)
def test_what_it_may_stand_beside(given: dict[str, Any]) -> None:
    request = check(**given)
    assert (request.agents, request.store) == (AgentsRequest(3), True)


@pytest.mark.agents(10)
@pytest.mark.parametrize("name", ACTIONS)
def test_tools_must_not_have_the_names_of_actions(name: str) -> None:
    for kind in ("function", "custom", "made_up"):
        named = {"type": kind, "name": name}
        assert refusal(tools=[named]) == ("tools[0].name", "invalid_value")
        other = {"type": kind, "name": f"{name}s"}
        inside = {"type": "namespace", "name": "n", "tools": [other, named]}
        assert refusal(tools=[other, inside]) == ("tools[1].tools[1].name", "invalid_value")
        assert check(multi_agent=None, tools=[named, inside]).agents is None


@pytest.mark.agents(10)
def test_nor_those_that_the_input_brings() -> None:
    loaded = [("input[3].tools", [{"type": "function", "name": "wait_agent"}])]
    with pytest.raises(InvalidRequest) as refused:
        refuse_beside_agents(CreateFields(model="m"), loaded)
    assert refused.value.param == "input[3].tools[0].name"


def test_malformed_tools_are_told_as_ever() -> None:
    assert refusal(tools=["wait_agent"]) == ("tools[0]", "invalid_type")


def test_where_the_operator_has_none() -> None:
    assert refusal(None) == ("multi_agent", "unsupported_parameter")
    with pytest.raises(InvalidRequest, match="seal-key"):
        check(AgentsPolicy(can_seal=False))


@pytest.mark.parametrize("kind", sorted(TREE_TYPES))
@pytest.mark.parametrize("given", [ON, None])
def test_items_of_a_tree_are_not_sent_back(kind: str, given: Any) -> None:
    items = [{"role": "user", "content": "hi"}, {"type": kind}]
    with pytest.raises(InvalidRequest, match="previous_response_id") as refused:
        check(multi_agent=given, input=items)
    assert (refused.value.param, refused.value.code) == ("input[1].type", "unsupported_value")
    assert find_replayed(items) == 1


@pytest.mark.parametrize("items", ["agent_message", None, [], ["agent_message"], [{"type": ["agent_message"]}]])
def test_other_input_brings_none(items: Any) -> None:
    assert find_replayed(items) is None


def test_an_entry_without_a_number_leaves_it_to_the_model() -> None:
    for entries, threshold in (
        (None, None),
        ([], None),
        ([{"type": "compaction"}], None),
        ([{"type": "compaction", "compact_threshold": 7}], 7),
    ):
        asked = check(context_management=entries)
        assert asked.threshold == threshold
    assert check(context_management=[{"type": "compaction"}], multi_agent=None).threshold == 100


@pytest.mark.parametrize(
    ("entry", "member"),
    [
        ({"type": "other"}, ".type"),
        ({"type": "compaction", "compact_threshold": 0}, ".compact_threshold"),
        ({"type": "compaction", "compact_threshold": "x"}, ".compact_threshold"),
        ("compaction", ""),
    ],
)
def test_windows_are_checked_as_ever(entry: Any, member: str) -> None:
    assert refusal(context_management=[entry]) == (f"context_management[0]{member}", "invalid_value")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"multi_agent": None, "input": "hi"}, None),
        ({"multi_agent": {"enabled": False}}, None),
        ({"multi_agent": {"enabled": "true"}}, None),
        ({"multi_agent": ON}, "multi_agent"),
        ({"input": [{"type": "message"}, {"type": "multi_agent_call"}]}, "input[1].type"),
    ],
)
def test_what_has_to_do_with_a_tree(body: dict[str, Any], param: str | None) -> None:
    assert find_agents(body) == param
    if param is not None:
        error = refuse_trees(param)
        assert (error.param, error.code) == (param, "unsupported_operation")
        assert param in error.message
