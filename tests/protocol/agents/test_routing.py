"""Whose the outputs are."""

import pytest
from protocol.agents.stage import Stage, function, message, output, user

from gateway.protocol.agents.agent import Completed, Phase, Running
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.history import recall_agents
from gateway.protocol.agents.tree import Tree
from gateway.protocol.errors import InvalidRequest

APPROVAL = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


def blocked(**bounds):
    """Return a stage whose agents alpha and beta wait for outputs of calls, and what the calls are."""
    stage = Stage(**bounds)
    stage.spawn("alpha", "beta")
    calls = [*stage.play("alpha", ("T", {}), ("T", {})), *stage.play("beta", ("T", {}))]
    stage.play("/root", say="wait")
    return stage, calls


def refuse(tree, items):
    before = [(agent.phase, list(agent.history), dict(agent.calls)) for agent in tree.agents.values()]
    with pytest.raises(InvalidRequest) as caught:
        tree.take_input(items)
    assert [(agent.phase, list(agent.history), dict(agent.calls)) for agent in tree.agents.values()] == before
    return caught.value.code, caught.value.param, caught.value.message


@pytest.mark.agents(91)
def test_outputs_go_to_those_who_wait_and_all_else_to_the_root():
    stage, (a, b, c) = blocked()
    stage.tree.take_input([output(a), user("also this"), output(c), output(b)])
    assert stage["alpha"].history[-2:] == [output(a), output(b)]
    assert stage["beta"].history[-1] == output(c)
    assert stage["/root"].history[-1] == user("also this")
    assert len(stage.tree.runnable()) == 3


@pytest.mark.agents(17)
def test_outputs_alone_do_not_start_an_idle_root():
    stage, calls = blocked()
    stage.tree.take_input([output(call) for call in calls])
    assert [agent.path for agent in stage.tree.runnable()] == ["/root/alpha", "/root/beta"]
    assert stage["/root"].status == Completed("wait")


def test_what_a_user_says_to_a_busy_root_stands_behind_its_calls():
    stage = Stage()
    (call,) = stage.play("/root", ("T", {}))
    stage.tree.take_input([user("and?"), output(call)])
    assert stage["/root"].phase is Phase.RUNNABLE
    assert stage["/root"].rounds == 0
    shown = recall_agents(stage["/root"].history)
    assert [item["type"] for item in shown] == ["message", "function_call", "function_call_output", "message"]


def test_no_input_at_all_starts_the_root():
    stage = Stage()
    stage.play("/root", say="x")
    stage.tree.take_input([])
    assert stage["/root"].phase is Phase.RUNNABLE


@pytest.mark.agents(18)
def test_input_that_does_not_fit_the_calls_is_refused_and_changes_nothing():
    stage, (a, b, c) = blocked()
    tree, all_but_one = stage.tree, [output(a), output(b)]
    assert refuse(tree, all_but_one) == (
        "missing_tool_output",
        "input",
        f"No tool output found for call {c}; give one for every call that waits.",
    )
    assert refuse(tree, [output("nobody")]) == (
        "invalid_tool_output",
        "input[0].call_id",
        "No agent waits for an output of call nobody; send outputs of calls that wait, each once.",
    )
    assert refuse(tree, [output(a), output(a)])[1:] == (
        "input[1].call_id",
        f"Call {a} has more than one output in this input.",
    )
    custom = {"type": "custom_tool_call_output", "call_id": a, "output": "x"}
    assert refuse(tree, [custom])[2] == f"Call {a} is a function_call; its output cannot be a custom_tool_call_output."
    assert refuse(tree, [APPROVAL])[1] == "input[0].approval_request_id"
    tree.take_input([*all_but_one, output(c)])


def test_calls_in_the_input_itself_are_the_roots():
    stage, calls = blocked()
    given = [output(call) for call in calls]
    example = [function("mine"), output("mine")]
    assert refuse(stage.tree, [*given, function("mine")])[0] == "missing_tool_output"
    stage.tree.take_input([*given, *example])
    assert stage["/root"].history[-2:] == example
    assert "mine" in stage.tree.call_ids


@pytest.mark.agents(131)
def test_calls_may_go_on_waiting_while_the_root_is_summarized():
    stage, _ = blocked()
    stage.tree.take_input([], complete=False)
    assert stage.tree.runnable() == []


@pytest.mark.agents(73)
def test_an_agent_goes_on_with_its_last_output():
    stage, (a, b, _) = blocked()
    assert stage.tree.take_outputs([output(a)]) == ["/root/alpha"]
    assert stage["alpha"].phase is Phase.BLOCKED
    assert stage.tree.take_outputs([output(b)]) == ["/root/alpha"]
    assert stage["alpha"].phase is Phase.RUNNABLE
    assert stage["beta"].phase is Phase.BLOCKED


@pytest.mark.agents(74)
def test_one_batch_may_be_for_several_agents():
    stage, (a, b, c) = blocked()
    assert stage.tree.take_outputs([output(c), output(a), output(b)]) == ["/root/beta", "/root/alpha"]
    assert len(stage.tree.runnable()) == 2


