"""What the six actions do."""

import json

import pytest
from protocol.agents.stage import Stage, action, error_of, output, user

from gateway.protocol.agents import acts
from gateway.protocol.agents.agent import Call, Completed, Interrupted, Phase
from gateway.protocol.codec import encode

SPAWN = "spawn_agent"


def spawning(name="alpha", **given):
    return (SPAWN, {"task_name": name, "message": f"do {name}", **given})


def errors(stage):
    return [error_of(outcome.output) for outcome in stage.outcomes]


# ---------------------------------------------------------------- spawn


@pytest.mark.agents(21)
def test_a_spawned_agent_has_its_task_before_the_output_is_told():
    stage = Stage()
    stage.play("/root", spawning())
    (outcome,) = stage.outcomes
    assert (outcome.output, outcome.spawned) == ('{"task_name": "/root/alpha"}', "/root/alpha")
    (task,) = outcome.delivered
    assert (task.kind, task.author, task.recipient, task.payload) == ("NEW_TASK", "/root", "/root/alpha", "do alpha")
    assert stage["alpha"].phase is Phase.RUNNABLE
    assert stage["alpha"].last_task == "do alpha"
    assert stage["/root"].phase is Phase.RUNNABLE


@pytest.mark.agents(23)
def test_without_a_fork_it_knows_its_task_alone():
    stage = Stage()
    stage.play("/root", spawning(fork_turns="none"))
    assert [item["type"] for item in stage["alpha"].history] == ["agent_message"]


@pytest.mark.agents(24)
def test_with_a_fork_it_knows_what_was_before_the_round_that_spawned_it():
    stage = Stage()
    stage.play("/root", ("list_agents", {}))
    stage.play("/root", ("list_agents", {}), spawning(), say="now")
    assert stage["alpha"].history[:-1] == stage["/root"].history[:3]
    assert [item["type"] for item in stage["alpha"].history] == [
        "message",
        "multi_agent_call",
        "multi_agent_call_output",
        "agent_message",
    ]


@pytest.mark.agents(25)
def test_a_fork_of_no_turns_makes_no_agent():
    stage = Stage()
    stage.play("/root", *(spawning(fork_turns=turns) for turns in ("0", "-1", "x")))
    assert len(set(errors(stage))) == 1
    assert 'fork_turns must be "all", "none"' in errors(stage)[0]
    assert list(stage.tree.agents) == ["/root"]


@pytest.mark.agents(27)
def test_a_name_is_taken_for_ever():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", say="done")
    stage.play("/root", spawning())
    assert errors(stage) == ["agent /root/alpha exists already; choose another task_name or use followup_task"]


@pytest.mark.agents(28)
def test_mistakes_are_outputs_and_the_agent_goes_on():
    stage = Stage()
    stage.play("/root", spawning("No!"), (SPAWN, {"task_name": "a"}), (SPAWN, "{"), spawning(x=1), spawning("ok"))
    outcomes = [json.loads(outcome.output) for outcome in stage.outcomes]
    assert [list(outcome) for outcome in outcomes] == [["error"]] * 4 + [["task_name"]]
    assert stage["/root"].phase is Phase.RUNNABLE
    assert list(stage.tree.agents) == ["/root", "/root/ok"]


@pytest.mark.agents(29, 30)
def test_so_many_agents_are_busy_as_are_allowed():
    stage = Stage(max_concurrent=2)
    stage.play("/root", spawning("a"), spawning("b"), spawning("c"))
    assert [outcome.spawned for outcome in stage.outcomes] == ["/root/a", "/root/b", None]
    assert "maximum concurrent subagent turns reached (2)" in error_of(stage.outcomes[2].output)
    assert stage.tree.active == 2
    stage.play("a", say="done")
    stage.spawn("c")


