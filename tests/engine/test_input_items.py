import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.input_items import Page, list_input_items
from gateway.ports import StoredItem, StoredResponse
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.response import ItemList


def make_item(number, id="msg_1", kept_as="input", **fields):
    data = {"type": "message", "role": "user", "content": f"i-{number}", **fields}
    return StoredItem(role=kept_as, type=data["type"], id=id, data=json.dumps(data).encode())


def make_response(*items):
    return StoredResponse(
        id="resp_1", principal="local", status="completed", model="m", created_at=1, snapshot=b"{}", items=items
    )


def list_one(**fields):
    (item,) = list_input_items(make_response(make_item(0, **fields)), Page()).data
    return item


def read_all(response, order, limit):
    """Page through the list as clients do, by the id of the last element."""
    found, after = [], None
    while True:
        page = list_input_items(response, Page(after=after, order=order, limit=limit))
        assert page.data
        assert (page.first_id, page.last_id) == (page.data[0]["id"], page.data[-1]["id"])
        found += page.data
        if not page.has_more:
            return found
        assert len(page.data) == limit
        after = page.last_id


@given(
    ids=st.lists(st.sampled_from(["msg_1", "msg_2", "", "\ud800"]), min_size=1, max_size=12),
    limit=st.integers(1, 13),
)
def test_each_item_is_listed_once_both_ways_though_ids_repeat(ids, limit):
    response = make_response(*(make_item(number, id) for number, id in enumerate(ids)))
    ascending = read_all(response, "asc", limit)
    assert [item["content"][0]["text"] for item in ascending] == [f"i-{number}" for number in range(len(ids))]
    assert len({item["id"] for item in ascending}) == len(ids)
    assert {item["id"] for item in ascending} >= set(ids)
    assert read_all(response, "desc", limit) == ascending[::-1]


def test_an_id_made_for_a_repeated_one_is_nobody_elses():
    plain = make_response(make_item(0), make_item(1))
    derived = list_input_items(plain, Page()).data[0]["id"]
    crowded = make_response(make_item(0), make_item(1), make_item(2, derived))
    ids = [item["id"] for item in list_input_items(crowded, Page(order="asc")).data]
    assert (ids[0], ids[2]) == ("msg_1", derived)
    assert len(set(ids)) == 3


def test_only_the_input_is_listed():
    items = [make_item(0, kept_as="context"), make_item(1, "msg_2"), make_item(2, "msg_3", kept_as="output")]
    assert [item["id"] for item in list_input_items(make_response(*items), Page()).data] == ["msg_2"]


def test_no_input_is_an_empty_list():
    assert list_input_items(make_response(), Page()) == ItemList(data=[], first_id=None, last_id=None, has_more=False)


def test_an_unknown_item_is_named():
    with pytest.raises(InvalidRequest) as error:
        list_input_items(make_response(make_item(0)), Page(after="msg_other"))
    assert (error.value.status, error.value.code, error.value.param) == (400, "item_not_found", "after")


def test_strings_are_written_out_and_parts_stay():
    assert list_one()["content"] == [{"type": "input_text", "text": "i-0"}]
    assert list_one(role="assistant")["content"] == [{"type": "output_text", "text": "i-0", "annotations": []}]
    parts = [{"type": "input_image", "image_url": "data:image/png;base64,"}]
    assert list_one(content=parts)["content"] == parts


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "completed"),
        ({"status": "incomplete"}, "incomplete"),
        ({"type": "function_call_output"}, "completed"),
        ({"type": "reasoning"}, None),
    ],
)
def test_items_that_need_a_status_have_one(fields, status):
    assert list_one(**fields).get("status") == status
