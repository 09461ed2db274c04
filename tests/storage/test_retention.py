"""What later deletion and expiry rely on: foreign keys, roots and shared items."""

import pytest
from sqlalchemy import delete, func, insert, literal, select, text
from sqlalchemy.exc import IntegrityError

from gateway.storage.tables import agents, conversation_items, conversations, items, responses
from tests.storage.samples import make_chain, make_item, make_response


@pytest.fixture
def connection(sql_store):
    with sql_store._engine.connect() as connection:
        yield connection


def select_expired_roots(cutoff):
    """Trees whose newest member is older than the cutoff."""
    member = responses.alias("member")
    newest = select(literal(1)).where(member.c.root_id == responses.c.id, member.c.created_at >= cutoff)
    return select(responses.c.id).where(
        responses.c.parent_id.is_(None), responses.c.created_at < cutoff, ~newest.exists()
    )


async def test_a_tree_expires_by_its_newest_member(sql_store, connection):
    old, kept = make_response(created_at=100), make_response(created_at=100)
    late = make_response(created_at=300, parent_id=kept.id)
    for response in (old, kept, late):
        await sql_store.append(response)
    assert connection.scalars(select_expired_roots(200)).all() == [old.id]
    assert set(connection.scalars(select_expired_roots(301))) == {old.id, kept.id}


async def test_finding_expired_trees_reads_indexes_only(open_sql_store, database):
    if database.get_backend_name() == "postgresql":
        explain, setting = "EXPLAIN", "SET enable_seqscan = off"
    else:
        explain, setting = "EXPLAIN QUERY PLAN", "SELECT 1"
    store = await open_sql_store()
    statement = select_expired_roots(200).compile(store._engine, compile_kwargs={"literal_binds": True})
    with store._engine.connect() as connection:
        connection.execute(text(setting))
        plan = " ".join(str(row) for row in connection.exec_driver_sql(f"{explain} {statement}"))
    assert "ix_responses_roots" in plan
    assert "ix_responses_root_id_created_at" in plan


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["parent_id", "conversation_id"])
async def test_foreign_keys_are_checked_by_index(connection, column):
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN SELECT 1 FROM responses WHERE {column} = 'x'").one()
    assert f"ix_responses_{column}" in plan.detail


async def test_no_parent_is_removed_under_its_child(sql_store, connection):
    parent, child = make_chain(2)
    await sql_store.append(parent)
    await sql_store.append(child)
    with pytest.raises(IntegrityError):
        connection.execute(delete(responses).where(responses.c.id == parent.id))


async def test_a_tree_goes_in_one_statement_and_conversations_keep_its_items(sql_store, connection):
    chain = make_chain(3)
    for response in chain:
        await sql_store.append(response)
    shared = connection.scalar(select(items.c.row_id).where(items.c.response_id == chain[0].id, items.c.position == 0))
    connection.execute(
        insert(conversations).values(id="conv_1", principal="local", metadata=b"{}", created_at=1, deleted_at=None)
    )
    connection.execute(
        insert(conversation_items).values(conversation_id="conv_1", position=0, item_row_id=shared, created_at=1)
    )
    connection.execute(
        insert(agents).values(response_id=chain[0].id, position=0, path="/root", status="done", state=b"\x00")
    )
    connection.commit()

    in_conversation = select(conversation_items.c.item_row_id)
    tree = select(responses.c.id).where(responses.c.root_id == chain[0].id)
    connection.execute(delete(items).where(items.c.response_id.in_(tree), items.c.row_id.not_in(in_conversation)))
    connection.execute(delete(responses).where(responses.c.root_id == chain[0].id))
    connection.commit()

    (left,) = connection.execute(select(items)).all()
    assert (left.row_id, left.response_id, left.data) == (shared, None, chain[0].items[0].data)
    assert connection.scalar(select(func.count()).select_from(agents)) == 0
    with pytest.raises(IntegrityError):
        connection.execute(delete(items))
    connection.rollback()
    connection.execute(delete(conversations))
    assert connection.scalar(select(func.count()).select_from(conversation_items)) == 0
    assert connection.execute(delete(items)).rowcount == 1


async def test_two_responses_may_share_an_item_with_a_conversation(sql_store, connection):
    response = make_response(make_item(), make_item())
    await sql_store.append(response)
    rows = connection.scalars(select(items.c.row_id).order_by(items.c.position)).all()
    for name in ("conv_1", "conv_2"):
        connection.execute(insert(conversations).values(id=name, principal="local", metadata=b"{}", created_at=1))
        connection.execute(
            insert(conversation_items),
            [
                {"conversation_id": name, "position": position, "item_row_id": row, "created_at": 1}
                for position, row in enumerate(rows)
            ],
        )
    assert connection.scalar(select(func.count()).select_from(items)) == 2
