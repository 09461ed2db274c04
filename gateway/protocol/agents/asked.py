"""Whether a request asks for a tree of agents, and what it must not ask for beside it.

Every refusal here comes before anything has been sent or stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.inputs import json_type
from gateway.protocol.items import TREE_TYPES

if TYPE_CHECKING:
    from gateway.protocol.requests import CreateFields

BETA_HEADER: Final = b"openai-beta"
BETA_TOKEN: Final = b"responses_multi_agent=v1"
_ENABLED: Final = "multi_agent.enabled"
_LIMIT: Final = "multi_agent.max_concurrent_subagents"
_KEYS: Final = frozenset({"enabled", "max_concurrent_subagents"})


class AgentsPolicy(Struct, frozen=True, kw_only=True):
    """What the operator decides about trees of agents.

    Attributes:
        needs_header: requests have to carry the beta header.
        default_concurrent: agents besides the root that may be active at once where a request names no number.
        max_concurrent: the largest such number; 0 for any.
        can_seal: there are keys for what agents write to each other, or it is shown as it is.
    """

    needs_header: bool = True
    default_concurrent: int = 3
    max_concurrent: int = 0
    can_seal: bool = True


class AgentsRequest(Struct, frozen=True):
    """That a response is to be made by a tree of agents.

    Attributes:
        max_concurrent: agents besides the root that may be active at once.
    """

    max_concurrent: int


def has_beta_header(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether any `OpenAI-Beta` line names the beta among its tokens.

    Args:
        headers: of the request or of the upgrade, names in lower case.
    """
    return any(
        token.strip() == BETA_TOKEN for name, value in headers if name == BETA_HEADER for token in value.split(b",")
    )


def read_agents(
    fields: "CreateFields", given: Mapping[str, Any], policy: AgentsPolicy | None, *, has_header: bool
) -> AgentsRequest | None:
    """Return what `multi_agent` of a request asks for, None where it asks for an ordinary response.

    Args:
        fields: all parameters.
        given: this one.
        policy: what the operator decided; None where there are no trees.
        has_header: the request or its connection brought the beta header.

    Raises:
        InvalidRequest: names the parameter at fault.
    """
    enabled, limit = _read_enabled(given), _read_limit(given.get("max_concurrent_subagents"))
    for key in given:
        if key not in _KEYS:
            raise InvalidRequest(
                f"Unknown parameter: 'multi_agent.{key[:64]}'.",
                code="unknown_parameter",
                param=f"multi_agent.{key[:64]}",
            )
    if limit == 0:
        raise InvalidRequest(
            f"Invalid value for '{_LIMIT}': expected at least 1, got 0.", code="integer_below_min_value", param=_LIMIT
        )
    if not enabled:
        return None
    if policy is None:
        raise agents_off()
    if policy.needs_header and not has_header:
        raise InvalidRequest(
            "Unknown parameter: 'multi_agent'. It is a beta; send the header 'OpenAI-Beta: responses_multi_agent=v1' "
            "with the request, or with the upgrade of its WebSocket.",
            code="unknown_parameter",
            param="multi_agent",
        )
    refuse_beside_agents(fields)
    return choose_limit(limit, policy)


def choose_limit(limit: int | None, policy: AgentsPolicy) -> AgentsRequest:
    """Return the request for a tree of that many active agents, if the operator allows it.

    Args:
        limit: the number asked for; None for the default.
        policy: what the operator decided.

    Raises:
        InvalidRequest: it is above the ceiling, or there are no keys for what agents write to each other.
    """
    if limit is not None and 0 < policy.max_concurrent < limit:
        raise InvalidRequest(
            f"Invalid value for '{_LIMIT}': at most {policy.max_concurrent} are accepted.",
            code="integer_above_max_value",
            bound="multi_agent.max_concurrent_subagents_ceiling",
            param=_LIMIT,
        )
    if not policy.can_seal:
        raise InvalidRequest(
            "'multi_agent' is not supported: there are no keys for what agents write to each other. The operator makes "
            "one with `gateway keys seal-key` and names it in [security] seal_keys_file, or sets [multi_agent] "
            "message_visibility to plain.",
            code="unsupported_parameter",
            param="multi_agent",
        )
    return AgentsRequest(policy.default_concurrent if limit is None else limit)


