"""When waits are over."""

import pytest
from protocol.agents.stage import CLIENT, NOBODY, WAIT_DONE, WAIT_OVER, Stage, error_of, output

from gateway.protocol.agents.agent import Phase

WAIT = ("wait_agent", {})


def texts(ended):
    return [(wait.agent, wait.output) for wait in ended]


@pytest.mark.agents(42)
def test_mail_that_is_there_already_ends_a_wait_at_once():
    stage = Stage()
    stage.spawn("alpha")
    stage.enter("/root")
    stage.play("alpha", say="done")
    stage.write("/root", WAIT)
    stage.tree.settle(stage["/root"], None)
    assert stage.outcomes[0].output == WAIT_DONE
    assert stage["/root"].phase is Phase.RUNNABLE
    assert stage.waits() == []


@pytest.mark.agents(38)
def test_a_task_that_waits_is_no_mail_to_wait_for():
    stage = Stage()
    stage.spawn("alpha")
    stage.ask("/root", "followup_task", target="alpha", message="next")
    stage.play("alpha", WAIT)
    assert stage.outcomes[0].output is None
    assert stage["alpha"].phase is Phase.WAITING


@pytest.mark.agents(43)
def test_mail_ends_a_wait_and_is_read_at_the_next_boundary():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("/root", WAIT)
    assert stage.outcomes[0].output is None
    assert stage["/root"].phase is Phase.WAITING
    assert stage.waits(29) == []
    stage.play("alpha", say="done")
    assert texts(stage.waits(29)) == [("/root", WAIT_DONE)]
    assert stage["/root"].history[-1]["output"] == WAIT_DONE
    assert [mail.payload for mail in stage.enter("/root")] == ["done"]


@pytest.mark.agents(44)
def test_time_ends_a_wait():
    stage = Stage()
    stage.spawn("alpha")
    assert stage.tree.next_deadline() is None
    stage.now = 5
    stage.play("/root", ("wait_agent", {"timeout_ms": 12_000}))
    assert stage.tree.next_deadline() == 17
    assert stage.waits(16.9) == []
    assert texts(stage.waits(17)) == [("/root", WAIT_OVER)]
    assert stage.tree.next_deadline() is None
    assert stage["/root"].phase is Phase.RUNNABLE


@pytest.mark.agents(45)
def test_a_wait_for_nobody_is_over_at_once():
    stage = Stage()
    stage.play("/root", WAIT)
    assert texts(stage.waits()) == [("/root", NOBODY)]
    assert stage["/root"].phase is Phase.RUNNABLE


def test_a_wait_is_for_those_too_who_are_spawned_behind_it():
    stage = Stage()
    stage.play("/root", WAIT, ("spawn_agent", {"task_name": "alpha", "message": "m"}))
    assert stage.waits() == []


@pytest.mark.agents(46)
def test_who_waits_for_the_client_is_parked_where_the_client_cannot_answer():
    stage = Stage()
    stage.spawn("alpha", "beta")
    stage.play("alpha", ("T", {}))
    stage.play("beta", WAIT)
    stage.play("/root", WAIT)
    assert texts(stage.waits()) == [("/root", CLIENT), ("/root/beta", CLIENT)]
    assert [stage[path].phase for path in ("/root", "alpha", "beta")] == [Phase.PARKED, Phase.BLOCKED, Phase.PARKED]
    assert stage.tree.runnable() == []
    assert stage.tree.is_quiescent
    assert stage.waits(10**6) == []


@pytest.mark.agents(47)
def test_who_waits_for_the_client_goes_on_waiting_where_the_client_can_answer():
    stage = Stage(live=True)
    stage.spawn("alpha")
    (call,) = stage.play("alpha", ("T", {}))
    stage.play("/root", WAIT)
    assert stage.waits(29) == []
    assert not stage.tree.is_quiescent
    assert stage.tree.take_outputs([output(call)]) == ["/root/alpha"]
    stage.play("alpha", say="done")
    assert texts(stage.waits(29)) == [("/root", WAIT_DONE)]


