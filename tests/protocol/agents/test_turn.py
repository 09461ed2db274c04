"""A response of a tree of agents, as its client sees it."""

import json

import pytest
from property.engine import Client, Json, added, completed, done, event, spell, text, whole
from property.trees import ALPHA, BETA, ROOT, action, mail, make_tree, retained, seal, tree_client, tree_faults

from gateway.protocol import events
from gateway.protocol.agents.tree_round import TreeRound
from gateway.protocol.errors import ResourceLimitExceeded, UpstreamError
from gateway.protocol.hosted import HostedResult, HostedTool, Listed

LOOK = HostedTool(function={"type": "function", "name": "mcp__s__look"}, kind="mcp_call", name="look", label="s")
LOOKING = {"type": "function_call", "call_id": "call_l", "name": "mcp__s__look", "arguments": "{}"}
CALL = {"type": "function_call", "call_id": "call_p", "name": "get_proposal", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
SPAWN = action("spawn_agent", "call_s", '{"task_name":"alpha","message":"weigh it"}')
WAIT = action("wait_agent", "call_w", "{}")


def message(words: str) -> Json:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": words, "annotations": []}],
    }


def say(client: Client, agent: str, *said: Json, end: Json | None = None) -> TreeRound:
    round_ = client.turn.open_round(agent)
    for index, item in enumerate(said):
        for each in spell(item, index, whole, tag=agent):
            client.ingest(round_, each)
    if end is not None:
        client.ingest(round_, end)
    return round_


def steps(client: Client, since: int = 2) -> list[str]:
    """Which items were added and done, by type and index."""
    shown = [each for each in client.told[since:] if ".output_item." in each["type"]]
    return [f"{each['item']['type']} {each['output_index']} {each['type'].rpartition('.')[2]}" for each in shown]


def phases(client: Client) -> list[str]:
    return [item["phase"] for item in client.output if item["type"] == "message"]


# ---------------------------------------------------------------- phases


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([message("a")], ["final_answer"]),
        ([THOUGHT, message("a")], ["final_answer"]),
        ([message("a"), THOUGHT], ["final_answer"]),
        ([message("a"), message("b")], ["commentary", "final_answer"]),
        ([message("a"), message(" \n")], ["final_answer", "commentary"]),
        ([message(""), message("a")], ["commentary", "final_answer"]),
        ([message(""), THOUGHT, message("  ")], ["commentary", "commentary"]),
        ([message("a"), CALL], ["commentary"]),
        ([CALL, message("a")], ["commentary"]),
        ([message("a"), THOUGHT, CALL, message("b")], ["commentary", "commentary"]),
        ([{**message("a"), "phase": "analysis"}], ["final_answer"]),
    ],
)
def test_the_last_message_with_words_is_the_answer_where_nothing_is_called(said: list[Json], expected: list[str]):
    client = tree_client()
    say(client, ALPHA, *said, end=completed(said))
    client.finish()
    assert phases(client) == expected
    assert tree_faults(client.told) == []
    assert client.turn.ledger.total == retained(client.output)


def test_the_done_of_a_message_waits_but_nothing_behind_it_does():
    client = tree_client()
    round_ = say(client, ROOT, message("a"), THOUGHT)
    assert steps(client) == ["message 0 added", "reasoning 1 added"]
    assert {each["type"] for each in client.told} >= {"response.output_text.delta", "response.reasoning_text.delta"}
    client.ingest(round_, added({**CALL, "id": "c"}, 2))
    assert steps(client)[2:] == ["reasoning 1 done", "message 0 done", "function_call 2 added"]


def test_a_call_beyond_those_allowed_makes_what_was_said_no_answer():
    client = tree_client()
    client.turn.host([LOOK], 0)
    say(client, ROOT, message("a"), LOOKING, end=completed())
    assert phases(client.finish()) == ["commentary"]


def test_a_part_without_its_message_is_a_message_of_the_agent():
    client = tree_client()
    round_ = client.turn.open_round(ALPHA)
    client.ingest(round_, text("hi", item_id="x", output_index=0, content_index=0))
    client.ingest(round_, event("reasoning_text.delta", delta="Hm", item_id="y", output_index=1, content_index=0))
    client.ingest(round_, completed())
    client.finish()
    assert [item["type"] for item in client.output] == ["message", "reasoning"]
    assert phases(client) == ["final_answer"]
    assert tree_faults(client.told) == []


# ---------------------------------------------------------------- actions