@pytest.mark.agents(31)
def test_an_agent_that_is_blocked_is_busy():
    stage = Stage(max_concurrent=1)
    stage.spawn("a")
    stage.play("a", ("T", {}))
    stage.play("/root", spawning("b"))
    assert "maximum concurrent" in errors(stage)[0]


def test_a_spawn_that_there_is_no_place_for_costs_nothing(monkeypatch):
    stage = Stage(max_concurrent=1)
    stage.spawn("a")
    stage.play("a", ("T", {}))
    monkeypatch.setattr(acts, "fork_history", None)
    stage.play("/root", *[spawning(f"b{number}") for number in range(3)])
    assert ["maximum concurrent" in error for error in errors(stage)] == [True] * 3


def test_a_history_is_measured_once():
    stage = Stage()
    stage.tree.take_input([user("x"), user("y" * 100)])
    root = stage["/root"]
    assert root.weigh(root.history[-1:]) == len(encode(user("y" * 100)))
    assert root.weigh(root.history) == stage.tree.size


@pytest.mark.agents(32)
def test_depth_and_number_are_bounded_where_they_are_to_be():
    stage = Stage(max_depth=1, max_agents_total=2)
    stage.spawn("a")
    stage.play("a", spawning("deep"))
    assert errors(stage) == ["agents may be at most 1 levels below /root; do this work yourself"]
    stage.spawn("b")
    stage.play("/root", spawning("c"))
    assert "at most 2 agents" in errors(stage)[0]
    free = Stage(max_depth=0, max_agents_total=0)
    free.spawn("a")
    free.play("a", spawning("b"))
    assert "/root/a/b" in free.tree.agents


def test_a_message_must_fit():
    stage = Stage(max_mail_bytes=7)
    stage.spawn("a", message="1234567")
    stage.play("/root", spawning(message="123456\u00e9"), ("send_message", {"target": "a", "message": "12345678"}))
    assert errors(stage) == ["message is longer than 7 bytes; shorten it"] * 2
    assert list(stage.tree.agents) == ["/root", "/root/a"]


@pytest.mark.parametrize(("asked", "given"), [("x" * 600, {}), ("x", {"message": "x" * 600})])
def test_what_a_new_agent_knows_must_fit_into_the_tree(asked, given):
    stage = Stage(max_tree_bytes=1400)
    stage.tree.take_input([user(asked)])
    stage.play("/root", spawning(**given), ("spawn_agent", {"task_name": "b", "message": "m", "fork_turns": "none"}))
    assert [outcome.spawned for outcome in stage.outcomes] == [None, "/root/b"]
    assert "no room left" in error_of(stage.outcomes[0].output)


# ---------------------------------------------------------------- messages


@pytest.mark.agents(34)
def test_a_message_is_delivered_at_the_recipients_next_boundary():
    stage = Stage()
    stage.spawn("alpha", "beta")
    stage.enter("beta")
    assert stage.ask("alpha", "send_message", target="/root/beta", message="psst") == ""
    assert stage.outcomes[0].delivered == ()
    assert "psst" not in stage.texts("beta")
    stage.write("beta", ("list_agents", {}))
    stage.tree.settle(stage["beta"], None)
    assert [mail.payload for mail in stage.enter("beta")] == ["psst"]


@pytest.mark.agents(35)
def test_a_message_starts_nobody_and_is_read_before_the_next_task():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", say="done")
    stage.ask("/root", "send_message", target="alpha", message="by the way")
    assert stage["alpha"].is_idle
    stage.ask("/root", "followup_task", target="alpha", message="again")
    assert [mail.payload for mail in stage.outcomes[0].delivered] == ["by the way", "again"]
    assert stage.texts("alpha")[-2:] == ["by the way", "again"]


