"""What the client's items become when engines leave things out, repeat or contradict themselves."""

import pytest
from property.engine import CARRIED, Client, completed, listen, make_turn, spell, whole

from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.ledger import charge

MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
SEARCH = {"type": "web_search_call", "id": "ws", "status": "in_progress", "action": {"type": "search"}}


def event(kind, **fields):
    return {"type": f"response.{kind}", **fields}


def added(item, index=None):
    return event("output_item.added", item=item, output_index=index)


def done(item, index=None):
    return event("output_item.done", item=item, output_index=index)


def text(delta, **place):
    return event("output_text.delta", delta=delta, **place)


def texts_of(client):
    return [[part.get("text", part.get("refusal")) for part in item["content"]] for item in client.output]


def settled(client):
    """The stream keeps the rules and the ledger is what is kept."""
    assert client.faults() == []
    assert client.turn.ledger.total == sum(charge(item) for item in client.output)
    return client


# ---------------------------------------------------------------- what is left out


def test_a_delta_alone_makes_a_message():
    client = settled(listen(text("Hel"), text("lo")))
    assert texts_of(client) == [["Hello"]]
    assert client.output[0]["role"] == "assistant"


@pytest.mark.parametrize(
    ("kind", "item_type"),
    [
        ("output_text", "message"),
        ("refusal", "message"),
        ("reasoning_text", "reasoning"),
        ("reasoning_summary_text", "reasoning"),
    ],
)
def test_each_kind_of_text_finds_its_item(kind, item_type):
    client = settled(listen(event(f"{kind}.delta", delta="a"), event(f"{kind}.done")))
    assert [item["type"] for item in client.output] == [item_type]


def test_a_snapshot_fills_in_what_was_not_streamed():
    client = settled(listen(added({**MESSAGE, "content": []}, 0), text("H", output_index=0), done(MESSAGE, 0)))
    assert texts_of(client) == [["Hi"]]
    assert client.deltas["response.output_text.delta", 0, 0, None] == "Hi"


def test_a_text_done_fills_in_what_was_not_streamed():
    client = settled(listen(text("H"), event("output_text.done", text="Hi")))
    assert texts_of(client) == [["Hi"]]


def test_a_call_without_a_word_of_its_arguments_still_says_they_are_done():
    for kind in ("function_call", "custom_tool_call"):
        client = settled(listen(added({"type": kind, "call_id": "c", "name": "f"}, 0)))
        assert client.output[0]["status"] == "completed"
        assert [
            told["type"]
            for told in client.told
            if told["type"].endswith((".arguments.done", "_arguments.done", "_input.done"))
        ]


def test_a_call_is_announced_once_its_name_is_known():
    late = added({"type": "function_call", "call_id": "c"}, 0)
    client = Client()
    round_ = client.turn.open_round()
    client.ingest(round_, late)
    client.ingest(round_, event("function_call_arguments.delta", output_index=0, delta="{"))
    assert [told["type"] for told in client.told] == ["response.created", "response.in_progress"]
    client.ingest(round_, event("function_call_arguments.done", output_index=0, arguments="{}", name="f"))
    assert client.told[2]["item"]["name"] == "f"
    client.ingest(round_, completed())
    assert settled(client.finish()).output[0]["arguments"] == "{}"


def test_a_call_whose_name_comes_with_its_snapshot():
    client = settled(listen(added({"type": "function_call", "call_id": "c"}, 0), done(CALL, 0)))
    assert client.output[0]["name"] == "f"


def test_a_call_that_never_gets_a_name_is_told_at_the_end():
    assert settled(listen(added({"type": "function_call"}, 0))).output[0]["name"] == ""


def test_items_of_the_final_snapshot_that_were_never_streamed_are_taken():
    end = completed([MESSAGE, CALL])
    client = settled(listen(*spell(MESSAGE, 0, whole), end=end))
    assert [item["type"] for item in client.output] == ["message", "function_call"]


def test_items_of_the_final_snapshot_under_new_ids_are_not_taken_twice():
    renamed = completed([MESSAGE, CALL])
    for number, item in enumerate(renamed["response"]["output"]):
        item["id"] = f"new{number}"
    client = settled(listen(*spell(MESSAGE, 0, whole), *spell(CALL, 1, whole), end=renamed))
    assert len(client.output) == 2


def test_indexes_with_gaps_do_not_double_the_final_snapshot():
    end = event("completed", response={"output": [{"type": "unseen"}, {**MESSAGE, "id": "new"}]})
    client = settled(listen(*spell(MESSAGE, 1, whole), end=end))
    assert [item["type"] for item in client.output] == ["message"]


