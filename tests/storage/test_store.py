"""What every store promises, asked of all three."""

import asyncio

import pytest

from gateway.ports import Deletion, Store
from gateway.protocol.errors import InvalidRequest, StorageUnavailable
from tests.storage.samples import make_chain, make_item, make_response

ODD_TEXTS = ["", "a\x00b", "\ud800", "\udfff\ud800", "\\", r"\u0000", "\\\x00", "😀", "\u2028", "x" * 10_000]


async def texts(store: Store, response_id: str, principal: str = "local") -> list[bytes] | None:
    history = await store.history(principal, response_id)
    return None if history is None else [item.data for item in history.items]


async def test_returns_what_was_appended(store):
    response = make_response(
        make_item(role="context", status=None),
        make_item(role="input", type="function_call_output", call_id="call_1", id=""),
        make_item(role="output", status="incomplete", agent="/root/worker"),
        status="incomplete",
        completed_at=1_700_000_009,
        snapshot=b'{"id":"x","output":[]}',
    )
    await store.append(response)
    found = await store.response("local", response.id)
    assert found == response


@pytest.mark.checklist(54)
async def test_returns_nothing_for_unknown_and_foreign_ids(store):
    response = make_response(make_item())
    await store.append(response)
    for principal, response_id in [("local", "resp_unknown"), ("other", response.id), ("", response.id)]:
        assert await store.response(principal, response_id) is None
        assert await store.history(principal, response_id) is None


async def test_keeps_a_response_without_items(store):
    response = make_response()
    await store.append(response)
    assert await store.response("local", response.id) == response
    assert await texts(store, response.id) == []


async def test_history_is_oldest_first_and_in_item_order(store):
    chain = make_chain(4)
    for response in chain:
        await store.append(response)
    history = await store.history("local", chain[2].id)
    assert history is not None
    assert history.response_id == chain[2].id
    assert list(history.items) == [item for response in chain[:3] for item in response.items]


async def test_history_skips_responses_without_items(store):
    first = make_response(make_item("first"))
    second = make_response(parent_id=first.id)
    third = make_response(make_item("third"), parent_id=second.id)
    for response in (first, second, third):
        await store.append(response)
    assert await texts(store, third.id) == [b'{"text":"first"}', b'{"text":"third"}']


async def test_forks_share_their_parent_and_nothing_else(store):
    parent = make_response(make_item("parent"))
    forks = [make_response(make_item(f"fork {number}"), parent_id=parent.id) for number in range(3)]
    for response in (parent, *forks):
        await store.append(response)
    for number, fork in enumerate(forks):
        assert await texts(store, fork.id) == [b'{"text":"parent"}', f'{{"text":"fork {number}"}}'.encode()]


async def test_parent_and_child_may_be_appended_at_once(store):
    chain = make_chain(20)
    await asyncio.gather(*(store.append(response) for response in chain))
    history = await store.history("local", chain[-1].id)
    assert history is not None
    assert len(history.items) == 40


@pytest.mark.checklist(61)
async def test_item_ids_and_call_ids_may_repeat(store):
    same = make_item(id="msg_same", call_id="call_same")
    first = make_response(same, same)
    second = make_response(same, parent_id=first.id)
    await store.append(first)
    await store.append(second)
    assert await texts(store, second.id) == [same.data] * 3


@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
async def test_any_text_of_a_caller_survives(store, text):
    item = make_item(id=text, call_id=text, status=text, type=text, agent=text)
    response = make_response(item, principal=text, model=text)
    await store.append(response)
    assert await store.response(text, response.id) == response
    child = make_response(parent_id=response.id, principal=text)
    await store.append(child)
    history = await store.history(text, child.id)
    assert history is not None
    assert list(history.items) == [item]
    assert await store.response("local", text) is None


@pytest.mark.parametrize(
    "data",
    [b'{"t":"\x00"}', rb'{"t":"\u0000\ud800"}', '{"t":"😀\u2028"}'.encode(), b"\xff\xfe", b"x" * (20 * 1024 * 1024)],
    ids=["nul", "escaped surrogate", "emoji", "not utf-8", "20 MiB"],
)
async def test_any_payload_survives(store, data):
    response = make_response(make_item(data=data), snapshot=data)
    await store.append(response)
    assert await store.response("local", response.id) == response
    assert await texts(store, response.id) == [data]


