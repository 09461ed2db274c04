"""What the client's items become when engines leave things out, repeat or contradict themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
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

from gateway.protocol.errors import UpstreamError
from gateway.protocol.ledger import charge

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


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
@pytest.mark.parametrize("ended", [True, False])
def test_a_call_that_never_gets_a_name_is_the_upstreams_failure(kind, ended):
    nameless = {"type": kind, "call_id": "c"}
    client = Client()
    round_ = client.turn.open_round()
    client.ingest(round_, done(MESSAGE, 0))
    client.ingest(round_, (done if ended else added)(nameless, 1))
    with pytest.raises(UpstreamError, match="without a name") as refused:
        client.ingest(round_, completed())
    assert refused.value.code == "upstream_invalid_event"
    client.fail(refused.value, round_)
    assert [item["type"] for item in client.output] == ["message"]
    assert client.faults() == []


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_a_call_that_was_cut_short_before_its_name_is_left_out(kind):
    client = listen(done(MESSAGE, 0), added({"type": kind, "call_id": "c"}, 1), end=completed(status="incomplete"))
    assert [item["status"] for item in settled(client).output] == ["completed"]
    assert client.told[-1]["type"] == "response.incomplete"


def test_a_call_without_a_name_that_others_follow_was_not_cut_short():
    with pytest.raises(UpstreamError, match="without a name"):
        listen(added({"type": "function_call"}, 0), done(MESSAGE, 1), end=completed(status="incomplete"))


def test_a_call_whose_name_only_the_final_snapshot_knows():
    nameless = {name: value for name, value in CALL.items() if name != "name"}
    client = settled(listen(added(nameless, 0), done(nameless, 0), done(MESSAGE, 1), end=completed([CALL, MESSAGE])))
    assert [item.get("name") for item in client.output] == ["f", None]


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


# ---------------------------------------------------------------- what an item holds when it is added


def opened(item, *pieces, **fields):
    """An item that is added with its content, then what pieces say of it."""
    deltas = [event(fields["kind"], delta=piece, output_index=0) for piece in pieces]
    return listen(added(item, 0), *deltas, **({"end": fields["end"]} if "end" in fields else {}))


ARGUED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x":1}'}
TYPED = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "print(1)"}
WRAPPED = {"type": "function_call", "call_id": "c", "name": "run_shell", "arguments": '{"input":"ls"}'}
THOUGHT = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Short"}],
    "content": [{"type": "reasoning_text", "text": "Long"}],
}
OPENINGS = [MESSAGE, {**MESSAGE, "content": "Hi"}, THOUGHT, ARGUED, TYPED, WRAPPED]


def told_texts(client):
    return [
        [part.get("text") for name in ("content", "summary") for part in item.get(name) or ()]
        + [item[name] for name in ("arguments", "input") if name in item]
        for item in client.output
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    list(zip(OPENINGS, [["Hi"], ["Hi"], ["Long", "Short"], ['{"x":1}'], ["print(1)"], ["ls"]], strict=True)),
)
@pytest.mark.parametrize("again", ["never", "in its snapshot", "in the final snapshot", "in both"])
def test_what_an_item_holds_when_it_is_added_is_kept_once(item, expected, again):
    events = [added(item, 0), *([done(item, 0)] if again in ("in its snapshot", "in both") else [])]
    end = completed([item]) if again in ("in the final snapshot", "in both") else None
    assert told_texts(settled(listen(*events, end=end))) == [expected]


@pytest.mark.parametrize("item", OPENINGS)
def test_what_an_item_holds_when_it_is_added_is_charged_at_once(item):
    client = Client()
    client.ingest(client.turn.open_round(), added(item, 0))
    assert client.turn.ledger.total > sum(len(text) for text in told_texts(settled(listen(added(item, 0))))[0])


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4))
def test_an_opening_that_deltas_repeat_is_not_doubled(pieces):
    text = "".join(pieces)
    for item, kind in (
        ({**MESSAGE, "content": text}, "output_text.delta"),
        ({**TYPED, "input": text}, "custom_tool_call_input.delta"),
    ):
        assert told_texts(settled(opened(item, *pieces, kind=kind))) == [[text]]
        assert told_texts(settled(opened(item, *pieces[:1], kind=kind))) == [[text]]
        assert told_texts(settled(opened(item, *pieces, "!", kind=kind))) == [[text + "!"]]


@pytest.mark.parametrize(
    ("item", "kind", "pieces", "expected"),
    [
        (MESSAGE, "output_text.delta", ["!", "?"], "Hi!?"),
        ({**ARGUED, "arguments": '{"x"'}, "function_call_arguments.delta", [":1", "}"], '{"x":1}'),
        ({**TYPED, "input": "1"}, "custom_tool_call_input.delta", ["+1"], "1+1"),
        ({**WRAPPED, "arguments": '{"inp'}, "function_call_arguments.delta", ['ut":"ls"}'], "ls"),
    ],
)
def test_deltas_may_go_on_from_an_opening(item, kind, pieces, expected):
    assert told_texts(settled(opened(item, *pieces, kind=kind))) == [[expected]]


@pytest.mark.parametrize("placeholder", ["{}", '{"x": 1}', "null"])
def test_whole_arguments_only_hold_the_place_of_those_that_follow(placeholder):
    item = {**ARGUED, "arguments": placeholder}
    client = settled(opened(item, '{"x":', "1}", kind="function_call_arguments.delta"))
    assert told_texts(client) == [['{"x":1}']]


@pytest.mark.parametrize(
    ("family", "delta", "place"),
    [
        ("content_part", "output_text", "content_index"),
        ("reasoning_part", "reasoning_text", "content_index"),
        ("reasoning_summary_part", "reasoning_summary_text", "summary_index"),
    ],
)
def test_a_part_that_is_added_with_its_text_keeps_it_once(family, delta, place):
    kind = "summary_text" if place == "summary_index" else delta
    begin = event(f"{family}.added", part={"type": kind, "text": "Hi"}, **{place: 0})
    again = event(f"{delta}.delta", delta="Hi", **{place: 0})
    end = event(f"{family}.done", part={"type": kind, "text": "Hi"}, **{place: 0})
    for events in ([begin], [begin, again], [begin, end], [begin, again, end], [begin, begin, again]):
        assert told_texts(settled(listen(*events))) == [["Hi"]]


def test_annotations_and_logprobs_of_an_opening_give_way_to_those_that_are_told():
    part = {"type": "output_text", "text": "Hi", "annotations": [{"n": 1}], "logprobs": [{"token": "Hi"}]}
    item = {**MESSAGE, "content": [part]}
    assert settled(listen(added(item, 0))).output[0]["content"] == [part]
    told = event("output_text.annotation.added", annotation={"n": 2}, output_index=0)
    delta = event("output_text.delta", delta="Hi", logprobs=[{"token": "Hi"}], output_index=0)
    content = settled(listen(added(item, 0), delta, told)).output[0]["content"]
    assert content == [{**part, "annotations": [{"n": 2}]}]


def test_an_item_added_with_empty_parts_opens_none():
    empty = {**MESSAGE, "content": [{"type": "output_text", "text": ""}]}
    refused = event("refusal.delta", delta="No", output_index=0)
    assert texts_of(settled(listen(added(empty, 0), refused))) == [["No"]]


def test_unknown_parts_of_an_added_item_are_carried():
    sign = {"type": "hologram", "data": {"a": [1]}}
    client = settled(listen(added({**MESSAGE, "content": [sign]}, 0), done({**MESSAGE, "content": [sign]}, 0)))
    assert client.output[0]["content"] == [sign]


# ---------------------------------------------------------------- surrogate pairs in two pieces


@pytest.mark.parametrize(
    "events",
    [
        [text("a\ud83d"), text("\ude00b")],
        [text("a\ud83d"), text(""), text("\ude00"), text("b")],
        [text("a\ud83d"), event("output_text.done", text="a😀b")],
        [text("a\ud83d"), event("output_text.done", text="a"), event("content_part.done"), text("x")],
        [text("a\ud83d")],
        [text("\ud83d"), text("\ud83d"), text("\ude00")],
        [text("\ude00"), text("\ud83d"), text("b")],
    ],
)
def test_a_pair_in_two_pieces_is_told_in_one_and_a_half_is_kept(events):
    client = settled(listen(*events))
    ((said,),) = texts_of(client)
    assert client.deltas["response.output_text.delta", 0, 0, None] == said
    assert said in ("a😀b", "a\ud83d", "\ud83d😀", "\ude00\ud83db")


def test_every_kind_of_text_keeps_its_pairs_whole():
    reasoned = [event("reasoning_text.delta", delta=half) for half in ("\ud83d", "\ude00")]
    client = settled(listen(*reasoned, summary_mode="both"))
    assert told_texts(client) == [["😀", "😀"]]
    for item, kind in (
        (ARGUED, "function_call_arguments"),
        (TYPED, "custom_tool_call_input"),
        (WRAPPED, "function_call_arguments"),
    ):
        bare = {**item, **{name: "" for name in ("arguments", "input") if name in item}}
        halves = [event(f"{kind}.delta", delta=half, output_index=0) for half in ("\ud83d", "\ude00")]
        assert told_texts(settled(listen(added(bare, 0), *halves))) == [["😀"]]


@given(st.text("a\ud83d\ude00😀", min_size=1, max_size=8), st.data())
def test_any_text_cut_into_code_units_reads_the_same(written, data):
    """What a client joins from the deltas is what the done text says, and costs the same however it is cut."""
    units = written.encode("utf-16-le", "surrogatepass")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(units) // 2), max_size=4)))
    pieces = [
        units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")
        for start, end in zip([0, *cuts], [*cuts, len(units) // 2], strict=True)
    ]
    client = settled(listen(*map(text, pieces)))
    read = units.decode("utf-16-le", "surrogatepass")
    assert texts_of(client) == [[read]]
    assert client.deltas["response.output_text.delta", 0, 0, None] == read
    assert client.turn.ledger.total == charge(client.output[0])


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
