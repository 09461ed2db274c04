import pytest
from sqlalchemy import event, func, select, update

from gateway.storage.tables import items, responses
from tests.storage.samples import make_chain, make_item, make_response


def hide(store, response_id):
    with store._engine.begin() as connection:
        connection.execute(update(responses).where(responses.c.id == response_id).values(deleted_at=1))


async def test_reads_a_chain_with_one_statement(sql_store):
    chain = make_chain(40)
    for response in chain:
        await sql_store.append(response)
    statements = []
    event.listen(sql_store._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    history = await sql_store.history("local", chain[-1].id)
    assert len(history.items) == 80
    assert len(statements) == 1
    assert await sql_store.response("local", chain[-1].id) == chain[-1]
    assert len(statements) == 2


async def test_stores_every_item_once(sql_store):
    chain = make_chain(10)
    for response in chain:
        await sql_store.append(response)
    with sql_store._engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(items)) == 20


async def test_what_is_above_the_bound_stays_in_the_database(open_sql_store):
    store = await open_sql_store(history_max_bytes=100)
    large = make_response(make_item(data=b"x" * 5000))
    child = make_response(make_item(data=b"y"), parent_id=large.id)
    await store.append(large)
    await store.append(child)
    with store._engine.connect() as connection:
        parameters = {"principal": "local", "response_id": child.id}
        rows = connection.execute(store._history._items, parameters).all()
    assert [row.data for row in rows] == [None, b"y"]


async def test_a_hidden_response_is_gone_for_every_replica(sql_store, open_sql_store):
    replica = await open_sql_store()
    response = make_response(make_item())
    await sql_store.append(response)
    assert await replica.response("local", response.id) == response
    hide(sql_store, response.id)
    for one in (sql_store, replica):
        assert await one.response("local", response.id) is None
        assert await one.history("local", response.id) is None
        assert await one.items("local", [response.items[0].id]) == {}


async def test_an_item_that_was_sent_again_is_found_in_a_live_response(sql_store):
    live, hidden = make_response(make_item("live")), make_response(make_item("hidden"))
    await sql_store.append(live)
    await sql_store.append(hidden)
    hide(sql_store, hidden.id)
    assert await sql_store.items("local", ["msg_1"]) == {"msg_1": live.items[0]}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_items_are_found_by_index(sql_store):
    statement = sql_store._references._statement.params(principal="local", item_ids=["msg_1", "msg_2"], room=10)
    query = statement.compile(sql_store._engine, compile_kwargs={"literal_binds": True})
    with sql_store._engine.connect() as connection:
        plan = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]
    assert "SEARCH items USING INDEX ix_items_principal_id (principal=? AND id=?)" in plan


async def test_a_hidden_parent_stays_in_the_history_of_its_children(sql_store):
    chain = make_chain(3)
    for response in chain:
        await sql_store.append(response)
    hide(sql_store, chain[0].id)
    hide(sql_store, chain[1].id)
    history = await sql_store.history("local", chain[2].id)
    assert [item.data for item in history.items] == [item.data for response in chain for item in response.items]


async def test_a_run_that_began_before_its_parent_was_hidden_is_still_stored(sql_store):
    parent = make_response(make_item("parent"))
    await sql_store.append(parent)
    hide(sql_store, parent.id)
    child = make_response(make_item("child"), parent_id=parent.id)
    await sql_store.append(child)
    assert len((await sql_store.history("local", child.id)).items) == 2


async def test_every_member_of_a_tree_carries_its_root(sql_store):
    root, middle, leaf = make_chain(3)
    fork = make_response(parent_id=root.id)
    for response in (root, middle, leaf, fork, make_response()):
        await sql_store.append(response)
    with sql_store._engine.connect() as connection:
        tree = set(connection.scalars(select(responses.c.id).where(responses.c.root_id == root.id)))
    assert tree == {root.id, middle.id, leaf.id, fork.id}
