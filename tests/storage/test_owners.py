"""Everything of one owner becomes another's, whatever hangs together; and nothing of anybody else."""

import pytest
from sqlalchemy import func, insert, select, update

from gateway.ports import Deletion
from gateway.storage.owners import Owned, OwnerChange
from gateway.storage.tables import conversation_items, conversations, items, responses
from tests.storage.samples import make_chain, make_item, make_response


def change(store, batch_rows=2, old="local", new="ada"):
    return OwnerChange(store._engine, old=old, new=new, batch_rows=batch_rows)


def owners(store):
    with store._engine.connect() as connection:
        return {
            table.name: dict(
                connection.execute(select(table.c.principal, func.count()).group_by(table.c.principal)).all()
            )
            for table in (responses, items, conversations)
        }


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
async def test_everything_moves_and_is_found_by_its_new_owner(sql_store, batch_rows):
    chain = make_chain(5)
    fork = make_response(make_item("fork"), parent_id=chain[1].id)
    others = make_chain(2, principal="bob")
    for response in (*chain, fork, *others, *make_chain(1)):
        await sql_store.append(response)
    await sql_store.delete(Deletion(id=chain[2].id, principal="local", at=1))
    before = await sql_store.history("local", chain[4].id)
    moving = change(sql_store, batch_rows)
    assert moving.count() == Owned(responses=7, items=13)
    assert sum(moving.apply(), Owned()) == Owned(responses=7, items=13)
    assert owners(sql_store)["responses"] == {"ada": 7, "bob": 2}
    assert owners(sql_store)["items"] == {"ada": 13, "bob": 4}
    assert await sql_store.history("ada", chain[4].id) == before
    assert await sql_store.history("local", chain[4].id) is None
    assert (await sql_store.items("ada", ["msg_1"])).keys() == {"msg_1"}
    assert not await sql_store.holds("ada", chain[2].id)
    assert moving.count() == Owned()
    assert list(moving.apply()) == []


async def test_no_chain_is_torn_between_two_transactions(sql_store):
    """Whoever looks in between finds every chain whole, with one owner or the other."""
    chains = [make_chain(3) for _ in range(3)]
    for response in (response for chain in chains for response in chain):
        await sql_store.append(response)
    for moved in change(sql_store, batch_rows=1).apply():
        assert moved == Owned(responses=3, items=6)
        for chain in chains:
            found = [await sql_store.history(owner, chain[-1].id) for owner in ("local", "ada")]
            assert sorted(len(history.items) for history in found if history) == [6]


async def test_what_only_a_conversation_holds_moves_too(sql_store):
    response = make_response(make_item("kept"))
    await sql_store.append(response)
    with sql_store._engine.begin() as connection:
        row = {"principal": "local", "metadata": b"{}", "created_at": 1}
        connection.execute(insert(conversations), [{"id": name, **row} for name in ("c1", "c2", "c3")])
        item = connection.scalar(select(items.c.row_id))
        connection.execute(
            insert(conversation_items), {"conversation_id": "c1", "position": 1, "item_row_id": item, "created_at": 1}
        )
        connection.execute(update(items).values(response_id=None))
        connection.execute(responses.delete())
    assert sum(change(sql_store).apply(), Owned()) == Owned(items=1, conversations=3)
    assert owners(sql_store) == {"responses": {}, "items": {"ada": 1}, "conversations": {"ada": 3}}


async def test_what_was_begun_goes_on(sql_store):
    for response in make_chain(2) + make_chain(2):
        await sql_store.append(response)
    moving = change(sql_store, batch_rows=1)
    next(moving.apply())
    assert owners(sql_store)["responses"] == {"ada": 2, "local": 2}
    assert sum(moving.apply(), Owned()) == Owned(responses=2, items=4)
