"""What the client's items become when engines leave things out, repeat or contradict themselves."""

import pytest
from property.engine import (
    CALL,
    MESSAGE,
    Client,
    added,
    completed,
    done,
    event,
    listen,
    settled,
    spell,
    text,
    texts_of,
    whole,
)

SEARCH = {"type": "web_search_call", "id": "ws", "status": "in_progress", "action": {"type": "search"}}


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


def test_an_item_that_was_begun_and_never_filled_takes_its_text_from_the_final_snapshot():
    client = settled(listen(added({**MESSAGE, "content": []}, 0), text("H", output_index=0), end=completed([MESSAGE])))
    assert texts_of(client) == [["Hi"]]
    assert client.deltas["response.output_text.delta", 0, 0, None] == "Hi"


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