def agents_off() -> InvalidRequest:
    """Return the error for a tree where the operator wants none."""
    return InvalidRequest(
        "'multi_agent' is not supported here. The operator switches it on with [multi_agent] enabled.",
        code="unsupported_parameter",
        param="multi_agent",
    )


def refuse_beside_agents(fields: "CreateFields", loaded: Sequence[tuple[str, list[Any]]] = ()) -> None:
    """Refuse what a tree of agents cannot be combined with.

    Args:
        fields: the parameters of a request that is answered by a tree.
        loaded: further tools that items of the input brought, with the path of each list.

    Raises:
        InvalidRequest: names the parameter at fault.
    """
    reasoning = fields.reasoning or {}
    for param, is_given, advice in (
        ("store", fields.store is False, "Its agents are continued from where they are stored; send store: true."),
        ("max_tool_calls", fields.max_tool_calls is not None, "Send the request without it."),
        (
            "reasoning.summary",
            reasoning.get("summary") is not None or reasoning.get("generate_summary") is not None,
            "Send the request without it.",
        ),
    ):
        if is_given:
            raise _not_with_agents(param, advice)
    for path, tools in (("tools", fields.tools or []), *loaded):
        _check_names(tools, path)
    if fields.conversation is not None:
        raise _not_with_agents("conversation", "Continue a response by previous_response_id.")
    if fields.background:
        raise _not_with_agents("background", "Send the request without it.")


def find_agents(raw: Mapping[str, Any]) -> str | None:
    """Return the parameter of a request, as it came, that has to do with a tree of agents; None if there is none."""
    given = raw.get("multi_agent")
    if isinstance(given, dict) and given.get("enabled") is True:
        return "multi_agent"
    index = find_replayed(raw.get("input"))
    return None if index is None else f"input[{index}].type"


def refuse_trees(param: str) -> InvalidRequest:
    """Return the error for what is asked about a tree of agents and only known of single ones."""
    return InvalidRequest(
        f"'{param}' is of a tree of agents, for which this cannot be done; a compaction_trigger as the last input item "
        "of a create compacts what its root knows.",
        code="unsupported_operation",
        param=param,
    )


def find_replayed(items: Any) -> int | None:
    """Return the place of the first item that only a tree tells, None if there is none."""
    if not isinstance(items, list):
        return None
    return next(
        (
            index
            for index, item in enumerate(items)
            if isinstance(item, dict) and isinstance(kind := item.get("type"), str) and kind in TREE_TYPES
        ),
        None,
    )


def _read_enabled(given: Mapping[str, Any]) -> bool:
    if "enabled" not in given:
        raise InvalidRequest(
            f"Missing required parameter: '{_ENABLED}'.", code="missing_required_parameter", param=_ENABLED
        )
    enabled = given["enabled"]
    if type(enabled) is not bool:
        raise InvalidRequest(
            f"Invalid type for '{_ENABLED}': expected a boolean, got {json_type(enabled)}.",
            code="invalid_type",
            param=_ENABLED,
        )
    return enabled


def _read_limit(limit: Any) -> int | None:
    if limit is None or (type(limit) is int and limit >= 0):
        return limit
    got = str(limit)[:32] if type(limit) is int else json_type(limit)
    raise InvalidRequest(
        f"Invalid type for '{_LIMIT}': expected an integer of at least 1, got {got}.", code="invalid_type", param=_LIMIT
    )


def _check_names(tools: Sequence[Any], path: str) -> None:
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict):
            continue
        name, place = tool.get("name"), f"{path}[{index}]"
        if tool.get("type") == "namespace":
            members = tool.get("tools")
            _check_names(members if isinstance(members, list) else (), f"{place}.tools")
        elif isinstance(name, str) and name in ACTIONS:
            raise InvalidRequest(
                f"'{place}.name' is '{name}', which is what an action of the agents is called. Give it another name.",
                code="invalid_value",
                param=f"{place}.name",
            )


def _not_with_agents(param: str, advice: str) -> InvalidRequest:
    return InvalidRequest(
        f"'{param}' is not supported with 'multi_agent'. {advice}", code="unsupported_parameter", param=param
    )