def test_an_action_is_added_when_it_opens_and_done_when_it_is_concluded():
    client = tree_client()
    opened = {**SPAWN, "id": "s", "arguments": ""}
    round_ = client.turn.open_round()
    client.ingest(round_, added(opened, 0))
    assert steps(client) == ["multi_agent_call 0 added"]
    client.ingest(round_, event("function_call_arguments.delta", delta=SPAWN["arguments"], item_id="s", output_index=0))
    client.ingest(round_, event("function_call_arguments.done", arguments=SPAWN["arguments"], item_id="s"))
    client.ingest(round_, done({**SPAWN, "id": "s"}, 0))
    client.ingest(round_, completed())
    assert len(client.told) == 3
    (slot,) = round_.slots
    assert (slot.call_id, slot.action, slot.arguments) == ("call_s", "spawn_agent", SPAWN["arguments"])
    client.hear(client.turn.conclude_action(round_, slot, '{"task_name": "/root/alpha"}', [mail(ROOT, ALPHA)]))
    assert steps(client)[1:] == [
        "multi_agent_call 0 done",
        "agent_message 1 added", "agent_message 1 done",
        "multi_agent_call_output 2 added", "multi_agent_call_output 2 done",
    ]  # fmt: skip
    client.finish()
    assert [item["agent"]["agent_name"] for item in client.output] == [ROOT, ALPHA, ROOT]
    assert tree_faults(client.told) == []


@pytest.mark.agents(22)
def test_the_message_in_arguments_is_sealed_and_the_rest_is_readable():
    client = tree_client()
    round_ = say(client, ROOT, SPAWN, end=completed())
    client.hear(client.turn.conclude_action(round_, round_.slots[0], "", [mail(ROOT, ALPHA, "weigh it")]))
    call, letter, _ = client.finish().output
    assert call["arguments"] == f'{{"task_name":"alpha","message":"{seal("weigh it")}"}}'
    assert letter["content"] == [{"type": "encrypted_content", "encrypted_content": seal("weigh it")}]
    assert "weigh it" not in json.dumps(client.told)


def test_plain_visibility_shows_everything():
    client = Client(make_tree(seal=None))
    round_ = say(client, ROOT, SPAWN, end=completed())
    client.hear(client.turn.conclude_action(round_, round_.slots[0], "", [mail(ROOT, ALPHA, "weigh it")]))
    call, letter, _ = client.finish().output
    assert call["arguments"] == SPAWN["arguments"]
    assert letter["content"] == [{"type": "input_text", "text": "weigh it"}]
    assert tree_faults(client.told) == []
    assert client.turn.ledger.total == retained(client.output)


def test_what_stands_behind_an_action_waits_for_it_and_each_answer_stands_behind_its_call():
    client = tree_client()
    round_ = say(client, ROOT, SPAWN, CALL, action("list_agents", "call_l", ""), end=completed())
    assert steps(client) == ["multi_agent_call 0 added"]
    client.hear(client.turn.conclude_action(round_, round_.slots[2], '{"agents": []}'))
    assert len(steps(client)) == 1
    client.hear(client.turn.conclude_action(round_, round_.slots[0], '{"task_name": "/root/alpha"}'))
    client.finish()
    assert [item["type"] for item in client.output] == [
        "multi_agent_call", "multi_agent_call_output", "function_call", "multi_agent_call", "multi_agent_call_output"
    ]  # fmt: skip
    assert tree_faults(client.told) == []


def test_an_action_behind_a_call_of_the_gateway_waits_for_its_result():
    client = tree_client()
    client.turn.host([LOOK], None)
    round_ = say(client, ALPHA, LOOKING, SPAWN, end=completed())
    client.hear(client.turn.conclude_action(round_, round_.slots[1], '{"task_name": "/root/alpha/x"}'))
    assert steps(client) == ["mcp_call 0 added"]
    result = HostedResult(output="found", size=5, fields={"output": "found"})
    client.hear(client.turn.conclude_call(round_, round_.slots[0], result))
    client.finish()
    assert [item["type"] for item in client.output] == ["mcp_call", "multi_agent_call", "multi_agent_call_output"]
    assert tree_faults(client.told) == []


def test_a_wait_has_its_output_later():
    client = tree_client()
    round_ = say(client, ROOT, WAIT, end=completed())
    client.hear(client.turn.conclude_action(round_, round_.slots[0], None))
    assert steps(client) == ["multi_agent_call 0 added", "multi_agent_call 0 done"]
    say(client, ALPHA, message("done"), end=completed())
    client.hear(client.turn.tell_action_output(ROOT, "call_w", "wait_agent", '{"message": "Wait completed."}'))
    client.finish()
    assert client.output[-1]["output"][0]["text"] == '{"message": "Wait completed."}'
    assert client.output[-1]["agent"] == {"agent_name": ROOT}
    assert tree_faults(client.told) == []


