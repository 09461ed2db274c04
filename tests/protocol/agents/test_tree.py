"""Rounds, answers and the end of a tree's work."""

import pytest
from protocol.agents.stage import CLIENT, NOBODY, Stage, message, output, user

from gateway.protocol.agents.agent import Call, Completed, Errored, Phase, Running, show_status
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.tree import Tree


def test_a_tree_begins_with_an_idle_root():
    tree = Tree(Bounds())
    assert list(tree.agents) == ["/root"]
    assert tree.agents["/root"].is_idle
    assert tree.is_quiescent
    assert (tree.size, tree.call_ids, tree.active) == (0, set(), 0)


def test_a_request_starts_the_root_with_what_the_user_said():
    stage = Stage()
    assert [agent.path for agent in stage.tree.runnable()] == ["/root"]
    assert stage["/root"].history == [user("go")]
    assert show_status(stage["/root"].status) == "running"


def test_a_message_without_calls_is_the_answer():
    stage = Stage()
    stage.play("/root", say="hi")
    assert stage["/root"].status == Completed("hi")
    assert stage["/root"].history == [user("go"), message("hi")]
    assert stage.tree.is_quiescent
    assert not stage.tree.has_pending_calls


@pytest.mark.agents(16)
def test_text_beside_a_call_is_no_answer():
    stage = Stage()
    (call,) = stage.play("/root", ("T", {}), say="a")
    assert stage["/root"].phase is Phase.BLOCKED
    assert stage["/root"].status == Running()
    assert list(stage["/root"].calls) == [call]
    assert stage.tree.call_ids == {call}
    assert stage.tree.is_quiescent
    assert stage.tree.has_pending_calls


@pytest.mark.agents(19)
def test_an_agent_that_only_thinks_is_asked_twice_more():
    stage = Stage()
    stage.play("/root")
    stage.play("/root", say="")
    assert stage["/root"].phase is Phase.RUNNABLE
    stage.play("/root")
    assert stage["/root"].status == Errored("it wrote neither an answer nor a call")


def test_calls_begin_the_count_of_empty_rounds_anew():
    stage = Stage()
    for _ in range(3):
        stage.play("/root")
        stage.play("/root")
        stage.play("/root", ("list_agents", {}))
    assert stage["/root"].phase is Phase.RUNNABLE


def test_rounds_of_one_work_are_counted():
    stage = Stage(max_rounds_per_activation=2)
    assert not stage.tree.is_exhausted(stage["/root"])
    stage.play("/root", ("list_agents", {}))
    stage.play("/root", ("list_agents", {}))
    assert stage.tree.is_exhausted(stage["/root"])
    stage.tree.fail(stage["/root"], "too long")
    stage.tree.take_input([user("more")])
    assert not stage.tree.is_exhausted(stage["/root"])


@pytest.mark.agents(33)
def test_an_answer_is_mail_to_the_parent_at_its_next_boundary():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", say="six weeks")
    assert stage["alpha"].status == Completed("six weeks")
    (mail,) = stage.enter("/root")
    assert (mail.kind, mail.author, mail.recipient, mail.payload) == (
        "FINAL_ANSWER",
        "/root/alpha",
        "/root",
        "six weeks",
    )
    assert stage["/root"].history[-1] == mail.to_item()


@pytest.mark.agents(58)
def test_a_child_that_fails_tells_its_parent_and_no_one_else_stops():
    stage = Stage()
    stage.spawn("alpha", "beta")
    stage.enter("alpha")
    stage.tree.fail(stage["alpha"], "upstream error")
    assert stage["alpha"].status == Errored("upstream error")
    assert [mail.payload for mail in stage.enter("/root")] == ["[agent failed] upstream error"]
    assert stage["beta"].phase is Phase.RUNNABLE


@pytest.mark.agents(26)
def test_an_agent_of_an_agent_answers_to_that_one():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", ("spawn_agent", {"task_name": "tester", "message": "m"}))
    stage.play("alpha/tester", say="ok")
    assert stage["alpha"].has_mail
    assert not stage["/root"].has_mail


@pytest.mark.agents(59)
def test_a_tree_goes_on_while_a_child_does():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("/root", say="done")
    assert not stage.tree.is_quiescent
    stage.play("alpha", say="late")
    assert stage.tree.is_quiescent
    assert not stage.tree.revive_root()
    assert [mail.payload for mail in stage.tree.flush_mail()] == ["late"]
    assert stage["/root"].rounds == 2
    assert stage.texts("/root") == ["late"]


