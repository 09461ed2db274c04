"""Approvals: each request is answered once, by whom it was asked, and settled once."""

import pytest

from gateway.protocol.approvals import Decision, require_servers, settle_approvals
from gateway.protocol.errors import InvalidRequest

MESSAGE = {"type": "message", "role": "user", "content": "hi"}
ANSWER = {"type": "message", "role": "assistant", "content": "done"}


def request(key: str = "mcpr_1", name: str = "add") -> dict:
    return {"type": "mcp_approval_request", "id": key, "server_label": "docs", "name": name, "arguments": "{}"}


def response(key: object = "mcpr_1", approve: object = True, **more: object) -> dict:
    return {"type": "mcp_approval_response", "approval_request_id": key, "approve": approve, **more}


def test_decisions_come_in_the_order_of_the_input():
    history = [MESSAGE, request("mcpr_1"), request("mcpr_2", "say")]
    items = [*history, response("mcpr_2", False, reason="too loud"), response("mcpr_1", reason=5)]
    assert settle_approvals(items, 3) == [
        Decision(request=request("mcpr_2", "say"), approved=False, reason="too loud"),
        Decision(request=request("mcpr_1"), approved=True, reason=None),
    ]


def test_what_history_decided_is_settled():
    settled = [MESSAGE, request(), response(), {"type": "mcp_call", "approval_request_id": "mcpr_1"}, ANSWER]
    assert settle_approvals([*settled, MESSAGE], 5) == []
    assert settle_approvals([request(), response(approve=False), MESSAGE], 2) == []


def test_in_an_input_that_holds_the_whole_history_what_the_model_wrote_since_shows_it():
    whole = [MESSAGE, request(), response(approve=False), ANSWER, MESSAGE]
    assert settle_approvals(whole, 0) == []
    again = [*whole, ANSWER, request("mcpr_2"), response("mcpr_2")]
    assert [decision.request["id"] for decision in settle_approvals(again, 0)] == ["mcpr_2"]
    assert len(settle_approvals([MESSAGE, request(), response(), MESSAGE], 0)) == 1


def test_where_nothing_goes_on_a_request_may_stay_open():
    assert settle_approvals([MESSAGE, request()], 2, complete=False) == []


@pytest.mark.checklist(205)
@pytest.mark.parametrize(
    ("items", "first_new", "code"),
    [
        ([MESSAGE, response()], 0, "approval_request_not_found"),
        ([response(), request()], 0, "approval_request_not_found"),
        ([request(), response("mcpr_other")], 1, "approval_request_not_found"),
        ([request(), response(), response()], 1, "approval_already_given"),
        ([request(), response(), ANSWER, response(approve=False)], 3, "approval_already_given"),
        ([request(), MESSAGE], 1, "missing_approval_response"),
        ([request(), request("mcpr_2"), response()], 2, "missing_approval_response"),
        ([request(), response(None)], 1, "invalid_type"),
        ([request(), response("")], 1, "invalid_type"),
        ([request(), response(approve="yes")], 1, "invalid_type"),
        ([request(), response(approve=None)], 1, "invalid_type"),
    ],
)
def test_a_response_that_does_not_fit_is_refused_by_name(items, first_new, code):
    with pytest.raises(InvalidRequest) as raised:
        settle_approvals(items, first_new)
    assert (raised.value.code, raised.value.param, raised.value.status) == (code, "input", 400)


def test_long_ids_are_cut_in_messages():
    with pytest.raises(InvalidRequest) as raised:
        settle_approvals([request(), response("x" * 5000)], 1)
    assert len(raised.value.message) < 250


def test_an_approved_call_needs_its_server_and_a_declined_one_does_not():
    approved, declined = settle_approvals([request("a"), request("b"), response("a"), response("b", False)], 2)
    require_servers([approved, declined], [{"type": "mcp", "server_label": "docs"}])
    require_servers([declined], [])
    for declared in ([], [{"type": "mcp", "server_label": "other"}]):
        with pytest.raises(InvalidRequest) as raised:
            require_servers([declined, approved], declared)
        assert (raised.value.code, raised.value.param) == ("missing_mcp_server", "tools")
