"""What is removed of conversations, and what they keep."""

import asyncio

import pytest
from sqlalchemy import func, select

from gateway.ports import ConversationDeletion, Deletion
from gateway.storage.expiry import Expiry
from gateway.storage.owners import Owned, OwnerChange
from gateway.storage.purge import Purge
from gateway.storage.retention import Cutoffs, Removed
from gateway.storage.tables import conversation_items, conversations, items, responses
from tests.storage.samples import make_item, make_response
from tests.storage.test_conversations import ID, begin, claim, ids_of, named, take

ALL = Cutoffs(created=2_000_000_000, deleted=2_000_000_000)


def count_rows(store):
    with store._engine.connect() as connection:
        return tuple(
            connection.scalar(select(func.count()).select_from(table))
            for table in (responses, items, conversations, conversation_items)
        )


async def remove(store, cutoffs=ALL, batch=2):
    expiry = Expiry(store._engine, batch_responses=batch)
    return await asyncio.to_thread(lambda: list(expiry.remove(cutoffs)))


async def fill(store):
    """A conversation of one owner, with items of every kind."""
    await store.conversations.create(begin(*named("a", "b", "c")))
    await take(store, "in", "out")
    await take(store, "loose", stored=False)


@pytest.mark.checklist(409)
async def test_a_live_conversation_keeps_its_items_whatever_becomes_of_responses(sql_store):
    await fill(sql_store)
    response = await take(sql_store, "gone")
    await sql_store.delete(Deletion(id=response.id, principal="local", at=9))
    await remove(sql_store)
    assert count_rows(sql_store) == (0, 7, 1, 7)
    assert await ids_of(sql_store) == ["a", "b", "c", "in", "out", "loose", "gone"]
    assert await sql_store.stored_bytes("local") > 0


async def test_a_deleted_conversation_goes_in_small_steps_and_responses_keep_theirs(sql_store):
    await fill(sql_store)
    await sql_store.conversations.create(begin(*named("other"), conversation_id="conv_2"))
    await sql_store.conversations.delete(ConversationDeletion(id=ID, principal="local", at=1000))
    assert await remove(sql_store, Cutoffs(created=None, deleted=1000)) == []
    cutoffs = Cutoffs(created=None, deleted=1001)
    assert Expiry(sql_store._engine, batch_responses=2).count(cutoffs) == Removed(conversations=1)
    removed = await remove(sql_store, cutoffs)
    assert max(step.items for step in removed) <= 2
    assert sum(removed, Removed()) == Removed(items=4, conversations=1)
    assert count_rows(sql_store) == (1, 3, 1, 1)
    assert await remove(sql_store, cutoffs) == []


async def test_an_owners_conversations_go_and_move_along(sql_store):
    await fill(sql_store)
    await sql_store.append(make_response(make_item(), principal="bob"))
    moving = OwnerChange(sql_store._engine, old="local", new="ada", batch_rows=2)
    assert await asyncio.to_thread(lambda: sum(moving.apply(), Owned())) == Owned(responses=1, items=6, conversations=1)
    assert await ids_of(sql_store, "ada") == ["a", "b", "c", "in", "out", "loose"]
    purge = Purge(sql_store._engine, "ada", batch_rows=2)
    assert purge.count() == Removed(responses=1, items=6, conversations=1)
    removed = await asyncio.to_thread(lambda: list(purge.apply()))
    assert sum(removed, Removed()) == Removed(responses=1, items=6, conversations=1)
    assert max(step.items for step in removed) <= 2
    assert count_rows(sql_store) == (1, 1, 0, 0)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_forgotten_leases_go_too(sql_store, monkeypatch):
    monkeypatch.setattr("gateway.storage.expiry._LEASE_GRACE_SECONDS", -120.0)
    await sql_store.conversations.create(begin())
    await sql_store.conversations.claim(claim())
    await remove(sql_store, Cutoffs(created=None, deleted=0))
    await sql_store.conversations.claim(claim("other"))