def test_an_item_of_the_final_snapshot_known_by_its_id_is_not_taken_twice():
    end = event("completed", response={"output": [{"type": "unseen"}, {**MESSAGE, "id": "m"}]})
    assert len(settled(listen(done({**MESSAGE, "id": "m"}), end=end)).output) == 1


def test_nothing_and_nonsense_in_the_final_snapshot_is_left_out():
    end = event("completed", response={"output": [None, 5, {"id": "x"}, []]})
    assert listen(end=end).output == []


@pytest.mark.parametrize("item", [{}, {"id": "x"}, {"type": 5}, {"type": None}])
def test_an_item_without_a_type_is_no_item(item):
    assert listen(added(item, 0), done(item, 0)).output == []


def test_a_done_without_a_type_ends_the_item_it_names():
    client = Client()
    round_ = client.turn.open_round()
    for one in (added({"type": "message", "id": "m"}, 0), text("Hi", output_index=0), done({"id": "m"}, 0)):
        client.ingest(round_, one)
    client.ingest(round_, text(" there", output_index=0))
    client.ingest(round_, completed())
    assert texts_of(settled(client.finish())) == [["Hi"]]


# ---------------------------------------------------------------- what is repeated


def test_repeated_events_say_nothing_new():
    once = [one for item, index in ((MESSAGE, 0), (CALL, 1)) for one in spell(item, index, whole) if "delta" not in one]
    twice = [one for one in once for _ in range(2)]
    said_once, said_twice = settled(listen(*once)), settled(listen(*twice))
    assert said_once.told == said_twice.told


@pytest.mark.parametrize("item", [MESSAGE, CALL])
def test_a_done_repeated_without_an_id_is_no_new_item(item):
    assert len(settled(listen(added(item, 0), done(item, 0), done(item, 0))).output) == 1


def test_dones_without_id_and_index_are_items_of_their_own():
    assert len(settled(listen(done(MESSAGE), done(MESSAGE))).output) == 2


def test_an_id_used_again_after_its_item_is_done_is_a_new_item():
    events = [one for index in (0, 1) for one in spell(MESSAGE, index, whole)]
    for one in events:
        one.update({"item_id": "same"} if "item_id" in one else {"item": {**one["item"], "id": "same"}})
    assert texts_of(settled(listen(*events))) == [["Hi"], ["Hi"]]


def test_a_delta_after_its_done_is_not_believed():
    client = settled(
        listen(text("Hi"), event("output_text.done", text="Hi"), text("!"), event("output_text.done", text="Hi!"))
    )
    assert texts_of(client) == [["Hi"]]


def test_a_delta_after_its_item_is_not_believed():
    logprobs = [{"token": "!", "logprob": -1, "top_logprobs": []}]
    late = [
        text("!", item_id="e0", content_index=0),
        text("!", item_id="e0", content_index=7, logprobs=logprobs),
        event("output_text.done", item_id="e0", text="Hi!", logprobs=logprobs),
        event("output_text.annotation.added", item_id="e0", annotation={"type": "file_path"}),
        event("content_part.done", item_id="e0", part={"type": "output_text", "text": "Hi!"}),
    ]
    client = settled(listen(*spell(MESSAGE, 0, whole), *late))
    assert client.output[0]["content"] == MESSAGE["content"]


@pytest.mark.parametrize("kind", ["function_call_arguments", "custom_tool_call_input"])
def test_arguments_after_their_call_are_not_believed(kind):
    late = [
        event(f"{kind}.delta", output_index=0, delta="x"),
        event(f"{kind}.done", output_index=0, arguments="x", input="x"),
    ]
    assert settled(listen(*spell(CALL, 0, whole), *late)).output[0]["arguments"] == "{}"


def test_an_annotation_after_its_part_is_not_believed():
    annotation = event("output_text.annotation.added", annotation={"type": "file_path"})
    part_done = event("content_part.done", part={"type": "output_text", "text": "Hi"})
    assert settled(listen(text("Hi"), part_done, annotation)).output[0]["content"][0]["annotations"] == []


# ---------------------------------------------------------------- what contradicts itself


@pytest.mark.parametrize("snapshot", ["Ho", "Ho there", "H", "", None])
def test_a_snapshot_that_contradicts_what_was_streamed_is_not_believed(snapshot):
    assert texts_of(settled(listen(text("Hi"), event("output_text.done", text=snapshot)))) == [["Hi"]]


def test_a_snapshot_of_another_type_ends_its_item_and_changes_nothing():
    client = settled(listen(added(SEARCH, 0), done({**CALL, "id": "ws"}, 0)))
    assert client.output == [{**SEARCH, "id": client.output[0]["id"], "status": "completed"}]