@pytest.mark.agents(36)
def test_targets_are_named_from_the_caller_or_from_the_root():
    stage = Stage()
    stage.spawn("alpha")
    stage.play(
        "/root",
        ("send_message", {"target": "alpha", "message": "1"}),
        ("send_message", {"target": "/root/alpha", "message": "2"}),
        ("send_message", {"target": "beta", "message": "3"}),
        ("send_message", {"target": "/root", "message": "4"}),
    )
    assert [mail.payload for mail in stage["alpha"].mailbox] == ["1", "2"]
    assert [error_of(outcome.output) for outcome in stage.outcomes[2:]] == [
        "there is no agent /root/beta; list_agents shows all agents",
        "an agent cannot message itself",
    ]


@pytest.mark.agents(41)
def test_a_full_mailbox_takes_nothing():
    stage = Stage(max_mailbox_entries=1)
    stage.spawn("alpha")
    send = ("send_message", {"target": "alpha", "message": "1"})
    stage.play("/root", send, send, ("followup_task", {"target": "alpha", "message": "2"}))
    assert [error_of(outcome.output) for outcome in stage.outcomes[1:]] == [
        "the mailbox of /root/alpha is full; try again later"
    ] * 2
    assert len(stage["alpha"].mailbox) == 1


# ---------------------------------------------------------------- follow-ups


@pytest.mark.agents(37)
def test_a_task_for_an_idle_agent_is_delivered_at_once():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", say="one")
    assert stage.ask("/root", "followup_task", target="alpha", message="again") == ""
    assert [mail.payload for mail in stage.outcomes[0].delivered] == ["again"]
    assert stage["alpha"].phase is Phase.RUNNABLE
    assert stage["alpha"].last_task == "again"
    assert stage.enter("alpha") == []


@pytest.mark.agents(38)
def test_tasks_for_a_busy_agent_are_done_one_after_the_other():
    stage = Stage()
    stage.spawn("alpha")
    stage.play(
        "/root",
        ("followup_task", {"target": "alpha", "message": "two"}),
        ("send_message", {"target": "alpha", "message": "note"}),
        ("followup_task", {"target": "alpha", "message": "three"}),
    )
    assert stage.outcomes[0].delivered == ()
    assert [mail.payload for mail in stage.enter("alpha")] == ["note"]
    stage.write("alpha", say="1")
    stage.tree.settle(stage["alpha"], "1")
    stage.play("alpha", ("list_agents", {}))
    assert [mail.payload for mail in stage.mails] == ["two"]
    stage.play("alpha", say="2")
    assert stage.mails == []
    stage.play("alpha", say="3")
    assert [mail.payload for mail in stage.mails] == ["three"]
    assert stage["alpha"].status == Completed("3")
    assert stage["alpha"].rounds == 1
    assert [mail.payload for mail in stage.enter("/root")] == ["1", "2", "3"]


@pytest.mark.agents(38)
def test_a_task_that_waits_wakes_nobody():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", ("wait_agent", {}))
    stage.ask("/root", "followup_task", target="alpha", message="more")
    assert stage.waits() == []


@pytest.mark.agents(39)
def test_the_root_takes_no_tasks_and_nobody_its_own():
    stage = Stage()
    stage.spawn("alpha")
    stage.play(
        "alpha",
        ("followup_task", {"target": "/root", "message": "m"}),
        ("followup_task", {"target": "/root/alpha", "message": "m"}),
    )
    assert errors(stage) == [
        "the root agent takes no tasks; use send_message",
        "an agent cannot give itself a task",
    ]


@pytest.mark.agents(40)
def test_a_task_for_an_idle_agent_needs_room():
    stage = Stage(max_concurrent=1)
    stage.spawn("alpha")
    stage.play("alpha", say="done")
    stage.ask("/root", "send_message", target="alpha", message="note")
    stage.spawn("beta")
    stage.ask("/root", "followup_task", target="alpha", message="again")
    assert "maximum concurrent" in errors(stage)[0]
    assert [mail.payload for mail in stage["alpha"].mailbox] == ["note"]
    assert stage["alpha"].is_idle


# ---------------------------------------------------------------- interrupts