async def test_refuses_an_id_that_is_taken_and_keeps_the_first(store):
    first = make_response(make_item("first"))
    await store.append(first)
    for principal in ("local", "other"):
        with pytest.raises(StorageUnavailable, match="id exists already"):
            await store.append(make_response(make_item("second"), id=first.id, principal=principal))
    assert await store.response("local", first.id) == first


@pytest.mark.checklist(54)
async def test_refuses_a_parent_that_is_unknown_or_foreign(store):
    foreign = make_response(principal="other")
    await store.append(foreign)
    for parent_id in ("resp_unknown", foreign.id):
        child = make_response(make_item(), parent_id=parent_id)
        with pytest.raises(StorageUnavailable, match="parent is gone"):
            await store.append(child)
        assert await store.response("local", child.id) is None


def assert_too_long(error, param):
    assert (error.status, error.code, error.param) == (400, "history_too_long", param)


async def test_history_is_bounded_in_responses(open_store):
    store = await open_store(history_max_responses=3)
    chain = make_chain(4)
    for response in chain:
        await store.append(response)
    assert len(await texts(store, chain[2].id)) == 6
    with pytest.raises(InvalidRequest, match=r"history_max_responses \(3 responses\)") as caught:
        await store.history("local", chain[3].id)
    assert_too_long(caught.value, "previous_response_id")


async def test_history_is_bounded_in_bytes(open_store):
    store = await open_store(history_max_bytes=100)
    first = make_response(make_item(data=b"x" * 60))
    exact = make_response(make_item(data=b"y" * 40), parent_id=first.id)
    above = make_response(make_item(data=b"z"), parent_id=exact.id)
    for response in (first, exact, above):
        await store.append(response)
    assert len(await texts(store, exact.id)) == 2
    with pytest.raises(InvalidRequest, match=r"history_max_bytes \(100 bytes\)") as caught:
        await store.history("local", above.id)
    assert_too_long(caught.value, "previous_response_id")


async def test_finds_the_newest_item_of_each_id(store):
    first = make_response(make_item("old", id="msg_1"), make_item("other", id="msg_2"))
    second = make_response(make_item("new", id="msg_1"), make_item("newest", id="msg_1"), parent_id=first.id)
    foreign = make_response(make_item("foreign", id="msg_1"), make_item(id="msg_3"), principal="other")
    for response in (first, second, foreign):
        await store.append(response)
    found = await store.items("local", ["msg_1", "msg_2", "msg_3", "msg_unknown", "msg_1"])
    assert found == {"msg_1": second.items[1], "msg_2": first.items[1]}
    assert await store.items("local", []) == {}


async def test_finds_items_by_odd_ids_up_to_a_length(store):
    ids = ["\x00" * 10, "\ud800\\", "😀" * 64, "x" * 64]
    response = make_response(*(make_item(id=item_id) for item_id in [*ids, "y" * 65]))
    await store.append(response)
    assert set(await store.items("local", [*ids, "y" * 65])) == set(ids)


async def test_finds_thousands_of_items(store):
    ids = [f"msg_{number}" for number in range(2500)]
    await store.append(make_response(*(make_item(id=item_id) for item_id in ids)))
    assert set(await store.items("local", ids)) == set(ids)


async def test_items_are_bounded_in_bytes(open_store):
    store = await open_store(history_max_bytes=100)
    await store.append(make_response(*(make_item(id=f"msg_{number}", data=b"x" * 50) for number in range(3))))
    assert len(await store.items("local", ["msg_0", "msg_2"])) == 2
    with pytest.raises(InvalidRequest, match=r"history_max_bytes \(100 bytes\); refer to fewer") as caught:
        await store.items("local", ["msg_0", "msg_1", "msg_2"])
    assert_too_long(caught.value, "input")


async def test_probe_is_healthy_until_closed(store):
    assert (await store.probe()).healthy
    await store.close()
    health = await store.probe()
    assert not health.healthy
    assert health.detail == "The store is closed."
    with pytest.raises(StorageUnavailable, match="closed"):
        await store.append(make_response())


async def test_sizes_add_up_until_what_was_deleted_is_removed(store):
    first = make_response(make_item("one"), make_item("two"), snapshot=b"{}" * 40_000)
    second = make_response(principal="bob")
    for response in (first, second):
        await store.append(response)
    await store.delete(Deletion(id=first.id, principal="local", at=1))
    sizes = [await store.stored_bytes(principal) for principal in ("local", "bob", "nobody")]
    assert sizes == [first.size, second.size, 0]
    assert first.size == 80_000 + 2 * len(b'{"text":"one"}')