@pytest.mark.parametrize("mode", ["off", "instead", "both"])
def test_reasoning_for_a_message_is_not_mixed_into_it(mode):
    reasoning = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}], "summary": []}
    client = settled(listen(text("Hi", output_index=0), done(reasoning, 0), summary_mode=mode))
    assert texts_of(client) == [["Hi"]]


def test_reasoning_inside_a_message_is_carried_as_it_came():
    parts = [{"type": "reasoning_text", "text": "Hm"}, {"type": "summary_text", "text": "hm"}]
    assert listen(done({**MESSAGE, "content": parts}, 0), summary_mode="both").output[0]["content"] == parts


def test_a_text_for_a_call_makes_a_message_of_its_own():
    client = settled(listen(added(CALL, 0), text("Hi", output_index=0)))
    assert [item["type"] for item in client.output] == ["function_call", "message"]


def test_arguments_for_a_message_are_dropped():
    stray = event("function_call_arguments.delta", output_index=0, delta="{")
    assert texts_of(settled(listen(added(MESSAGE, 0), stray, done(MESSAGE, 0)))) == [["Hi"]]


def test_arguments_for_nothing_are_dropped():
    stray = [event("function_call_arguments.delta", delta="{"), event("custom_tool_call_input.done", input="x")]
    assert listen(*stray).output == []


def test_a_mirror_that_is_done_hears_no_more():
    """The engine's own summary may end before the reasoning it would mirror."""
    own = [event("reasoning_summary_text.delta", delta="short"), event("reasoning_summary_text.done", text="short")]
    for events in (
        [*own, event("reasoning_text.delta", delta="long")],
        [event("reasoning_text.delta", delta="a"), *own, event("reasoning_text.delta", delta="b")],
    ):
        client = settled(listen(*events, summary_mode="both"))
        assert client.output[0]["content"][0]["text"] in ("long", "ab")
        assert client.output[0]["summary"][0]["text"] in ("short", "ashort")


# ---------------------------------------------------------------- parts


def test_unknown_parts_are_carried_as_they_came():
    strange = {"type": "output_image", "url": "data:,", "more": [1]}
    for events in (
        [done({**MESSAGE, "content": [strange]}, 0)],
        [added({"type": "message"}, 0), event("content_part.done", output_index=0, content_index=0, part=strange)],
    ):
        client = listen(*events)
        assert client.output[0]["content"] == [strange]
        assert client.turn.ledger.total == charge(client.output[0])
        part_done = next(told for told in client.told if told["type"].endswith("part.done"))
        assert part_done["part"] == strange


def test_unknown_parts_are_announced_as_what_they_are_and_final_once_done():
    begun, final, late = ({"type": "output_image", "url": f"data:,{number}"} for number in range(3))
    events = [event("content_part.added", part=begun), event("content_part.done", part=final)]
    client = listen(*events, event("content_part.done", part=late))
    assert [told["part"] for told in client.told if "content_part" in told["type"]] == [begun, final]
    assert client.output[0]["content"] == [final]
    assert client.turn.ledger.total == charge(client.output[0])


@pytest.mark.parametrize("kind", [5, None, ["output_text"]])
def test_a_part_of_no_type_is_text_or_carried(kind):
    client = listen(added({"type": "message"}, 0), event("content_part.added", output_index=0, part={"type": kind}))
    assert len(client.output[0]["content"]) == 1


def test_a_part_may_be_announced_without_being_described():
    client = settled(
        listen(
            added({"type": "reasoning"}, 0),
            event("content_part.added", output_index=0),
            event("content_part.done", output_index=0),
        )
    )
    assert client.output[0]["content"] == [{"type": "reasoning_text", "text": ""}]


def test_content_may_be_a_text_and_junk_in_it_is_left_out():
    assert texts_of(settled(listen(done({"type": "message", "content": "Hi"}, 0)))) == [["Hi"]]
    junk = {
        "type": "message",
        "content": [5, None, {"type": "text", "text": "Hi"}, {"type": "refusal", "refusal": 5}],
        "summary": [{"text": "no"}],
    }
    assert texts_of(settled(listen(done(junk, 0)))) == [["Hi", ""]]
    assert texts_of(settled(listen(done({"type": "message", "content": 5}, 0)))) == [[]]


def test_summaries_inside_content_are_summaries():
    item = {"type": "reasoning", "content": [{"type": "summary_text", "text": "s"}], "summary": [None]}
    assert settled(listen(done(item, 0))).output[0]["summary"] == [{"type": "summary_text", "text": "s"}]


