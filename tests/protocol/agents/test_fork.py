"""What a new agent knows of its parent's conversation."""

from protocol.agents.stage import action, function, message, output, user

from gateway.protocol.agents.fork import fork_history
from gateway.protocol.agents.mail import Mail, MailKind

REASONING = {"type": "reasoning", "summary": []}
COMPACTION = {"type": "compaction", "encrypted_content": "x"}


def mail(kind):
    return Mail(kind=kind, author="/root", recipient="/root/a", payload="p").to_item()


def test_all_is_all_that_is_settled():
    items = [COMPACTION, user("x"), function("a"), output("a"), message("y")]
    assert fork_history(items, None) == items


def test_reasoning_and_calls_without_outputs_stay_behind():
    cut = {**function("c"), "status": "incomplete"}
    assert fork_history([user("x"), REASONING, function("a"), action("b", "wait_agent"), cut], None) == [user("x")]


def test_a_call_that_only_has_a_stand_in_stays_behind():
    items = [user("x"), function("a"), output("a", "interrupted"), function("b"), output("b")]
    assert fork_history(items, None, unanswered={"a": None}) == [items[0], *items[3:]]


def test_an_approved_call_comes_with_what_came_of_it_or_not_at_all():
    request = {"type": "mcp_approval_request", "id": "mcpr_1"}
    granted = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert fork_history([request, granted, user("x")], None) == [user("x")]
    ran = [request, granted, user("x"), output("mcpr_1")]
    assert fork_history(ran, None) == ran


def test_none_is_nothing():
    assert fork_history([user("x"), message("y")], 0) == []


def test_turns_begin_with_users_and_tasks():
    items = [
        {"type": "message", "role": "developer", "content": "d"},
        user("1"),
        user("1b"),
        message("y"),
        mail(MailKind.MESSAGE),
        mail(MailKind.NEW_TASK),
        message("z"),
        mail(MailKind.FINAL_ANSWER),
    ]
    assert fork_history(items, 1) == items[5:]
    assert fork_history(items, 2) == items[1:]
    assert fork_history(items, 3) == items


def test_an_output_does_not_come_without_its_call():
    items = [user("1"), function("a"), user("2"), output("a"), message("z")]
    assert fork_history(items, 1) == [user("2"), message("z")]
