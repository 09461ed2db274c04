"""Rounds in the form in which an agent's history keeps them."""

import pytest
from property.engine import Client, Json, completed, spell, whole
from property.trees import ALPHA, ROOT, action, mail, tree_client

from gateway.protocol.agents.agent import Call
from gateway.protocol.agents.round_history import (
    find_answer,
    list_calls,
    recall_agent_round,
    recall_gateway_output,
)
from gateway.protocol.agents.tree_round import TreeRound
from gateway.protocol.hosted import HostedResult, HostedTool

LOOK = HostedTool(function={"type": "function", "name": "mcp__s__look"}, kind="mcp_call", name="look", label="s")
ASK = HostedTool(
    function={"type": "function", "name": "mcp__s__ask"}, kind="mcp_approval_request", name="ask", label="s"
)
SEARCH = HostedTool(function={"type": "function", "name": "web_search"}, kind="web_search_call", name="web_search")
ARGUMENTS = '{"task_name":"alpha","message":"weigh it"}'


def called(name: str, call_id: str = "call_1", arguments: str = "{}") -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def message(words: str) -> Json:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": words, "annotations": []}],
    }


def listen(*said: Json, end: Json | None = None, most: int | None = None) -> tuple[Client, TreeRound]:
    client = tree_client()
    client.turn.host([LOOK, ASK, SEARCH], most)
    round_ = client.turn.open_round(ALPHA)
    for index, item in enumerate(said):
        for event in spell(item, index, whole):
            client.ingest(round_, event)
    client.ingest(round_, end or completed())
    return client, round_


def test_a_round_is_plain_and_names_no_agent():
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
    client, round_ = listen(thought, message("first"), action("spawn_agent", "call_s", ARGUMENTS), called("f"))
    before = recall_agent_round(round_.slots)
    assert [(item["type"], item.get("arguments")) for item in before] == [
        ("reasoning", None),
        ("message", None),
        ("multi_agent_call", ARGUMENTS),
        ("function_call", "{}"),
    ]
    assert before[2] == {
        "type": "multi_agent_call", "id": round_.slots[2].id, "call_id": "call_s", "action": "spawn_agent",
        "arguments": ARGUMENTS,
    }  # fmt: skip
    assert not any({"agent", "phase"} & set(item) for item in before)
    client.hear(client.turn.conclude_action(round_, round_.slots[2], "{}", [mail(ROOT, ALPHA)]))
    assert recall_agent_round(round_.slots) == before


def test_calls_of_the_gateway_are_functions_and_have_their_outputs_once_there_are_any():
    client, round_ = listen(called("mcp__s__look"), called("web_search", "call_2", '{"queries":["q"]}'), called("f"))
    look, search, _ = round_.slots
    told = recall_agent_round(round_.slots)
    assert [(item["type"], item["call_id"], item["name"]) for item in told] == [
        ("function_call", look.id, "mcp__s__look"),
        ("function_call", search.id, "web_search"),
        ("function_call", "call_1", "f"),
    ]
    assert recall_gateway_output(look) == []
    for slot in (look, search):
        client.hear(
            client.turn.conclude_call(round_, slot, HostedResult(output=f"found {slot.name}", size=5, fields={}))
        )
    outputs = [recall_gateway_output(look), recall_gateway_output(search)]
    assert outputs == [
        [{"type": "function_call_output", "call_id": look.id, "output": "found look"}],
        [{"type": "function_call_output", "call_id": search.id, "output": "found web_search"}],
    ]
    assert recall_agent_round(round_.slots) == [told[0], *outputs[0], told[1], *outputs[1], told[2]]


def test_each_call_says_who_answers_it():
    said = [
        action("wait_agent", "call_w", "{}"),
        called("mcp__s__look", "call_l"),
        called("mcp__s__ask", "call_a"),
        called("f", "call_f"),
        called("run_shell", "call_c"),
        called("local_shell", "call_s", '{"command":["ls"]}'),
        message("behind"),
    ]
    _, round_ = listen(*said)
    slots = round_.slots
    assert list_calls(slots) == [
        Call(call_id="call_w", kind="action", type="multi_agent_call", name="wait_agent"),
        Call(call_id=slots[1].id, kind="gateway", name="look"),
        Call(call_id=slots[2].id, kind="client", type="mcp_approval_request", name="ask"),
        Call(call_id="call_f", kind="client", name="f"),
        Call(call_id="call_c", kind="client", type="custom_tool_call", name="run_shell"),
        Call(call_id="call_s", kind="client", type="local_shell_call", name="local_shell"),
    ]
    assert len(recall_agent_round(slots)) == len(said)


def test_what_nobody_answers_is_no_call():
    _, round_ = listen(called("f"), end=completed(status="incomplete"))
    assert list_calls(round_.slots) == []
    _, round_ = listen(called("mcp__s__look"), end=completed(status="incomplete"))
    assert (list_calls(round_.slots), recall_agent_round(round_.slots)) == ([], [])
    _, round_ = listen(called("mcp__s__look"), most=0)
    assert (list_calls(round_.slots), recall_agent_round(round_.slots)) == ([], [])


def test_no_answer_where_a_call_was_begun():
    cut = completed(status="incomplete")
    for said in ([message("a"), called("f")], [message("a"), action("spawn_agent", "call_s", '{"task')]):
        _, round_ = listen(*said, end=cut)
        assert (list_calls(round_.slots), find_answer(round_.slots)) == ([], None)
    _, round_ = listen(message("a"), end=cut)
    assert find_answer(round_.slots) == "a"


@pytest.mark.parametrize(
    ("said", "answer"),
    [([], None), ([message(" ")], None), ([message("a"), message("b")], "b"), ([message("a"), message("\n")], "a")],
)
def test_the_answer_is_the_last_message_with_words(said: list[Json], answer: str | None):
    _, round_ = listen(*said)
    assert find_answer(round_.slots) == answer
