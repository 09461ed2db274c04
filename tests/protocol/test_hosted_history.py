"""What an engine is told of earlier calls of the gateway's tools."""

import pytest

from gateway.protocol.hosted_history import recall_hosted

HI = {"type": "message", "role": "user", "content": "hi"}
CALL = {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "look", "arguments": "{}", "output": "x"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
ASKED = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "pay", "arguments": "{}"}


def output_of(item):
    call, output = recall_hosted([item])
    assert (call["type"], output["type"]) == ("function_call", "function_call_output")
    assert call["call_id"] == output["call_id"] == item["id"]
    return output["output"]


def test_other_items_are_left_as_they_are():
    items = [HI, {"type": "function_call", "call_id": "c"}]
    assert recall_hosted(items) is items


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ({"output": "x"}, "x"),
        ({"output": "", "error": None}, ""),
        ({"output": None, "error": "gone"}, "gone"),
        ({"output": None, "error": {"type": "http_error", "code": 500, "message": "broken"}}, "broken"),
        ({"output": None, "error": {"content": [{"type": "text", "text": "a"}, 5, {"text": "b"}]}}, "a\nb"),
        ({"output": None, "error": {"code": 5}}, '{"code":5}'),
        ({"output": None}, "The tool call has no output."),
    ],
)
def test_the_outcome_of_a_call_is_told(outcome, told):
    assert output_of({**CALL, **outcome}) == told


@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
@pytest.mark.parametrize("item", [CALL, SEARCH])
def test_a_call_that_was_cut_short_is_left_out(item, status):
    assert recall_hosted([HI, {**item, "status": status}]) == [HI]


def test_listings_are_left_out():
    assert recall_hosted([{"type": "mcp_list_tools", "server_label": "s", "tools": []}, HI]) == [HI]


@pytest.mark.parametrize(
    ("action", "queries", "told"),
    [
        ({"query": "a", "queries": ["a", "b"]}, '["a","b"]', "no longer at hand"),
        ({"query": "a"}, '["a"]', "no longer at hand"),
        ({"type": "open_page", "url": "http://x/"}, '["http://x/"]', "no longer at hand"),
        ("junk", '[""]', "no longer at hand"),
        ({"query": "a", "sources": [{"url": "http://x/"}, 5, {"url": "http://y/"}]}, '["a"]', "http://x/\nhttp://y/"),
    ],
)
def test_a_search_is_told_with_what_is_known_of_it(action, queries, told):
    item = {**SEARCH, "action": action}
    assert told in output_of(item)
    assert recall_hosted([item])[0]["arguments"] == f'{{"queries":{queries}}}'


@pytest.mark.parametrize(
    ("members", "told"),
    [
        (
            {"results": [{"title": "T", "url": "http://x/", "text": "It rains."}, 5, {"url": 5}]},
            "T\nhttp://x/\nIt rains.",
        ),
        ({"results": [], "action": {"sources": [{"url": "http://y/"}]}}, "http://y/"),
        ({"results": "junk"}, "no longer at hand"),
        ({"status": "failed"}, "The search failed."),
    ],
)
def test_results_that_the_item_kept_are_told(members, told):
    assert told in output_of({**SEARCH, **members})


@pytest.mark.parametrize("given", [{}, {"id": None}, {"id": ""}, {"id": 5}])
def test_searches_without_ids_are_told_apart(given):
    item = {"type": "web_search_call", "status": "completed", **given}
    first, found, second, again = (told["call_id"] for told in recall_hosted([HI, item, item])[1:])
    assert (first, second) == (found, again)
    assert first != second


def test_an_approved_call_is_told_once_and_its_output_beside_it():
    word = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    ran = {**CALL, "name": "pay", "approval_request_id": "mcpr_1"}
    assert [item["type"] for item in recall_hosted([ASKED, word, HI, ran])] == [
        "function_call", "function_call_output", "message",
    ]  # fmt: skip


def test_an_approved_call_whose_request_is_gone_is_told_whole():
    call, output = recall_hosted([{**CALL, "approval_request_id": "mcpr_1"}])
    assert (call["type"], output["type"]) == ("function_call", "function_call_output")
    assert call["call_id"] == output["call_id"] == "mcpr_1"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ({}, "The user declined this tool call."),
        ({"reason": "Too dear."}, "declined this tool call. Reason: Too dear."),
    ],
)
def test_a_declined_call_is_told_as_such(reason, told):
    word = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, **reason}
    call, output, _ = recall_hosted([ASKED, HI, word])
    assert call["name"] == "mcp__s__pay"
    assert told in output["output"]


def test_an_output_without_its_call_is_told_at_the_end():
    word = {"type": "mcp_approval_response", "approval_request_id": "gone", "approve": False}
    assert [item["type"] for item in recall_hosted([word, HI])] == ["function_call_output", "message"]
