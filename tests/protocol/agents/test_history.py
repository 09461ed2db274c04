"""What a model is shown of calls, outputs and mail."""

from protocol.agents.stage import action, function, message, output, user

from gateway.protocol.agents.history import build_note, find_covered, match_calls, recall_agents
from gateway.protocol.agents.mail import Mail, MailKind

MAIL = Mail(kind=MailKind.MESSAGE, author="/root", recipient="/root/a", payload="hi")
STAND_IN = '{"status": "interrupted"}'


def action_output(call_id, text):
    return {"type": "multi_agent_call_output", "call_id": call_id, "action": "list_agents", "output": text}


def told(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def test_actions_are_functions_and_mail_is_what_a_user_says():
    items = [
        user("go"),
        action("c1", "list_agents", '{"path_prefix":"a"}'),
        action_output("c1", "{}"),
        MAIL.to_item(),
        build_note("c0", "T", "late"),
        message("done"),
    ]
    assert recall_agents(items) == [
        user("go"),
        {"type": "function_call", "call_id": "c1", "name": "list_agents", "arguments": '{"path_prefix":"a"}'},
        output("c1", "{}"),
        told(MAIL.show()),
        told("[The call of `T` (c0), which was interrupted, has its output now.]\nlate"),
        message("done"),
    ]


def test_outputs_stand_behind_their_calls():
    a, b = function("a"), function("b")
    items = [a, b, output("b", "2"), MAIL.to_item(), output("a", "1")]
    assert recall_agents(items) == [a, output("a", "1"), b, output("b", "2"), told(MAIL.show())]


def test_approvals_stand_behind_their_requests():
    request = {"type": "mcp_approval_request", "id": "mcpr_1"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False}
    assert recall_agents([request, user("x"), answer]) == [request, answer, user("x")]


def test_an_approved_call_has_its_output_behind_its_approval():
    request = {"type": "mcp_approval_request", "id": "mcpr_1"}
    granted = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    ran = {"type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1", "output": "x"}
    for result in (output("mcpr_1"), ran):
        assert recall_agents([request, granted, user("y"), result]) == [request, granted, result, user("y")]
        assert find_covered([request, granted, user("y"), result]) == 4
    assert recall_agents([request, granted]) == [request, granted, output("mcpr_1", STAND_IN)]
    assert find_covered([user("x"), request, granted]) == 1


def test_a_call_without_an_output_has_a_stand_in():
    assert recall_agents([function("a"), user("x")]) == [function("a"), output("a", STAND_IN), user("x")]
    assert recall_agents([action("a", "wait_agent")])[1] == output("a", STAND_IN)


def test_calls_that_were_cut_short_are_left_out():
    cut = {**function("a"), "status": "incomplete"}
    assert recall_agents([cut, message("x")]) == [message("x")]


def test_an_output_belongs_to_the_nearest_call_of_its_id():
    items = [output("a"), function("a"), output("a"), output("a"), function("a")]
    assert match_calls(items) == {1: [2], 4: []}
    assert recall_agents(items)[0] == output("a")
    search = {"type": "tool_search_call", "call_id": None}
    assert match_calls([search, {"type": "tool_search_output", "call_id": None}]) == {}


def test_a_summary_covers_what_is_before_the_first_open_call():
    items = [user("x"), function("a"), output("a"), function("b"), user("y")]
    assert find_covered(items) == 3
    assert find_covered(items[:3]) == 3
    assert find_covered([]) == 0


def test_it_parts_no_output_from_its_call():
    items = [function("a"), function("b"), output("b"), function("c"), output("a"), user("x")]
    assert find_covered(items) == 0
    chained = [function("a"), function("b"), output("a"), function("c"), output("b")]
    assert find_covered(chained) == 0
