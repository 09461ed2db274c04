"""Trees as they are stored."""

import json

import pytest
from msgspec import structs
from protocol.agents.stage import Stage, describe, message, output, user

from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.stored import StoredAgent
from gateway.protocol.agents.tree import Tree


def first():
    stage = Stage()
    stage.spawn("alpha", "beta")
    stage.play("alpha", ("T", {}))
    stage.play("beta", say="\ud83d half a character")
    stage.play("/root", say="hi")
    stage.tree.flush_mail()
    return stage


def test_a_snapshot_gives_the_tree_back():
    stage = first()
    rows = stage.tree.snapshot()
    assert [(row.path, row.parent_path, row.status) for row in rows] == [
        ("/root", None, "completed"),
        ("/root/alpha", "/root", "running"),
        ("/root/beta", "/root", "completed"),
    ]
    assert {json.loads(row.state)["base"] for row in rows} == {"whole"}
    assert describe(Tree.restore(rows, Bounds())) == describe(stage.tree)
    assert Tree.restore(rows, Bounds()).call_ids == stage.tree.call_ids
    assert stage.tree.snapshot() == rows


def test_a_later_snapshot_holds_what_is_new_and_who_did_not_change_has_no_row():
    stage = first()
    rows = stage.tree.snapshot()
    later = stage.again()
    assert later.tree.snapshot() == []
    later.tree.take_input([output("alpha_3"), user("more")])
    later.play("alpha", say="found")
    later.play("/root", say="so it is")
    new = later.tree.snapshot()
    assert [(row.path, json.loads(row.state)["base"]) for row in new] == [("/root", "delta"), ("/root/alpha", "delta")]
    assert json.loads(new[1].state)["items"] == [output("alpha_3"), message("found")]
    assert describe(Tree.restore([*rows, *new], Bounds())) == describe(later.tree)


def test_who_was_only_told_something_has_a_row():
    later = first().again()
    later.tree.take_input([output("alpha_3"), user("more")])
    later.ask("/root", "send_message", target="beta", message="hi")
    later.tree.flush_mail()
    later.rest()
    rows = {row.path: json.loads(row.state) for row in later.tree.snapshot()}
    assert [item["payload"] for item in rows["/root/beta"]["items"]] == ["hi"]


def test_agents_are_in_the_order_they_were_made_in_whatever_order_their_rows_are():
    stage = Stage()
    stage.spawn("b", "a")
    stage.rest()
    rows = stage.tree.snapshot()
    assert list(Tree.restore(rows[::-1], Bounds()).agents) == ["/root", "/root/b", "/root/a"]


@pytest.mark.agents(88)
def test_two_that_go_on_from_one_tree_do_not_meet():
    stage = first()
    one, two = stage.again(), stage.again()
    for fork, text in ((one, "1"), (two, "2")):
        fork.tree.take_input([output("alpha_3", text), user("y")])
    assert [fork["alpha"].history[-1]["output"] for fork in (one, two)] == ["1", "2"]
    assert len(stage["alpha"].calls) == 1


@pytest.mark.agents(117)
def test_a_summary_makes_the_next_row_whole():
    stage = first()
    rows = stage.tree.snapshot()
    later = stage.again()
    root = later["/root"]
    summary = {"type": "compaction", "encrypted_content": "x"}
    later.tree.end_compaction(root, [summary], later.tree.begin_compaction(root))
    (row,) = later.tree.snapshot()
    assert json.loads(row.state)["base"] == "whole"
    assert json.loads(row.state)["items"] == [summary]
    restored = Tree.restore([*rows, row], Bounds())
    assert describe(restored) == describe(later.tree)
    assert restored.size < Tree.restore(rows, Bounds()).size


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[1:],
        lambda rows: [],
        lambda rows: [StoredAgent(path="/root", status="completed", state=b"{}")],
        lambda rows: [StoredAgent(path="/root", status="completed", state=b"nothing")],
        lambda rows: [
            StoredAgent(path="/root", status="completed", state=rows[0].state.replace(b'"version":1', b'"version":2'))
        ],
        lambda rows: [
            StoredAgent(path="/root", status="completed", state=rows[0].state.replace(b'"whole"', b'"delta"'))
        ],
    ],
    ids=["no root", "nothing", "no row", "no JSON", "later version", "no base"],
)
def test_what_is_no_tree_is_refused(change):
    with pytest.raises(ValueError, match=r"."):
        Tree.restore(change(first().tree.snapshot()), Bounds())


@pytest.mark.parametrize(
    "change",
    [
        *({"phase": phase} for phase in ("inferring", "acting", "waiting", "compacting")),
        {"mailbox": [{"kind": "MESSAGE", "author": "/root", "recipient": "/root/nobody", "payload": "x"}]},
    ],
    ids=["inferring", "acting", "waiting", "compacting", "mail of another"],
)
def test_agents_with_whom_nothing_would_go_on_are_refused(change):
    root, *others = first().tree.snapshot()
    row = json.loads(root.state)
    row["state"] |= change
    with pytest.raises(ValueError, match=r"."):
        Tree.restore([structs.replace(root, state=json.dumps(row).encode()), *others], Bounds())


def test_agents_without_their_parent_are_refused():
    root, child, *others = first().tree.snapshot()
    with pytest.raises(ValueError, match="same one"):
        Tree.restore([root, structs.replace(child, parent_path="/root/nobody"), *others], Bounds())


def test_a_row_that_is_nested_too_deep_is_refused():
    root, *others = first().tree.snapshot()
    with pytest.raises(ValueError, match="no agent"):
        Tree.restore([structs.replace(root, state=b"[" * 100_000), *others], Bounds())
