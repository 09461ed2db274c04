"""Which calls a client was asked to approve, and what it said: an `mcp_approval_response` for each request.

A response decides about one request once. It is settled in the turn it comes with; in a history that a client sends
whole, whatever the model wrote behind it shows that this has happened.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from gateway.protocol.errors import InvalidRequest

_REQUEST = "mcp_approval_request"
_RESPONSE = "mcp_approval_response"
_WRITTEN = frozenset({"reasoning", "function_call", "custom_tool_call", "mcp_call", "web_search_call", _REQUEST})


class Decision(Struct, frozen=True, kw_only=True):
    """What a client decided about a call.

    Attributes:
        request: the `mcp_approval_request` item.
        approved: whether the call may run.
        reason: the client's word about it, or None.
    """

    request: Mapping[str, Any]
    approved: bool
    reason: str | None


def settle_approvals(items: Sequence[Mapping[str, Any]], first_new: int, *, complete: bool = True) -> list[Decision]:
    """Return what the new input decides, in its order.

    Args:
        items: the effective input, oldest first, in the client's form.
        first_new: index of the first of them that this request brought.
        complete: whether every request must have a response.

    Raises:
        InvalidRequest: `approval_request_not_found` for a response to what was not asked, or asked of somebody else;
            `approval_already_given` for a second one; `missing_approval_response` for a request left without one;
            `invalid_type` for a response that says neither yes nor no; param `input`.
    """
    requests: dict[str, Mapping[str, Any]] = {}
    decisions: dict[str, tuple[int, Decision]] = {}
    last_written = -1
    for position, item in enumerate(items):
        kind = item.get("type")
        if kind == _REQUEST:
            requests[str(item.get("id"))] = item
        elif kind == _RESPONSE:
            key = _read_key(item)
            if key not in requests:
                _refuse(f"No approval request with id '{key[:128]}' was found.", "approval_request_not_found")
            if key in decisions:
                _refuse(f"The approval request '{key[:128]}' already has a response.", "approval_already_given")
            reason = item.get("reason")
            decision = Decision(
                request=requests[key], approved=item["approve"], reason=reason if isinstance(reason, str) else None
            )
            decisions[key] = position, decision
        if kind in _WRITTEN or (kind == "message" and item.get("role") == "assistant"):
            last_written = position
    unanswered = next((key for key in requests if key not in decisions), None)
    if complete and unanswered is not None:
        _refuse(
            f"No approval response found for the approval request '{unanswered[:128]}'; to go on without the call, "
            "send one with approve false.",
            "missing_approval_response",
        )
    begin = max(first_new, last_written + 1)
    return [decision for position, decision in decisions.values() if position >= begin]


def require_servers(decisions: Sequence[Decision], declared: Sequence[Mapping[str, Any]]) -> None:
    """Check that the servers of approved calls are declared by the request that approves them.

    Raises:
        InvalidRequest: `missing_mcp_server`, param `tools`.
    """
    labels = {tool.get("server_label") for tool in declared}
    for decision in decisions:
        label = decision.request.get("server_label")
        if decision.approved and label not in labels:
            raise InvalidRequest(
                f"The approved call is of the MCP server '{str(label)[:64]}', which is not among the tools; "
                "declare it again.",
                code="missing_mcp_server",
                param="tools",
            )


def _read_key(item: Mapping[str, Any]) -> str:
    key, approve = item.get("approval_request_id"), item.get("approve")
    if not isinstance(key, str) or not key:
        _refuse("An mcp_approval_response needs an approval_request_id, a string.", "invalid_type")
    if not isinstance(approve, bool):
        _refuse("An mcp_approval_response needs approve, true or false.", "invalid_type")
    return key


def _refuse(message: str, code: str) -> NoReturn:
    raise InvalidRequest(message, code=code, param="input")
