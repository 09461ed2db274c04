"""Histories that are summarized while everything else goes on."""

import pytest
from protocol.agents.stage import Stage, output, user

from gateway.protocol.agents.agent import Interrupted, Phase

SUMMARY = [user("go"), {"type": "compaction", "encrypted_content": "short"}]


@pytest.mark.agents(115)
def test_what_came_meanwhile_stands_behind_the_summary():
    stage = Stage()
    stage.spawn("alpha")
    stage.enter("/root")
    covered = stage.tree.begin_compaction(stage["/root"])
    assert covered == len(stage["/root"].history)
    assert stage["/root"].phase is Phase.COMPACTING
    stage.play("alpha", ("send_message", {"target": "/root", "message": "note"}))
    stage.play("alpha", say="answer")
    size = stage.tree.size
    stage.tree.end_compaction(stage["/root"], SUMMARY, covered)
    assert stage["/root"].history == SUMMARY
    assert stage["/root"].phase is Phase.INFERRING
    assert stage.tree.size < size
    stage.write("/root", ("list_agents", {}))
    stage.tree.settle(stage["/root"], None)
    stage.enter("/root")
    assert stage.texts("/root") == ["note", "answer"]


@pytest.mark.agents(114, 123, 124)
def test_calls_without_outputs_are_not_summarized():
    stage = Stage()
    (call,) = stage.play("/root", ("T", {}))
    covered = stage.tree.begin_compaction(stage["/root"])
    assert covered == 1
    stage.tree.take_outputs([output(call)])
    assert stage["/root"].phase is Phase.COMPACTING
    stage.tree.end_compaction(stage["/root"], SUMMARY, covered)
    assert [item["type"] for item in stage["/root"].history] == [
        "message", "compaction", "function_call", "function_call_output",
    ]  # fmt: skip
    assert stage["/root"].phase is Phase.RUNNABLE


@pytest.mark.agents(131)
def test_a_blocked_root_is_blocked_afterwards():
    stage = Stage()
    stage.play("/root", ("T", {}))
    stage.tree.end_compaction(stage["/root"], SUMMARY, stage.tree.begin_compaction(stage["/root"]))
    assert stage["/root"].phase is Phase.BLOCKED


def test_an_interrupted_call_is_summarized_once_its_stand_in_was_shown():
    stage = Stage()
    stage.spawn("alpha")
    (call,) = stage.play("alpha", ("T", {}))
    stage.ask("/root", "interrupt_agent", target="alpha")
    stage.ask("/root", "followup_task", target="alpha", message="m")
    alpha = stage["alpha"]
    covered = stage.tree.begin_compaction(alpha)
    assert alpha.history[covered]["call_id"] == call
    stage.tree.end_compaction(alpha, None, covered)
    stage.tree.enter(alpha)
    # At its boundary the model has not been asked yet.
    assert stage.tree.begin_compaction(alpha) == covered
    stage.tree.end_compaction(alpha, None, covered)
    stage.tree.begin_inference(alpha)
    assert stage.tree.begin_compaction(alpha) == len(alpha.history)
    stage.tree.end_compaction(alpha, SUMMARY, len(alpha.history))
    stage.tree.take_outputs([output(call, "late")])
    assert "`T`" in alpha.history[-1]["text"]


@pytest.mark.agents(119)
def test_a_summary_that_failed_leaves_all_as_it_was_and_is_counted():
    stage = Stage()
    root = stage["/root"]
    for failures in (1, 2):
        stage.tree.end_compaction(root, None, stage.tree.begin_compaction(root))
        assert (root.failures, root.history, root.phase) == (failures, [user("go")], Phase.RUNNABLE)
    stage.tree.end_compaction(root, SUMMARY, stage.tree.begin_compaction(root))
    assert root.failures == 0


@pytest.mark.agents(116)
def test_an_interrupt_stops_an_agent_after_its_summary():
    stage = Stage()
    stage.spawn("alpha")
    covered = stage.tree.begin_compaction(stage["alpha"])
    stage.ask("/root", "interrupt_agent", target="alpha")
    assert stage.outcomes[0].cut is None
    stage.tree.end_compaction(stage["alpha"], SUMMARY, covered)
    assert stage["alpha"].history == SUMMARY
    assert stage["alpha"].status == Interrupted()


@pytest.mark.agents(116)
def test_a_fork_takes_the_summary_and_not_what_it_stands_for():
    stage = Stage()
    stage.ask("/root", "list_agents")
    stage.tree.end_compaction(stage["/root"], SUMMARY, stage.tree.begin_compaction(stage["/root"]))
    stage.spawn("alpha")
    assert stage["alpha"].history[:-1] == SUMMARY


@pytest.mark.agents(115)
def test_an_agent_whose_summary_is_made_is_at_work():
    stage = Stage()
    stage.spawn("alpha")
    stage.tree.begin_compaction(stage["alpha"])
    stage.play("/root", ("wait_agent", {}))
    assert stage.waits() == []
    assert not stage.tree.is_quiescent
    assert stage.tree.active == 1