def test_part_indexes_of_the_client_are_dense():
    events = [text("a", content_index=4), event("refusal.delta", delta="b", content_index=9)]
    client = settled(listen(*events))
    assert [told["content_index"] for told in client.told if told["type"].endswith("part.added")] == [0, 1]
    assert texts_of(client) == [["a", "b"]]


def test_phase_and_sealed_reasoning_are_taken_late():
    message, reasoning = {**MESSAGE, "phase": "final_answer"}, {"type": "reasoning", "encrypted_content": "gAAA"}
    begun = [added({"type": "message"}, 0), added({"type": "reasoning"}, 1)]
    client = settled(listen(*begun, done(message, 0), done(reasoning, 1)))
    assert client.output[0]["phase"] == "final_answer"
    assert client.output[1]["encrypted_content"] == "gAAA"


def test_annotations_are_told_when_they_come():
    annotation = {"type": "file_path", "file_id": "f"}
    client = settled(listen(text("Hi"), event("output_text.annotation.added", annotation=annotation)))
    assert client.output[0]["content"][0]["annotations"] == [annotation]
    (told,) = [told for told in client.told if told["type"].endswith("annotation.added")]
    assert (told["annotation_index"], told["annotation"]) == (0, annotation)


def test_logprobs_go_with_their_text():
    one, two = ({"token": token, "logprob": -1, "top_logprobs": []} for token in "ab")
    client = settled(
        listen(
            text("a", logprobs=[one]),
            text("b", logprobs=[two]),
            event("output_text.done", text="ab", logprobs=[one, two]),
        )
    )
    assert [told["logprobs"] for told in client.told if told["type"] == "response.output_text.delta"] == [[one], [two]]
    assert client.output[0]["content"][0]["logprobs"] == [one, two]
    done_only = settled(listen(text("ab"), event("output_text.done", text="ab", logprobs=[one, two])))
    assert done_only.output == client.output


def test_logprobs_after_their_text_are_not_believed():
    late = text("", logprobs=[{"token": "!", "logprob": -1, "top_logprobs": []}])
    assert settled(listen(text("Hi"), event("output_text.done"), late)).output[0]["content"][0]["logprobs"] == []


# ---------------------------------------------------------------- calls


def test_a_carried_custom_call_is_told_when_its_input_is_known():
    call = {"type": "function_call", "call_id": "c", "name": CARRIED, "arguments": '{"input": "ls\\n"}'}
    client = settled(listen(*spell(call, 0, lambda whole: [whole[:7], whole[7:]])))
    assert [told["type"].removeprefix("response.") for told in client.told[2:-1]] == [
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
    ]  # fmt: skip
    (item,) = client.output
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", CARRIED, "ls\n")
    assert item["id"].startswith("ctc_")


def test_a_carried_call_closed_behind_another_item_is_unwrapped_once():
    call = {"type": "function_call", "call_id": "c", "name": CARRIED, "arguments": '{"input": "ls"}'}
    client = settled(listen(added({"type": "message"}, 0), *spell(call, 1, whole)))
    assert client.output[1]["input"] == "ls"


def test_a_carried_call_that_breaks_off_shows_no_raw_arguments():
    call = {"type": "function_call", "call_id": "c", "name": CARRIED, "arguments": '{"input": "ls"}'}
    client = Client()
    round_ = client.turn.open_round()
    for one in spell(call, 0, whole)[:2]:
        client.ingest(round_, one)
    client.fail(ResourceLimitExceeded("max_retained_bytes", 1), round_)
    assert (client.output[0]["input"], client.output[0]["status"]) == ("", "incomplete")
    assert client.faults() == []


@pytest.mark.parametrize("call_id", [None, "", 5, "c" * 65, "taken"])
def test_a_call_id_that_cannot_be_kept_is_replaced(call_id):
    client = listen(done({**CALL, "call_id": call_id}, 0), used_call_ids={"taken"})
    assert client.output[0]["call_id"].startswith("call_")
    assert len(client.output[0]["call_id"]) == 37


def test_a_call_id_is_kept_once():
    used = {"other"}
    client = listen(done(CALL, 0), done(CALL, 1), used_call_ids=used)
    first, second = (item["call_id"] for item in client.output)
    assert first == "call_1" != second
    assert used == {"other", first, second}


def test_namespaces_are_kept_and_junk_is_not():
    client = listen(
        done({**CALL, "namespace": "mail"}, 0), done({**CALL, "namespace": 5}, 1), done({**CALL, "name": 5}, 2)
    )
    assert [item.get("namespace") for item in client.output] == ["mail", None, None]
    assert client.output[2]["name"] == ""


