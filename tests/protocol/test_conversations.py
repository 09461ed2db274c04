"""What callers say of conversations."""

import pytest

from gateway.protocol.conversations import (
    MAX_NEW_ITEMS,
    ConversationFields,
    check_item_ids,
    read_conversation_id,
    read_new_items,
    refuse_size,
)
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.mismatch import read_fields


def refusal_of(act, *arguments, **named):
    with pytest.raises(InvalidRequest) as refused:
        act(*arguments, **named)
    return refused.value.code, refused.value.param


@pytest.mark.parametrize("value", ["conv_1", {"id": "conv_1"}, {"id": "conv_1", "object": "conversation"}])
def test_a_conversation_is_named_in_two_ways(value):
    assert read_conversation_id(value, None) == "conv_1"
    assert refusal_of(read_conversation_id, value, "resp_1") == (
        "mutually_exclusive_parameters",
        "previous_response_id",
    )


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ("", "invalid_value", "conversation"),
        ({"id": ""}, "invalid_value", "conversation.id"),
        ({}, "invalid_type", "conversation.id"),
        ({"id": 7}, "invalid_type", "conversation.id"),
    ],
)
def test_what_names_none_is_refused(value, code, param):
    assert refusal_of(read_conversation_id, value, None) == (code, param)


def test_new_items_are_few_and_checked_like_input():
    assert read_new_items(None, remote_images=False) == []
    message = {"role": "user", "content": "hi"}
    assert len(read_new_items([message] * MAX_NEW_ITEMS, remote_images=False)) == MAX_NEW_ITEMS
    assert refusal_of(read_new_items, [message] * (MAX_NEW_ITEMS + 1), remote_images=False) == (
        "array_above_max_length",
        "items",
    )
    assert refusal_of(read_new_items, [message, {"role": "nobody"}], remote_images=False) == (
        "invalid_value",
        "items[1].role",
    )
    assert refusal_of(read_new_items, [{"id": "msg_1"}], remote_images=False) == ("invalid_value", "items[0].type")


def test_ids_tell_items_apart():
    check_item_ids(["a", None, "b", None, "x" * 64, "ü.:-_"], {"c"})
    assert refusal_of(check_item_ids, ["a", "c"], {"c"}) == ("duplicate_item", "input[1].id")
    assert refusal_of(check_item_ids, ["a", "a"], (), name="items") == ("duplicate_item", "items[1].id")
    for wrong in (7, "", "x" * 65, "a b", "a/b", "a?", "a#", "a\x00", "a\n"):
        assert refusal_of(check_item_ids, [wrong], ()) == ("invalid_value", "input[0].id")


def test_sizes_are_refused_by_the_name_of_their_bound():
    assert refuse_size(2, 10, 2, 10, param="input") is None
    many, large = refuse_size(3, 11, 2, 10, param="input"), refuse_size(2, 11, 2, 10, param="input")
    assert (many.bound, large.bound) == ("conversations.max_items", "conversations.max_bytes")
    assert (many.code, many.param) == ("conversation_too_large", "input")


def test_bodies_name_what_is_wrong():
    assert read_fields({"items": None, "more": 1}, ConversationFields).items is None
    assert refusal_of(read_fields, {"metadata": {"a": 7}}, ConversationFields)[1] == "metadata"
    assert refusal_of(read_fields, {"metadata": {str(n): "" for n in range(17)}}, ConversationFields)[1] == "metadata"