@pytest.mark.agents(51)
def test_an_inference_is_cut_before_its_agent_is_idle():
    stage = Stage()
    stage.spawn("alpha")
    stage.enter("alpha")
    assert stage.ask("/root", "interrupt_agent", target="alpha") == '{"previous_status": "running"}'
    assert stage.outcomes[0].cut == "/root/alpha"
    assert stage["alpha"].interrupting
    assert stage.tree.active == 1
    stage.ask("/root", "interrupt_agent", target="alpha")
    assert stage.outcomes[0].cut is None
    stage.tree.interrupt(stage["alpha"])
    assert stage["alpha"].status == Interrupted()
    assert not stage["alpha"].interrupting
    assert not stage["/root"].has_mail


def test_calls_of_a_round_that_was_cut_may_be_answered():
    stage = Stage()
    stage.spawn("alpha")
    stage.enter("alpha")
    stage.ask("/root", "interrupt_agent", target="alpha")
    (call,) = stage.write("alpha", ("T", {}), say="wait")
    stage.tree.interrupt(stage["alpha"])
    assert stage["alpha"].is_idle
    assert not stage.tree.has_pending_calls
    assert stage.tree.take_outputs([output(call)]) == ["/root/alpha"]
    assert stage["alpha"].is_idle
    assert stage["alpha"].history[-1] == output(call)


def test_actions_of_a_round_that_was_cut_have_stand_ins():
    stage = Stage()
    stage.spawn("alpha")
    alpha = stage["alpha"]
    stage.enter("alpha")
    stage.ask("/root", "interrupt_agent", target="alpha")
    calls = [Call(call_id="a", kind="action"), Call(call_id="g", kind="gateway")]
    stage.tree.end_round(alpha, [action("a", "list_agents")], calls)
    stage.tree.interrupt(alpha)
    assert alpha.history[-2:] == [action("a", "list_agents"), output("a", '{"status": "interrupted"}')]
    assert (alpha.calls, alpha.late) == ({}, {})


def test_an_acting_agent_stops_when_its_calls_are_done():
    stage = Stage()
    stage.spawn("alpha")
    stage.enter("alpha")
    stage.write("alpha", say="the answer")
    stage.ask("/root", "interrupt_agent", target="alpha")
    assert stage.outcomes[0].cut is None
    stage.tree.settle(stage["alpha"], "the answer")
    assert stage["alpha"].status == Interrupted()
    assert not stage["/root"].has_mail


@pytest.mark.agents(52)
def test_a_wait_that_is_interrupted_has_an_error_for_output():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", ("wait_agent", {}))
    stage.ask("/root", "interrupt_agent", target="alpha")
    assert stage["alpha"].status == Interrupted()
    (ended,) = stage.waits()
    assert (ended.agent, error_of(ended.output)) == ("/root/alpha", "Agent was interrupted.")
    assert stage["alpha"].history[-1]["output"] == ended.output
    assert stage.waits() == []


@pytest.mark.agents(53)
def test_a_blocked_agent_stops_at_once_and_its_calls_may_be_answered_or_not():
    first = Stage()
    first.spawn("alpha")
    (call,) = first.play("alpha", ("T", {}))
    first.ask("/root", "interrupt_agent", target="alpha")
    first.play("/root", say="ok")
    assert first["alpha"].status == Interrupted()
    assert first.tree.is_quiescent
    assert not first.tree.has_pending_calls
    first.again().tree.take_input([user("next")])
    stage = first.again()
    stage.tree.take_input([output(call, "real")])
    assert stage["alpha"].history[-1] == output(call, "real")
    assert stage["alpha"].is_idle


@pytest.mark.agents(54)
def test_an_idle_agent_cannot_be_interrupted():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", say="done")
    assert stage.ask("/root", "interrupt_agent", target="alpha") == '{"previous_status": {"completed": "done"}}'
    assert stage["alpha"].status == Completed("done")