@pytest.mark.agents(48)
@pytest.mark.parametrize(("asked", "seconds"), [(1, 10), (10**9, 3600), (-5, 10), (20_000, 20), (None, 30)])
def test_a_wait_is_neither_too_short_nor_too_long(asked, seconds):
    stage = Stage()
    stage.spawn("alpha")
    stage.play("/root", ("wait_agent", {"timeout_ms": asked}))
    assert stage.tree.next_deadline() == seconds


@pytest.mark.agents(49)
def test_a_round_has_one_wait():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("/root", WAIT, WAIT)
    assert stage.outcomes[0].output is None
    assert error_of(stage.outcomes[1].output) == "only one wait_agent can be called at a time"
    stage.play("alpha", say="done")
    stage.waits()
    assert stage["/root"].phase is Phase.RUNNABLE
    stage.play("/root", WAIT)
    assert texts(stage.waits()) == [("/root", NOBODY)]


@pytest.mark.agents(50)
@pytest.mark.parametrize("live", [False, True])
def test_two_that_wait_for_each_other_go_on_at_once(live):
    stage = Stage(live=live)
    stage.spawn("alpha")
    stage.play("alpha", WAIT)
    stage.play("/root", WAIT)
    assert texts(stage.waits()) == [("/root", NOBODY), ("/root/alpha", NOBODY)]
    assert len(stage.tree.runnable()) == 2


def test_a_wait_beside_a_call_leaves_its_agent_blocked():
    stage = Stage()
    (_, call) = stage.play("/root", WAIT, ("T", {}))
    assert stage["/root"].phase is Phase.WAITING
    assert texts(stage.waits()) == [("/root", NOBODY)]
    assert stage["/root"].phase is Phase.BLOCKED
    stage.tree.take_outputs([output(call)])
    assert stage["/root"].phase is Phase.RUNNABLE


def test_an_output_leaves_a_waiting_agent_waiting():
    stage = Stage(live=True)
    stage.spawn("alpha")
    (_, call) = stage.play("/root", WAIT, ("T", {}))
    stage.tree.take_outputs([output(call)])
    assert stage["/root"].phase is Phase.WAITING


def test_who_waits_with_calls_of_others_waiting_is_parked_or_blocked():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", WAIT, ("T", {}))
    stage.play("/root", WAIT)
    assert texts(stage.waits()) == [("/root", CLIENT), ("/root/alpha", NOBODY)]
    assert [stage[path].phase for path in ("/root", "alpha")] == [Phase.PARKED, Phase.BLOCKED]


def test_of_two_that_wait_for_each_other_the_one_with_a_call_may_still_be_answered():
    stage = Stage(live=True)
    stage.spawn("alpha")
    stage.play("alpha", WAIT, ("T", {}))
    stage.play("/root", WAIT)
    assert texts(stage.waits()) == [("/root/alpha", NOBODY)]
    assert stage["alpha"].phase is Phase.BLOCKED
    assert stage["/root"].phase is Phase.WAITING


def test_a_wait_may_end_while_other_calls_are_carried_out():
    stage = Stage()
    stage.spawn("alpha")
    stage.enter("/root")
    stage.write("/root", WAIT)
    assert stage.waits() == []
    stage.play("alpha", say="done")
    assert texts(stage.waits()) == [("/root", WAIT_DONE)]
    assert stage["/root"].phase is Phase.ACTING
    stage.tree.settle(stage["/root"], None)
    assert stage["/root"].phase is Phase.RUNNABLE


def test_the_parked_go_on_when_nobody_needs_the_client_any_more():
    stage = Stage()
    stage.spawn("alpha", "beta")
    stage.play("/root", say="bye")
    (call,) = stage.play("alpha", ("T", {}))
    stage.play("beta", ("send_message", {"target": "/root", "message": "psst"}))
    stage.play("beta", WAIT)
    assert texts(stage.waits()) == [("/root/beta", CLIENT)]
    assert stage.tree.is_quiescent
    stage["/root"].answered = False
    assert stage.tree.revive_root()
    stage.play("/root", ("interrupt_agent", {"target": "alpha"}), WAIT)
    assert stage.waits() == []
    assert stage["beta"].phase is Phase.RUNNABLE
    assert list(stage["alpha"].late) == [call]