@pytest.mark.agents(60)
def test_a_root_that_has_mail_and_did_not_answer_goes_on_once():
    first = Stage()
    first.spawn("alpha")
    first.play("/root", say="see you")
    (call,) = first.play("alpha", ("T", {}))
    stage = first.again()
    stage.tree.take_input([output(call)])
    assert [agent.path for agent in stage.tree.runnable()] == ["/root/alpha"]
    stage.play("alpha", say="found")
    assert stage.tree.is_quiescent
    assert stage.tree.revive_root()
    stage.play("/root", say="here it is")
    assert stage.texts("/root") == ["found"]
    assert not stage.tree.revive_root()


@pytest.mark.parametrize(("wanted", "mail"), [(False, True), (True, False)])
def test_a_root_rests_where_that_is_not_wanted_or_it_has_no_mail(wanted, mail):
    first = Stage()
    first.spawn("alpha")
    first.play("/root", say="see you")
    (call,) = first.play("alpha", ("T", {}))
    stage = first.again(finish_unanswered_root=wanted)
    stage.tree.take_input([output(call)])
    if mail:
        stage.play("alpha", say="found")
    assert not stage.tree.revive_root()


def test_flushed_mail_starts_nobody_and_new_tasks_stay():
    stage = Stage()
    stage.spawn("alpha", "beta")
    stage.play("alpha", ("T", {}))
    stage.play(
        "beta",
        ("followup_task", {"target": "/root/alpha", "message": "more"}),
        ("send_message", {"target": "/root/alpha", "message": "note"}),
    )
    assert [mail.payload for mail in stage.tree.flush_mail()] == ["note"]
    assert stage["alpha"].phase is Phase.BLOCKED
    assert [mail.payload for mail in stage["alpha"].mailbox] == ["more"]


@pytest.mark.agents(46)
def test_parked_agents_go_on_when_what_they_wait_for_has_come():
    first = Stage()
    first.spawn("alpha")
    first.play("/root", ("wait_agent", {}))
    (call,) = first.play("alpha", ("T", {}))
    assert [wait.output for wait in first.waits()] == [CLIENT]
    assert first["/root"].phase is Phase.PARKED
    assert first.tree.is_quiescent
    stage = first.again()
    stage.tree.take_input([output(call)])
    assert stage.waits() == []
    assert [agent.path for agent in stage.tree.runnable()] == ["/root/alpha"]
    stage.play("alpha", say="six weeks")
    assert stage.waits() == []
    assert [agent.path for agent in stage.tree.runnable()] == ["/root"]


def test_a_parked_root_goes_on_with_what_the_user_says():
    first = Stage()
    first.spawn("alpha")
    first.play("/root", ("wait_agent", {}))
    (call,) = first.play("alpha", ("T", {}))
    first.waits()
    stage = first.again()
    stage.tree.take_input([output(call), user("hurry")])
    assert [agent.path for agent in stage.tree.runnable()] == ["/root", "/root/alpha"]


def test_the_size_is_that_of_histories_and_mail_that_waits():
    stage = Stage()
    before = stage.tree.size
    stage.spawn("alpha")
    stage.play("alpha", ("send_message", {"target": "/root", "message": "x" * 1000}))
    with_mail = stage.tree.size
    assert with_mail > before + 2000
    stage.enter("/root")
    assert stage.tree.size == with_mail


def test_calls_of_the_gateways_tools_come_with_their_outputs():
    stage = Stage()
    stage.enter("/root")
    tree, root = stage.tree, stage["/root"]
    calls = [Call(call_id="mcp_1", kind="gateway"), Call(call_id="mcpr_1", kind="client")]
    tree.end_round(root, [{"type": "mcp_approval_request", "id": "mcpr_1", "name": "buy"}], calls)
    called = {"type": "function_call", "call_id": "mcp_1", "name": "find", "arguments": "{}"}
    tree.answer_gateway_call(root, [called, output("mcp_1")])
    tree.settle(root, None)
    assert root.phase is Phase.BLOCKED
    assert root.calls["mcpr_1"].name == "buy"
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert tree.take_outputs([approval]) == ["/root"]
    size = tree.size
    bought = {"type": "function_call", "call_id": "mcpr_1", "name": "buy", "arguments": "{}"}
    tree.answer_gateway_call(root, [bought, output("mcpr_1")])
    assert root.history[1:] == [bought, called, output("mcp_1"), approval, output("mcpr_1")]
    assert tree.size > size
    assert root.phase is Phase.RUNNABLE


@pytest.mark.agents(61)
def test_a_wait_of_which_nothing_can_come_ends_without_time_passing():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", ("wait_agent", {"timeout_ms": 120_000}))
    assert stage.waits() == []
    stage.play("/root", say="done")
    assert [wait.output for wait in stage.waits(0)] == [NOBODY]
    stage.play("alpha", say="bye")
    assert stage.tree.is_quiescent