def test_an_action_that_is_named_late_is_no_call_of_a_client():
    client = tree_client()
    round_ = client.turn.open_round(ALPHA)
    client.ingest(round_, added({**SPAWN, "id": "s", "name": ""}, 0))
    with pytest.raises(UpstreamError, match="too late"):
        client.ingest(round_, done({**SPAWN, "id": "s"}, 0))
    assert client.turn.drop_open(round_) == []
    assert client.finish().output == []


def test_the_same_call_id_of_two_agents_is_two_call_ids():
    client = tree_client()
    rounds = [say(client, agent, WAIT, CALL, end=completed()) for agent in (ALPHA, BETA)]
    for round_ in rounds:
        client.hear(client.turn.conclude_action(round_, round_.slots[0], "{}"))
    client.finish()
    calls = [item["call_id"] for item in client.output if item["type"] != "multi_agent_call_output"]
    assert len(set(calls)) == 4
    assert tree_faults(client.told) == []


# ---------------------------------------------------------------- what else is told


def test_mail_belongs_to_whom_it_reaches():
    client = tree_client()
    client.hear(client.turn.tell_messages([mail(ROOT, ALPHA), mail(ROOT, BETA)]))
    client.finish()
    assert [(item["author"], item["recipient"], item["agent"]["agent_name"]) for item in client.output] == [
        (ROOT, ALPHA, ALPHA),
        (ROOT, BETA, BETA),
    ]
    assert tree_faults(client.told) == []
    assert client.turn.ledger.total == retained(client.output)


def test_a_compaction_belongs_to_an_agent():
    client = tree_client()
    client.hear(client.turn.tell_compaction("token", ALPHA))
    client.hear(client.turn.tell_compaction("token"))
    client.finish()
    assert [item["agent"]["agent_name"] for item in client.output] == [ALPHA, ROOT]
    assert [each["agent"]["agent_name"] for each in client.told if "compacting" in each["type"]] == [ALPHA, ROOT]
    assert tree_faults(client.told) == []


def test_listings_and_results_belong_to_the_agent_of_their_round():
    client = tree_client()
    client.turn.host([LOOK], None)
    round_ = client.turn.open_round()
    slots, out = client.turn.open_listings(round_, ["s"])
    client.hear(out)
    client.hear(client.turn.conclude_listing(round_, slots[0], Listed(tools=[], offered=[], size=2)))
    client.finish()
    assert tree_faults(client.told) == []


def test_an_acknowledgement_has_a_number_and_no_agent():
    client = tree_client()
    client.hear(client.turn.tell(events.InjectCreated(response_id="resp_1")))
    assert client.told[-1] == {"type": "response.inject.created", "sequence_number": 2, "response_id": "resp_1"}


def test_a_whole_body_is_told_as_a_stream_is():
    client = tree_client()
    round_ = client.turn.open_round(ALPHA)
    body = {"status": "completed", "output": [{"id": "m", "status": "completed", **message("hi")}]}
    client.hear(client.turn.ingest_body(round_, body))
    client.finish()
    assert phases(client) == ["final_answer"]
    assert tree_faults(client.told) == []
    with pytest.raises(UpstreamError):
        client.turn.ingest_body(client.turn.open_round(ALPHA), {})


# ---------------------------------------------------------------- ends


def test_only_the_root_makes_a_response_incomplete():
    client = tree_client()
    round_ = say(client, ALPHA, message("half"), end=completed(status="incomplete"))
    assert (round_.reason, client.turn.is_cut_short) == ("max_output_tokens", False)
    say(client, ROOT, message("hi"), end=completed())
    client.finish()
    assert (client.told[-1]["type"], phases(client)) == ("response.completed", ["final_answer", "final_answer"])
    assert [item["status"] for item in client.output] == ["incomplete", "completed"]

    client = tree_client()
    say(client, ROOT, message("half"), end=completed(status="incomplete"))
    client.finish()
    assert client.told[-1]["type"] == "response.incomplete"
    assert tree_faults(client.told) == []


def test_an_action_that_was_cut_off_is_in_no_output():
    client = tree_client()
    say(client, ROOT, message("hi"), {**SPAWN, "arguments": '{"task'}, end=completed(status="incomplete"))
    client.finish()
    assert [item["type"] for item in client.output] == ["message"]
    assert client.turn.ledger.total == retained(client.output)
    assert tree_faults(client.told) == []