@pytest.mark.agents(55)
def test_nobody_interrupts_itself_or_the_root():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", *(("interrupt_agent", {"target": target}) for target in ("/root", "/root/alpha", "x")))
    assert errors(stage) == [
        "the root agent cannot be interrupted",
        "an agent cannot interrupt itself",
        "there is no agent /root/alpha/x; list_agents shows all agents",
    ]


@pytest.mark.agents(56)
def test_an_interrupted_agent_keeps_what_it_knows():
    stage = Stage()
    stage.spawn("alpha")
    stage.ask("/root", "interrupt_agent", target="alpha")
    before = list(stage["alpha"].history)
    stage.ask("/root", "followup_task", target="alpha", message="again")
    assert stage["alpha"].phase is Phase.RUNNABLE
    assert stage["alpha"].history[:-1] == before


def test_a_task_that_waits_is_begun_after_an_interrupt():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", ("T", {}))
    follow_up = ("followup_task", {"target": "alpha", "message": "next"})
    stage.play("/root", follow_up, ("interrupt_agent", {"target": "alpha"}))
    assert stage["alpha"].phase is Phase.RUNNABLE
    assert [mail.payload for mail in stage.enter("alpha")] == ["next"]


def test_a_task_that_was_to_begin_is_what_an_interrupt_stops():
    stage = Stage()
    stage.spawn("alpha")
    stage.ask("/root", "followup_task", target="alpha", message="next")
    stage.play("alpha", say="done")
    stage.ask("/root", "interrupt_agent", target="alpha")
    assert stage["alpha"].status == Interrupted()
    assert [mail.payload for mail in stage.outcomes[0].delivered] == ["next"]
    assert stage.texts("alpha")[-1] == "next"


# ---------------------------------------------------------------- lists


@pytest.mark.agents(57)
def test_a_list_shows_all_agents_in_the_order_they_were_made():
    stage = Stage(max_concurrent=9)
    stage.spawn("b", "a", "failed", "stopped")
    stage.play("b", spawning("child"))
    stage.play("a", say="done")
    stage.enter("failed")
    stage.tree.fail(stage["failed"], "upstream error")
    stage.ask("/root", "interrupt_agent", target="stopped")
    shown = json.loads(stage.ask("/root", "list_agents"))
    assert shown == {
        "agents": [
            {"agent_name": "/root", "agent_status": "running"},
            {"agent_name": "/root/b", "agent_status": "running"},
            {"agent_name": "/root/a", "agent_status": {"completed": "done"}},
            {"agent_name": "/root/failed", "agent_status": {"errored": "upstream error"}},
            {"agent_name": "/root/stopped", "agent_status": "interrupted"},
            {"agent_name": "/root/b/child", "agent_status": "running"},
        ]
    }


@pytest.mark.agents(57)
@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("b", ["/root/b", "/root/b/child"]),
        ("/root/b/", ["/root/b", "/root/b/child"]),
        ("/root/b/child", ["/root/b/child"]),
        ("", ["/root", "/root/b", "/root/b/child"]),
        ("nobody", []),
    ],
)
def test_a_list_can_be_of_one_branch(prefix, names):
    stage = Stage()
    stage.spawn("b")
    stage.play("b", spawning("child"))
    shown = json.loads(stage.ask("/root", "list_agents", path_prefix=prefix))
    assert [agent["agent_name"] for agent in shown["agents"]] == names


def test_a_list_tells_tasks_where_that_is_wanted():
    stage = Stage(tell_tasks=True)
    stage.spawn("alpha")
    shown = json.loads(stage.ask("/root", "list_agents"))
    assert [agent["last_task_message"] for agent in shown["agents"]] == [None, "do alpha"]


def test_outputs_keep_letters_of_all_languages():
    stage = Stage()
    stage.spawn("alpha")
    stage.play("alpha", say="größer")
    assert "größer" in stage.ask("/root", "list_agents")