@pytest.mark.agents(70, 71, 72, 75, 76)
def test_injected_outputs_are_checked_one_rule_after_the_other():
    stage, (a, b, c) = blocked()

    def check(*items):
        rejection = stage.tree.check_outputs(items, "resp_1")
        return rejection and (rejection.code, rejection.message)

    no_list = {"type": "multi_agent_call_output", "call_id": a, "output": "x"}
    custom = {"type": "custom_tool_call_output", "call_id": b, "output": "x"}
    other = f"Tool call '{b}' is a function_call; its output has another type."
    assert check() == ("invalid_input", "'input' must hold at least one tool output.")
    assert check(output("x"), user("hi")) == (
        "invalid_input",
        "An item of type 'message' is no output of a client's tool.",
    )
    assert check(no_list)[1] == "An item of type 'multi_agent_call_output' is no output of a client's tool."
    assert check(output(a), output("x"), output(a)) == ("invalid_input", f"Tool call '{a}' already has an output.")
    assert check(custom, output("x")) == ("invalid_input", "Tool call 'x' is not pending on response 'resp_1'.")
    assert check(output(a), custom) == ("invalid_input", other)
    assert check(output(a), output(c)) is None
    stage.tree.take_outputs([output(a)])
    assert check(output(a)) == ("invalid_input", f"Tool call '{a}' already has an output.")


class Counted(list):
    """A history that counts how often it was read through."""

    reads = 0

    def __iter__(self):
        self.reads += 1
        return super().__iter__()


def test_a_flood_of_outputs_reads_each_history_once():
    stage, calls = blocked()
    root = stage["/root"]
    root.history = Counted(root.history)
    rejection = stage.tree.check_outputs([output(f"x{number}") for number in range(1000)], "resp_1")
    assert rejection.message == "Tool call 'x0' is not pending on response 'resp_1'."
    assert root.history.reads <= 1
    assert "'x0'" in stage.tree.check_outputs([output(calls[0]), output("x0"), output("x1")], "resp_1").message


def test_no_more_of_an_id_is_repeated_than_can_be_read():
    stage, _ = blocked()
    assert len(stage.tree.check_outputs([output("x" * 100_000)], "resp_1").message) < 200


def test_what_was_answered_in_an_earlier_response_is_known():
    stage, calls = blocked()
    stage.tree.take_outputs([output(call) for call in calls])
    stage.rest()
    rejection = stage.again().tree.check_outputs([output(calls[0])], "resp_2")
    assert rejection.message == f"Tool call '{calls[0]}' already has an output."


@pytest.mark.agents(53)
@pytest.mark.parametrize(("given", "text"), [("real", "real"), ([{"type": "input_text"}], '[{"type":"input_text"}]')])
def test_an_output_for_a_call_whose_stand_in_was_shown_is_a_note(given, text):
    stage, (a, b, _) = blocked()
    stage.tree.take_input([user("x")], complete=False)
    stop = ("interrupt_agent", {"target": "alpha"})
    stage.play("/root", stop, ("followup_task", {"target": "alpha", "message": "m"}))
    stage.tree.take_outputs([output(a, "in time")])
    stage.enter("alpha")
    stage.tree.take_outputs([output(b, given)])
    assert stage["alpha"].history[-1]["type"] == "agent_note"
    shown = recall_agents(stage["alpha"].history)
    assert output(a, "in time") in shown
    assert output(b, '{"status": "interrupted"}') in shown
    assert shown[-1]["content"][0]["text"].endswith(f"({b}), which was interrupted, has its output now.]\n{text}")
    assert stage.tree.check_outputs([output(b)], "r").message == f"Tool call '{b}' already has an output."


def test_a_conversation_without_agents_becomes_the_roots():
    history = [
        user("x"),
        function("a"),
        output("a"),
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "buy"},
        {**function("cut"), "status": "incomplete"},
        {"type": "custom_tool_call", "call_id": "b", "name": "grep", "input": "x"},
    ]
    tree = Tree.adopt(history, Bounds())
    root = tree.agents["/root"]
    assert (root.phase, root.status) == (Phase.BLOCKED, Running())
    assert [item for item in history if item.get("call_id") != "cut"] == root.history
    assert refuse(tree, [user("y")])[0] == "missing_tool_output"
    answer = {"type": "custom_tool_call_output", "call_id": "b", "output": "y"}
    tree.take_input([answer, APPROVAL])
    assert root.phase is Phase.RUNNABLE


def test_an_id_that_a_conversation_used_twice_may_be_answered_twice():
    tree = Tree.adopt([function("a"), output("a"), function("a")], Bounds())
    assert tree.check_outputs([output("a")], "r") is None
    tree.take_outputs([output("a")])
    assert tree.check_outputs([output("a")], "r") is not None


def test_a_conversation_that_waits_for_nothing_leaves_an_idle_root():
    tree = Tree.adopt([user("x"), message("y")], Bounds())
    assert tree.is_quiescent
    assert tree.agents["/root"].is_idle