def test_an_interrupted_round_keeps_what_was_done():
    client = tree_client()
    client.turn.host([LOOK], None)
    round_ = say(client, ALPHA, THOUGHT, message("first"))
    client.ingest(round_, added({**message(""), "id": "open", "content": []}, 2))
    client.ingest(round_, text("half", item_id="open", output_index=2, content_index=0))
    assert not round_.is_between_items
    client.hear(client.turn.drop_open(round_))
    assert steps(client)[-1] == "message 1 done"
    heard = len(client.told)
    client.ingest(round_, text("more", item_id="open", output_index=2, content_index=0))
    client.ingest(round_, completed())
    assert len(client.told) == heard
    say(client, ROOT, message("hi"), end=completed())
    client.finish()
    assert [(item["type"], item.get("phase")) for item in client.output] == [
        ("reasoning", None),
        ("message", "commentary"),
        ("message", "final_answer"),
    ]
    assert [each["output_index"] for each in client.told if each["type"].endswith("item.added")] == [0, 1, 2, 3]
    assert [slot.final["type"] if isinstance(slot.final, dict) else slot.final.id for slot in round_.slots] == [
        item["id"] for item in client.output[:2]
    ]
    assert tree_faults(client.told, whole=False) == []
    assert client.turn.ledger.total == retained(client.output)


def test_calls_of_an_interrupted_round_that_nobody_carried_out_are_dropped():
    client = tree_client()
    round_ = say(client, ALPHA, message("first"), CALL, SPAWN, CALL | {"call_id": "call_q"})
    assert round_.is_between_items
    client.hear(client.turn.drop_open(round_))
    client.finish()
    assert [item["type"] for item in client.output] == ["message", "function_call"]
    assert len(round_.slots) == 2
    assert client.turn.ledger.total == retained(client.output)
    assert tree_faults(client.told) == []


def test_a_round_that_said_nothing_is_dropped_without_a_word():
    client = tree_client()
    round_ = client.turn.open_round(ALPHA)
    assert round_.is_between_items
    assert client.turn.drop_open(round_) == []
    assert round_.ended


def test_a_failed_response_shows_what_was_done_and_nothing_else():
    client = tree_client()
    say(client, ALPHA, message("whole"), end=completed())
    broken = say(client, ROOT, message("first"))
    client.ingest(broken, added({**message(""), "id": "m", "content": []}, 1))
    client.ingest(broken, text("half", item_id="m", output_index=1, content_index=0))
    other = client.turn.open_round(BETA)
    client.ingest(other, text("half", item_id="o", output_index=0, content_index=0))
    client.fail(UpstreamError("Gone."), broken)
    assert [item["content"][0]["text"] for item in client.output] == ["whole", "first"]
    assert phases(client) == ["final_answer", "commentary"]
    assert tree_faults(client.told) == []


def test_a_response_that_fails_between_rounds():
    client = tree_client()
    say(client, ALPHA, message("whole"), end=completed())
    client.fail(UpstreamError("Gone."))
    assert [item["content"][0]["text"] for item in client.output] == ["whole"]


def test_what_is_owed_when_an_inference_fails_is_told_as_its_own():
    client = tree_client()
    round_ = client.turn.open_round(ALPHA)
    snapshot = {"status": "completed", "output": [{"id": "m", **message("hi")}, {"id": "f", **CALL, "name": ""}]}
    with pytest.raises(UpstreamError, match="without a name"):
        client.ingest(round_, {"type": "response.completed", "response": snapshot})
    say(client, BETA, message("meanwhile"), end=completed())
    client.hear(client.turn.drop_open(round_))
    client.finish()
    assert [item["agent"]["agent_name"] for item in client.output] == [ALPHA, BETA]
    assert tree_faults(client.told) == []


# ---------------------------------------------------------------- what is retained


def test_arguments_are_charged_as_written_and_as_shown():
    client = tree_client()
    round_ = say(client, ROOT, SPAWN, end=completed())
    client.hear(client.turn.conclude_action(round_, round_.slots[0], "{}", [mail(ROOT, ALPHA)]))
    client.finish()
    assert client.turn.ledger.total == retained(client.output) + len(SPAWN["arguments"])


@pytest.mark.parametrize("step", ["mail", "output", "action", "compaction"])
def test_everything_told_fits_at_exactly_its_charge(step: str):
    def tell(limit: int) -> Client:
        client = tree_client(limit)
        turn = client.turn
        match step:
            case "mail":
                client.hear(turn.tell_messages([mail(ROOT, ALPHA)]))
            case "output":
                client.hear(turn.tell_action_output(ROOT, "call_w", "wait_agent", "late"))
            case "compaction":
                client.hear(turn.tell_compaction("token", ALPHA))
            case "action":
                round_ = say(client, ROOT, SPAWN, end=completed())
                client.hear(turn.conclude_action(round_, round_.slots[0], "{}", [mail(ROOT, ALPHA)]))
        return client

    needed = tell(1 << 20).turn.ledger.total
    assert tell(needed).turn.ledger.total == needed
    with pytest.raises(ResourceLimitExceeded):
        tell(needed - 1)


def test_a_note_that_does_not_fit_leaves_nothing():
    client = tree_client(100)
    with pytest.raises(ResourceLimitExceeded):
        client.turn.tell_compaction("t" * 100, ALPHA)
    assert client.turn.ledger.total == 0
