"""Windows are made from the order of items alone: nothing that waits is lost, and what is replayed gives the same."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import codec
from gateway.protocol.compaction import (
    Window,
    build_note_message,
    build_window,
    estimate_tokens,
    find_protected,
    read_note,
    read_threshold,
    split_trigger,
    write_note,
)
from gateway.protocol.errors import InvalidRequest


def user(text, role="user"):
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def said(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(call_id):
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": "done"}


NOTE = {"type": "compaction", "encrypted_content": "…"}
ASKED = {"type": "mcp_approval_request", "id": "mcpr_1"}
DECIDED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}

# ---------------------------------------------------------------- what must stay


@pytest.mark.parametrize(
    ("items", "protected"),
    [
        ([], 0),
        ([user("q"), said("a")], 2),
        ([user("q"), call("1"), output("1")], 3),
        ([user("q"), call("1")], 1),
        ([user("q"), call("1"), output("1"), call("2")], 3),
        ([call("1"), call("2"), output("2")], 0),
        # The output of the first call lies behind the second, which waits.
        ([call("1"), call("2"), output("1")], 0),
        ([call("0"), call("1"), output("0"), call("2"), output("1"), user("q")], 0),
        # An id may come again once its call was answered.
        ([call("1"), output("1"), call("1")], 2),
        ([user("q"), output("1")], 2),
        ([user("q"), ASKED], 1),
        ([user("q"), ASKED, DECIDED], 3),
    ],
)
def test_what_waits_stays_with_all_that_belongs_to_it(items, protected):
    assert find_protected(items) == protected


_IDS = st.sampled_from("123")
_ITEMS = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=30), st.sampled_from(["user", "developer"])),
        st.builds(said, st.text(max_size=30)),
        st.builds(call, _IDS),
        st.builds(output, _IDS),
    ),
    max_size=14,
)


@given(_ITEMS)
def test_no_output_is_parted_from_its_call(items):
    tail = items[find_protected(items) :]
    open_calls = set()
    for item in tail:
        if item["type"] == "function_call":
            open_calls.add(item["call_id"])
        elif item["type"] == "function_call_output":
            # One that never had a call is the request's own mistake.
            orphan = item["call_id"] not in open_calls
            assert not orphan or _has_no_call(items, item)
            open_calls.discard(item["call_id"])


def _has_no_call(items, wanted):
    waiting = set()
    for item in items:
        if item is wanted:
            return wanted["call_id"] not in waiting
        if item["type"] == "function_call":
            waiting.add(item["call_id"])
        elif item["type"] == "function_call_output":
            waiting.discard(item["call_id"])
    return False


# ---------------------------------------------------------------- windows


def test_a_window_shows_kept_messages_then_the_note_then_what_waits():
    items = [user("rules", "developer"), user("q1"), said("a1"), user("q2"), call("1")]
    window = Window(tail=items).compact("n", 1000)
    assert window.show() == [items[0], items[1], items[3], build_note_message("n"), call("1")]
    assert window.extend([output("1")]).show()[-2:] == [call("1"), output("1")]
    assert Window(tail=items).summarized() == items[:4]


def test_the_newest_messages_stay_as_far_as_they_fit():
    items = [user("rules", "system"), user("a" * 50), user("b" * 50), user("c" * 50)]
    size = len(codec.encode(items[1]))
    kept = [Window(tail=items).compact("n", most).kept for most in (3 * size, 2 * size, 2 * size - 1, 0, None)]
    assert kept == [items, [items[0], *items[2:]], [items[0], items[3]], [items[0], items[3]], items]


@given(_ITEMS, _ITEMS, _ITEMS, st.integers(0, 300))
def test_a_replayed_conversation_gives_the_window_it_went_on_with(first, second, third, most):
    live = Window(tail=first).compact("one", most).extend(second).compact("two", most).extend(third)
    replayed = build_window(
        [*first, NOTE, *second, NOTE, *third], {len(first): "one", len(first) + 1 + len(second): "two"}, most
    )
    assert live.kept == replayed.kept
    assert live.note == replayed.note == "two"
    assert list(live.tail) == list(replayed.tail)


@given(_ITEMS, st.integers(0, 300))
def test_nothing_a_user_wrote_last_and_nothing_that_waits_is_lost(items, most):
    shown = Window(tail=items).compact("n", most).show()
    protected = find_protected(items)
    assert shown[len(shown) - (len(items) - protected) :] == items[protected:]
    users = [item for item in items[:protected] if item.get("role") == "user"]
    assert not users or users[-1] in shown


def test_without_a_note_a_conversation_is_its_window():
    items = [user("q"), NOTE, said("a")]
    assert build_window(items, {}, 0).show() == items


def test_older_notes_are_in_the_newest():
    items = [user("q1"), NOTE, said("a"), NOTE, user("q2")]
    window = build_window(items, {1: "old", 3: "new"}, 1000)
    assert window.show() == [user("q1"), build_note_message("new"), user("q2")]
    assert build_window(items, {1: "old"}, 1000).show() == [
        *(user("q1"), build_note_message("old"), said("a"), NOTE, user("q2"))
    ]


def test_a_window_without_news_is_not_compacted_again():
    window = Window(tail=[user("q"), call("1")])
    assert window.is_compactable
    again = window.compact("n", 1000)
    assert not again.is_compactable
    assert again.extend([output("1")]).is_compactable
    assert not Window().is_compactable


# ---------------------------------------------------------------- estimates


@given(st.text(max_size=200))
def test_a_text_counts_a_quarter_of_its_bytes(text):
    size = len(text.encode("utf-8", "surrogatepass"))
    assert estimate_tokens([user(text)]) == math.ceil((size + len("user")) / 4) + 8


def test_images_count_the_same_whatever_their_size():
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 10_000}
    small = {"type": "input_image", "image_url": "data:,"}
    assert estimate_tokens([image]) == estimate_tokens([small]) == 1024
    assert estimate_tokens([]) == 0


def test_what_the_model_does_not_see_does_not_count():
    bare = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    full = {
        **bare,
        "id": "msg_1",
        "status": "completed",
        "content": [{**bare["content"][0], "logprobs": [{"token": "a" * 99}]}],
    }
    assert estimate_tokens([full]) == estimate_tokens([bare])


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("entries", "threshold"),
    [
        (None, None),
        ([], None),
        ([{"type": "compaction"}], 7),
        ([{"type": "compaction", "compact_threshold": None}], 7),
        ([{"type": "compaction", "compact_threshold": 5}], 5),
        ([{"type": "compaction", "compact_threshold": 5}, {"type": "compaction", "compact_threshold": 9}], 9),
    ],
)
def test_thresholds(entries, threshold):
    assert read_threshold(entries, 7) == threshold


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        ("compaction", "context_management[0]"),
        ({}, "context_management[0].type"),
        ({"type": "clear_tool_uses"}, "context_management[0].type"),
        *(
            ({"type": "compaction", "compact_threshold": wrong}, "context_management[0].compact_threshold")
            for wrong in (0, -1, "5", 5.0, 1.5, True, [], {})
        ),
    ],
)
def test_wrong_entries_are_named(entry, param):
    with pytest.raises(InvalidRequest) as refused:
        read_threshold([entry], 7)
    assert (refused.value.param, refused.value.code) == (param, "invalid_value")


def test_a_trigger_counts_at_the_end_alone():
    trigger = {"type": "compaction_trigger"}
    assert split_trigger([user("q"), trigger]) == ([user("q")], True)
    assert split_trigger([trigger, user("q")]) == ([trigger, user("q")], False)
    assert [split_trigger(given) for given in ("q", None, [], ["q"])] == [
        ("q", False),
        (None, False),
        ([], False),
        (["q"], False),
    ]


# ---------------------------------------------------------------- notes


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_notes_come_back(note):
    assert read_note(write_note(note)) == note


@pytest.mark.parametrize("opened", [b"[]", b'{"version":2,"note":"n"}', b'{"version":1,"note":7}'])
def test_what_another_version_wrote_is_no_note(opened):
    assert read_note(opened) is None
