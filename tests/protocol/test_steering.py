"""The steers of one response: what it takes, where they go, and that each has one fate."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import codec
from gateway.protocol.items import FunctionCall, Message
from gateway.protocol.state_diagram import draw_states
from gateway.protocol.steering import (
    STEER_MOVES,
    Steer,
    SteerPhase,
    SteerQueue,
    SteerRefusal,
    fail_steer,
    list_required,
    read_steer,
)

STUBS = [{"type": "function_call_output", "call_id": "c", "name": "f"}]


def a_steer(number=0, size=10):
    text = f"steer {number}"
    items = ({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},)
    return Steer(id=f"steer_{number}", target="resp_1", given=text, items=items, size=size)


def filled(count):
    queue = SteerQueue()
    for number in range(count):
        queue.add(a_steer(number))
    return queue


def ids(steers):
    return [steer.id for steer in steers]


def texts(items):
    return [item["content"][0]["text"] for item in items]


@pytest.mark.parametrize(
    ("status", "required", "count", "phase"),
    [
        ("completed", [], 0, SteerPhase.COMPLETED),
        ("completed", [], 2, SteerPhase.PASSING),
        ("completed", STUBS, 0, SteerPhase.WAITING),
        ("completed", STUBS, 2, SteerPhase.WAITING),
        ("incomplete", [], 0, SteerPhase.INACTIVE),
        ("incomplete", [], 2, SteerPhase.PASSING),
        ("incomplete", STUBS, 0, SteerPhase.INACTIVE),
        ("incomplete", STUBS, 2, SteerPhase.WAITING),
        ("failed", STUBS, 0, SteerPhase.INACTIVE),
        ("failed", [], 2, SteerPhase.INACTIVE),
        ("cancelled", [], 2, SteerPhase.INACTIVE),
    ],
)
def test_how_a_response_ends_decides_over_its_steers(status, required, count, phase):
    queue = filled(count)
    failed = queue.end(status, required)
    assert queue.phase is phase
    assert ids(failed) == (ids(filled(count).waiting) if status in ("failed", "cancelled") else [])
    assert len(queue.waiting) == count - len(failed)
    assert queue.bytes == 10 * len(queue.waiting)


def test_only_what_runs_or_waits_takes_steers():
    said = {}
    for phase in SteerPhase:
        queue = SteerQueue()
        queue.phase = phase
        try:
            queue.check("resp_1")
        except SteerRefusal as refusal:
            said[phase] = refusal
    assert all("resp_1" in refusal.message for refusal in said.values())
    assert {phase: refusal.code for phase, refusal in said.items()} == {
        SteerPhase.PASSING: "response_already_completed",
        SteerPhase.COMPLETED: "response_already_completed",
        SteerPhase.INACTIVE: "response_not_active",
    }


def test_a_successor_takes_all_of_them_in_their_order():
    queue = filled(3)
    queue.end("completed", [])
    assert texts(queue.offer()) == ["steer 0", "steer 1", "steer 2"]
    assert ids(queue.apply()) == ["steer_0", "steer_1", "steer_2"]
    assert (queue.phase, queue.waiting, queue.bytes) == (SteerPhase.COMPLETED, [], 0)


@pytest.mark.parametrize(
    ("status", "phase"), [("completed", SteerPhase.COMPLETED), ("incomplete", SteerPhase.INACTIVE)]
)
def test_without_a_successor_all_of_them_fail(status, phase):
    queue = filled(2)
    queue.end(status, [])
    queue.offer()
    assert ids(queue.give_up()) == ["steer_0", "steer_1"]
    assert (queue.phase, queue.waiting) == (phase, [])


def test_a_refused_create_leaves_what_waits_and_they_are_told_of_once():
    queue = filled(1)
    queue.end("completed", STUBS)
    assert ids(queue.list_untold()) == ["steer_0"]
    queue.offer()
    queue.take_back()
    queue.add(a_steer(1))
    assert ids(queue.list_untold()) == ["steer_1"]
    assert queue.list_untold() == []
    assert texts(queue.offer()) == ["steer 0", "steer 1"]
    queue.apply()


def test_what_is_forgotten_fails():
    queue = filled(2)
    queue.end("completed", STUBS)
    assert ids(queue.give_up()) == ["steer_0", "steer_1"]
    assert queue.phase is SteerPhase.INACTIVE


def test_a_move_that_is_not_in_the_table_is_a_fault():
    queue = filled(1)
    queue.end("failed", [])
    for step in (queue.close, queue.take_back, queue.apply):
        with pytest.raises(RuntimeError, match="steers cannot go from inactive"):
            step()


def test_every_phase_can_be_reached_and_ends():
    reached = {SteerPhase.RUNNING, *(phase for moves in STEER_MOVES.values() for phase in moves)}
    assert reached == set(SteerPhase) == set(STEER_MOVES)


CALLS = [
    FunctionCall(id="fc_1", status="completed", call_id="a", name="f", arguments="{}"),
    FunctionCall(id="fc_2", status="incomplete", call_id="b", name="f", arguments="{"),
    {"type": "custom_tool_call", "call_id": "c"},
    {"type": "shell_call", "call_id": "d"},
    {"type": "apply_patch_call", "call_id": "e"},
    {"type": "computer_call", "call_id": "f"},
    {"type": "tool_search_call", "call_id": "g"},
    {"type": "tool_search_call", "call_id": None},
    {"type": "mcp_approval_request", "id": "mcpr_1"},
    {"type": "mcp_call", "id": "mcp_1"},
    Message(id="msg_1", status="completed", content=[]),
]


def test_what_is_waited_for_is_named_by_its_kind():
    assert list_required(CALLS) == [
        {"type": "function_call_output", "call_id": "a", "name": "f"},
        {"type": "custom_tool_call_output", "call_id": "c"},
        {"type": "shell_call_output", "call_id": "d"},
        {"type": "apply_patch_call_output", "call_id": "e"},
        {"type": "computer_call_output", "call_id": "f"},
        {"type": "tool_search_output", "call_id": "g", "execution": "client"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1"},
    ]


@given(st.data())
def test_each_steer_has_one_fate_whatever_happens(data):
    """Any order of steers, ends, successors and refusals."""
    queue, sent, fates = SteerQueue(), 0, []

    def note(fate, steers):
        fates.extend((steer.id, fate) for steer in steers)

    status = data.draw(st.sampled_from(["completed", "incomplete", "failed"]))
    required = data.draw(st.sampled_from([[], STUBS]))
    for step in data.draw(st.lists(st.sampled_from(["steer", "end", "applied", "refused", "forgotten"]), max_size=30)):
        if step == "steer":
            try:
                queue.check("resp_1")
            except SteerRefusal:
                note("refused", [a_steer(sent)])
            else:
                queue.add(a_steer(sent))
            sent += 1
        elif step == "end" and queue.phase is SteerPhase.RUNNING:
            note("failed", queue.end(status, required))
            if queue.phase is SteerPhase.PASSING:
                queue.offer()
        elif queue.phase is SteerPhase.WAITING and step != "end":
            if step == "forgotten":
                note("failed", queue.give_up())
            else:
                queue.offer()
                note("applied", queue.apply()) if step == "applied" else queue.take_back()
        elif queue.phase is SteerPhase.PASSING and step == "applied":
            note("applied", queue.apply())
        elif queue.phase is SteerPhase.PASSING and step == "refused":
            note("failed", queue.give_up())
    told = [steer_id for steer_id, _ in fates]
    assert sorted([*told, *ids(queue.waiting)]) == sorted(f"steer_{number}" for number in range(sent))
    for fate in ("applied", "failed"):
        numbers = [int(steer_id[6:]) for steer_id, found in fates if found == fate]
        assert numbers == sorted(numbers)
    if queue.phase in (SteerPhase.COMPLETED, SteerPhase.INACTIVE):
        assert not queue.waiting


# ---------------------------------------------------------------- what is sent


def read(given, stray=None):
    return read_steer(given, stray=stray, max_items=3, remote_images=False)


@pytest.mark.parametrize(
    "given",
    [
        "x",
        [{"role": "user", "content": "x"}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}],
    ],
)
def test_a_steer_holds_messages_of_the_user(given):
    (item,) = read(given)
    assert (item["type"], item["role"]) == ("message", "user")


@pytest.mark.agents(104)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "neither may be empty"),
        ([], "neither may be empty"),
        (None, "'input' must be"),
        ({"role": "user"}, "'input' must be"),
        (["x"], "'input[0]'"),
        ([{"role": "user", "content": "x"}, {"role": "system", "content": "x"}], "'input[1]'"),
        ([{"type": "function_call_output", "call_id": "c", "output": "x"}], "role 'user'"),
        ([{"role": "user", "content": "x", "id": "msg_1"}], "not 'id'"),
        ([{"role": "user", "content": ""}], "'input[0].content'"),
        ([{"role": "user", "content": ["x"]}], "'input[0].content[0].type'"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "x"}]}], "input_text, input_image, input_file"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "'input[0].content[0].text'"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/"}]}], "data: URL"),
        ([{"role": "user", "content": "x"}] * 4, "at most 3"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(given, words):
    with pytest.raises(SteerRefusal, match=re.escape(words)) as refused:
        read(given)
    assert refused.value.code == "invalid_input"


def test_a_member_that_does_not_belong_is_named():
    with pytest.raises(SteerRefusal, match="'stream_id' does not belong here") as refused:
        read("x", stray="stream_id")
    told = fail_steer("resp_1", "x", refused.value)
    assert told.error.code == "invalid_input"
    assert codec.decode(codec.encode(told))["steer"] == {"previous_response_id": "resp_1", "input": "x"}


def test_what_is_told_of_a_steer():
    steer = a_steer()
    named = {"id": "steer_0", "previous_response_id": "resp_1"}
    assert codec.decode(codec.encode(steer.accepted))["steer"] == named
    pending = codec.decode(codec.encode(steer.wait_for(STUBS)))
    assert (pending["steer"], pending["reason"]) == (named, "waiting_for_required_input")
    assert pending["required_input"] == STUBS
    told = codec.decode(codec.encode(steer.fail(SteerRefusal("response_not_active", "Over."))))
    assert told["steer"] == {**named, "input": "steer 0"}
    assert told["error"] == {"type": "invalid_request_error", "code": "response_not_active", "message": "Over."}


def test_the_table_can_be_drawn():
    drawn = draw_states(STEER_MOVES, SteerPhase.RUNNING)
    assert drawn.splitlines()[:3] == ["stateDiagram-v2", "    [*] --> running", "    running --> ending"]
