"""What deleting promises, asked of all three stores."""

import asyncio

import pytest
from sqlalchemy import select

from gateway.ports import Deletion
from gateway.protocol.errors import ResponseNotFound, StorageUnavailable
from gateway.storage.commit import BatchCommit
from gateway.storage.tables import responses
from tests.storage.samples import make_chain, make_item, make_response


def deletion(response, **changes):
    return Deletion(**{"id": response.id, "principal": response.principal, "at": 1_700_000_100, **changes})


async def append_chain(store, length):
    chain = make_chain(length)
    for response in chain:
        await store.append(response)
    return chain


async def test_a_deleted_response_is_not_there(store):
    response = make_response(make_item(id="msg_gone"))
    await store.append(response)
    await store.delete(deletion(response))
    assert await store.response("local", response.id) is None
    assert await store.history("local", response.id) is None
    assert await store.items("local", ["msg_gone"]) == {}


async def test_children_of_a_deleted_response_still_replay_it(store):
    first, second, third = await append_chain(store, 3)
    await store.delete(deletion(second))
    history = await store.history("local", third.id)
    assert list(history.items) == [*first.items, *second.items, *third.items]
    assert await store.response("local", third.id) == third
    assert await store.response("local", first.id) == first


async def test_a_child_in_the_making_is_stored_below_a_deleted_parent(store):
    (parent,) = await append_chain(store, 1)
    await store.delete(deletion(parent))
    child = make_response(make_item("late"), parent_id=parent.id)
    await store.append(child)
    history = await store.history("local", child.id)
    assert list(history.items) == [*parent.items, *child.items]


@pytest.mark.parametrize("changes", [{"id": "resp_unknown"}, {"principal": "other"}, {"id": "\ud800"}], ids=ascii)
async def test_what_is_not_the_callers_cannot_be_deleted(store, changes):
    response = make_response(make_item())
    await store.append(response)
    with pytest.raises(ResponseNotFound):
        await store.delete(deletion(response, **changes))
    assert await store.response("local", response.id) == response


async def test_of_many_deletions_at_once_one_succeeds(store):
    (response,) = await append_chain(store, 1)
    outcomes = await asyncio.gather(*(store.delete(deletion(response)) for _ in range(8)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", *["ResponseNotFound"] * 7]


async def test_deletions_and_appends_share_a_batch(store):
    kept, gone = make_response(make_item("kept")), make_response(make_item("gone"))
    unknown = make_response()
    outcomes = await asyncio.gather(
        *(store.append(response) for response in (kept, gone)),
        *(store.delete(deletion(response)) for response in (gone, unknown)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [*[type(None)] * 3, ResponseNotFound]
    assert await store.response("local", kept.id) == kept
    assert await store.response("local", gone.id) is None


async def test_a_closed_store_deletes_nothing(store):
    (response,) = await append_chain(store, 1)
    await store.close()
    with pytest.raises(StorageUnavailable):
        await store.delete(deletion(response))


async def test_other_processes_see_it_at_once(open_sql_store):
    one, other = await open_sql_store(), await open_sql_store()
    (response,) = await append_chain(one, 1)
    await other.delete(deletion(response))
    assert await one.response("local", response.id) is None
    with pytest.raises(ResponseNotFound):
        await one.delete(deletion(response))


async def test_deletions_are_counted(sql_store):
    (response,) = await append_chain(sql_store, 1)
    await sql_store.delete(deletion(response))
    with pytest.raises(ResponseNotFound):
        await sql_store.delete(deletion(response))
    assert sql_store._metrics.registry.get_sample_value("gateway_storage_deletions_total") == 1


async def test_the_time_of_deletion_is_kept(sql_store):
    (response,) = await append_chain(sql_store, 1)
    await sql_store.delete(deletion(response))
    with sql_store._engine.connect() as connection:
        assert connection.scalar(select(responses.c.deleted_at)) == 1_700_000_100


async def test_a_poisoned_append_takes_no_deletion_along(sql_store):
    (response,) = await append_chain(sql_store, 1)
    commit = BatchCommit(sql_store._engine, lambda: None)
    taken, done = commit([response, deletion(response)])
    assert isinstance(taken, StorageUnavailable)
    assert done is None
    assert await sql_store.response("local", response.id) is None