# ---------------------------------------------------------------- hosted tools


def test_hosted_events_are_told_with_our_id_and_index():
    said = [
        added(SEARCH, 3),
        event("web_search_call.searching", item_id="ws", output_index=3),
        done({**SEARCH, "status": "completed"}, 3),
    ]
    client = settled(listen(*said))
    searching = next(told for told in client.told if told["type"].endswith("searching"))
    assert (searching["item_id"], searching["output_index"]) == (client.output[0]["id"], 0)


def test_hosted_events_wait_for_the_item_before_and_count_while_they_wait():
    progress = event("web_search_call.searching", item_id="ws", output_index=1)
    client = Client()
    round_ = client.turn.open_round()
    for one in (added({"type": "message"}, 0), added(SEARCH, 1)):
        client.ingest(round_, one)
    before, heard = client.turn.ledger.total, len(client.told)
    client.ingest(round_, progress)
    assert len(client.told) == heard
    assert client.turn.ledger.total == before + charge(progress)
    for one in (done(MESSAGE, 0), done({**SEARCH, "status": "completed"}, 1), completed()):
        client.ingest(round_, one)
    settled(client.finish())
    assert client.told[-3]["type"] == progress["type"]


def test_hosted_text_counts_until_the_snapshot_replaces_it():
    code = {"type": "code_interpreter_call", "id": "ci", "status": "in_progress", "container_id": "c", "code": ""}
    client = Client()
    round_ = client.turn.open_round()
    client.ingest(round_, added(code, 0))
    before = client.turn.ledger.total
    client.ingest(round_, event("code_interpreter_call_code.delta", item_id="ci", output_index=0, delta="é"))
    assert client.turn.ledger.total == before + 2
    client.ingest(round_, done({**code, "status": "completed", "code": "é"}, 0))
    client.ingest(round_, completed())
    client.finish()
    assert client.turn.ledger.total == charge(client.output[0])


@pytest.mark.parametrize(
    "events", [[], [added(MESSAGE, 0)], [added(SEARCH, 0), done({**SEARCH, "status": "completed"}, 0)]]
)
def test_hosted_events_for_anything_else_are_dropped(events):
    stray = event("web_search_call.searching", output_index=0)
    assert [told["type"] for told in listen(*events, stray).told] == [told["type"] for told in listen(*events).told]


@pytest.mark.parametrize(
    ("status", "final"),
    [
        ("in_progress", "completed"),
        ("searching", "completed"),
        (None, "completed"),
        (5, "completed"),
        ("failed", "failed"),
    ],
)
def test_a_hosted_item_ends_with_a_final_status(status, final):
    assert settled(listen(added({**SEARCH, "status": status}, 0))).output[0]["status"] == final


def test_items_of_unknown_types_are_carried_with_our_id():
    strange = {"type": "hologram", "id": "theirs", "data": {"a": [None]}}
    client = listen(added(strange, 0), done(strange, 0))
    assert client.output == [{**strange, "id": client.output[0]["id"]}]
    assert client.output[0]["id"].startswith("item_")


# ---------------------------------------------------------------- order


def test_items_are_told_one_at_a_time():
    events = [added({"type": "message", "id": "a"}, 0), added({"type": "message", "id": "b"}, 1)]
    events += [
        text("2", item_id="b", output_index=1),
        text("1", item_id="a", output_index=0),
        done({"type": "message", "id": "b"}, 1),
    ]
    client = Client()
    round_ = client.turn.open_round()
    for one in events:
        client.ingest(round_, one)
    assert {told["output_index"] for told in client.told if "output_index" in told} == {0}
    client.ingest(round_, done({"type": "message", "id": "a"}, 0))
    client.ingest(round_, completed())
    assert texts_of(settled(client.finish())) == [["1"], ["2"]]


def test_the_last_item_is_held_back_until_the_round_ends():
    client = Client()
    round_ = client.turn.open_round()
    for one in spell(MESSAGE, 0, whole):
        client.ingest(round_, one)
    assert not [told for told in client.told if told["type"].endswith("output_item.done")]
    client.ingest(round_, completed(status="incomplete"))
    assert settled(client.finish()).output[0]["status"] == "incomplete"


def test_a_refused_item_leaves_no_trace():
    client = Client(make_turn(100))
    round_ = client.turn.open_round()
    with pytest.raises(ResourceLimitExceeded):
        client.ingest(round_, added(MESSAGE, 0))
    assert client.turn.ledger.total == 0
    assert client.fail(ResourceLimitExceeded("max_retained_bytes", 100), round_).output == []
