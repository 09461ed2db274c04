"""Everything of one owner goes, in small steps, and nothing of anybody else."""

import asyncio

import pytest
from sqlalchemy import func, insert, select

from gateway.ports import Deletion
from gateway.protocol.errors import StorageUnavailable
from gateway.storage.purge import Purge
from gateway.storage.retention import Member, Owner, Removed, choose_removable
from gateway.storage.tables import conversation_items, conversations, items, responses
from tests.storage.samples import make_chain, make_item, make_response


def count_rows(store):
    with store._engine.connect() as connection:
        return tuple(
            connection.scalar(select(func.count()).select_from(table))
            for table in (responses, items, conversations, conversation_items)
        )


def hold_items(store, principal):
    """Put every item of a principal into a conversation."""
    with store._engine.begin() as connection:
        rows = connection.scalars(select(items.c.row_id).where(items.c.principal == principal)).all()
        connection.execute(insert(conversations).values(id="conv_1", principal=principal, metadata=b"", created_at=1))
        places = [
            {"conversation_id": "conv_1", "position": place, "item_row_id": row, "created_at": 1}
            for place, row in enumerate(rows)
        ]
        connection.execute(insert(conversation_items), places)


def test_all_of_a_tree_goes_children_first():
    tree = [Member(str(place), str(place - 1) if place else None, 9, None) for place in range(5)]
    assert choose_removable(tree, Owner(principal="ada")) == ["4", "3", "2", "1", "0"]


async def test_one_owner_goes_in_small_steps_and_the_others_stay(sql_store):
    chain, kept = make_chain(5, principal="ada"), make_chain(3, principal="bob")
    fork = make_response(make_item(), principal="ada", parent_id=chain[1].id)
    alone = [make_response(principal="ada") for _ in range(3)]
    for response in (*chain, fork, *alone, *kept):
        await sql_store.append(response)
    await sql_store.delete(Deletion(id=chain[2].id, principal="ada", at=1))
    purge = Purge(sql_store._engine, "ada", batch_rows=2)
    assert purge.count() == Removed(responses=9, items=11)
    removed = await asyncio.to_thread(lambda: list(purge.apply()))
    assert sum(removed, Removed()) == Removed(responses=9, items=11)
    assert {step.responses for step in removed} <= {1, 2}
    assert purge.count() == Removed()
    assert (await sql_store.history("bob", kept[-1].id)).responses == 3
    assert count_rows(sql_store) == (3, 6, 0, 0)


async def test_conversations_go_with_what_they_hold(sql_store):
    for response in make_chain(2, principal="ada"):
        await sql_store.append(response)
    await sql_store.append(make_response(make_item(), principal="bob"))
    hold_items(sql_store, "ada")
    # What outlived its response.
    with sql_store._engine.begin() as connection:
        row = {"principal": "ada", "role": "output", "type": "message", "id": "m", "agent": "/root", "data": b"{}"}
        connection.execute(insert(items), {"position": 0, **row})
    await asyncio.to_thread(lambda: list(Purge(sql_store._engine, "ada", batch_rows=2).apply()))
    assert count_rows(sql_store) == (1, 1, 0, 0)


async def test_who_goes_on_meanwhile_finds_the_parent_gone_or_is_left(open_sql_store):
    gateway, other = await open_sql_store(), await open_sql_store()
    chain = make_chain(4, principal="ada")
    for response in chain:
        await gateway.append(response)
    steps = Purge(other._engine, "ada", batch_rows=2).apply()
    assert (await asyncio.to_thread(next, steps)).responses == 2
    with pytest.raises(StorageUnavailable):
        await gateway.append(make_response(principal="ada", parent_id=chain[3].id))
    later = make_response(make_item(), principal="ada", parent_id=chain[1].id)
    await gateway.append(later)
    new = make_response(principal="ada")
    await gateway.append(new)
    removed = await asyncio.to_thread(lambda: list(steps))
    assert sum(step.responses for step in removed) == 4
    assert await gateway.response("ada", new.id) is None
