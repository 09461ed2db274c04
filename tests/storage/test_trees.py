"""Trees of agents: stored with the responses that changed them, and read as one with all of their chain."""

import pytest
from sqlalchemy import event, func, select

from gateway.ports import Deletion
from gateway.protocol.errors import InvalidRequest, StorageUnavailable
from gateway.storage.owners import Owned, OwnerChange
from gateway.storage.purge import Purge
from gateway.storage.tables import agents, responses
from tests.storage.samples import make_agent, make_chain, make_item, make_response


def make_tree(parent=None, *names, **changes):
    """A response that changed the root and agents below it; each state names the response and the agent."""
    tree = make_response(make_item("told"), parent_id=parent and parent.id, **changes)
    rows = [make_agent(f"root of {tree.id}")]
    rows += [make_agent(f"{name} of {tree.id}", path=f"/root/{name}", parent_path="/root") for name in names]
    return make_response(*tree.items, id=tree.id, parent_id=tree.parent_id, agents=rows, **changes)


async def append_all(store, *all_of_them):
    for response in all_of_them:
        await store.append(response)


async def tree_of(store, response, principal="local"):
    history = await store.history(principal, response.id)
    return history and list(history.tree)


async def test_a_tree_is_read_with_all_of_its_chain(store):
    first = make_tree(None, "alpha", "beta")
    second = make_tree(first, "gamma")
    await append_all(store, first, second)
    history = await store.history("local", second.id)
    assert list(history.tree) == [*first.agents, *second.agents]
    assert (history.items, history.responses, history.settled) == ((), 2, True)
    assert await tree_of(store, first) == first.agents
    # It is its owner's, and what is told of it are its items.
    assert await tree_of(store, first, "bob") is None
    assert await store.response("local", first.id) == make_response(*first.items, id=first.id)


@pytest.mark.agents(88)
async def test_forks_share_what_came_before_and_nothing_else(store):
    parent = make_tree(None, "alpha")
    one, other = make_tree(parent), make_tree(parent, "beta")
    await append_all(store, parent, one, other)
    assert await tree_of(store, one) == [*parent.agents, *one.agents]
    assert await tree_of(store, other) == [*parent.agents, *other.agents]
    # One that changed nothing, and one with states that are no text.
    idle = make_response(parent_id=one.id, agents=[])
    odd = make_response(parent_id=idle.id, agents=[make_agent(state=bytes(range(256))), make_agent(state=b"")])
    await append_all(store, idle, odd)
    assert await tree_of(store, idle) == [*parent.agents, *one.agents]
    assert await tree_of(store, odd) == [*parent.agents, *one.agents, *odd.agents]
    stored = [parent, one, other, idle, odd]
    assert await store.stored_bytes("local") == sum(response.size for response in stored)
    assert odd.size == len(odd.snapshot) + 256


async def test_a_chain_that_becomes_a_tree(store):
    single = make_chain(2)
    tree = make_tree(single[-1])
    await append_all(store, *single, tree)
    history = await store.history("local", tree.id)
    assert (list(history.tree), history.items, history.responses) == (tree.agents, (), 3)
    before = await store.history("local", single[-1].id)
    assert (before.tree, len(before.items)) == (None, 4)


async def test_agents_count_and_items_of_trees_do_not(open_store):
    store = await open_store(history_max_bytes=300)
    large = make_response(make_item(data=b"x" * 5000), agents=[make_agent("y" * 200)])
    fits = make_response(make_item(data=b"x" * 5000), agents=[make_agent("y" * 100)], parent_id=large.id)
    passes = make_response(agents=[make_agent("y")], parent_id=fits.id)
    await append_all(store, large, fits, passes)
    assert len(await tree_of(store, fits)) == 2
    with pytest.raises(InvalidRequest, match="history_max_bytes"):
        await store.history("local", passes.id)


async def test_what_came_before_a_tree_does_not_count_again(open_store):
    store = await open_store(history_max_bytes=300)
    single = make_response(make_item(data=b"x" * 5000))
    tree = make_response(agents=[make_agent("y" * 300)], parent_id=single.id)
    await append_all(store, single, tree)
    assert await tree_of(store, tree) == tree.agents


async def test_trees_are_bounded_in_responses(open_store):
    store = await open_store(history_max_responses=2)
    first = make_tree(None)
    second = make_tree(first)
    third = make_tree(second)
    await append_all(store, first, second, third)
    assert len(await tree_of(store, second)) == 2
    with pytest.raises(InvalidRequest, match="history_max_responses"):
        await store.history("local", third.id)


async def test_a_hidden_parent_stays_in_the_tree_of_its_children(store):
    parent = make_tree(None, "alpha")
    child = make_tree(parent)
    await append_all(store, parent, child)
    await store.delete(Deletion(id=parent.id, principal="local", at=1))
    assert await tree_of(store, parent) is None
    assert await tree_of(store, child) == [*parent.agents, *child.agents]
    await store.append(make_tree(child))


async def test_parent_and_child_may_be_appended_at_once(sql_store):
    single = make_response(make_item())
    tree = make_tree(single, "alpha")
    later = make_tree(tree)
    outcomes = sql_store._commit([single, tree, later, make_response(parent_id=single.id)])
    assert outcomes == [None] * 4
    assert await tree_of(sql_store, later) == [*tree.agents, *later.agents]


@pytest.mark.agents(92)
async def test_a_response_and_its_agents_are_stored_together_or_not_at_all(sql_store):
    parent = make_tree(None)
    await sql_store.append(parent)
    broken = make_tree(parent)
    broken.agents.append(make_agent(status=None))
    with pytest.raises(StorageUnavailable):
        await sql_store.append(broken)
    assert await sql_store.response("local", broken.id) is None
    with sql_store._engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(agents)) == 1
    await sql_store.append(make_tree(parent))


async def test_a_tree_is_read_with_one_statement_more(sql_store):
    tree = make_tree(None, "alpha")
    plain = make_response(make_item())
    statements = []
    event.listen(sql_store._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    await append_all(sql_store, tree, plain)
    await sql_store.history("local", plain.id)
    assert len(statements) == 1
    await sql_store.history("local", tree.id)
    assert len(statements) == 3
    assert "JOIN agents" in statements[-1]


def test_what_is_stored_without_agents_names_none(sql_store):
    root, other, tree = (statement._text for statement in sql_store._commit._insert._responses.values())
    assert "agent_bytes" not in root + other
    assert "agent_bytes" in tree


async def test_a_chain_that_goes_in_between_is_not_there(sql_store):
    tree = make_tree(None)
    await sql_store.append(tree)

    def remove(connection, cursor, statement, *_):
        if "JOIN agents" in statement:
            cursor.connection.rollback()
            with sql_store._engine.begin() as other:
                other.execute(responses.delete())

    event.listen(sql_store._engine, "before_cursor_execute", remove)
    assert await sql_store.history("local", tree.id) is None


async def test_agents_go_with_their_owner(sql_store):
    tree = make_tree(None, "alpha")
    await append_all(sql_store, tree, make_tree(tree))
    change = OwnerChange(sql_store._engine, old="local", new="ada", batch_rows=10)
    assert sum(change.apply(), Owned()).responses == 2
    assert await tree_of(sql_store, tree, "ada") == tree.agents
    assert await sql_store.stored_bytes("ada") > sum(len(agent.state) for agent in tree.agents)
    for _ in Purge(sql_store._engine, "ada", batch_rows=10).apply():
        pass
    with sql_store._engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(agents)) == 0


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_chains_and_their_agents_are_found_by_index(sql_store):
    for statement, wanted in (
        (sql_store._history._items, "SEARCH items USING INDEX ix_items_response_id_position (response_id=?)"),
        (sql_store._history._agents, "SEARCH agents USING INDEX sqlite_autoindex_agents_1 (response_id=?)"),
    ):
        named = statement.params(principal="local", response_id="resp_1")
        query = named.compile(sql_store._engine, compile_kwargs={"literal_binds": True})
        with sql_store._engine.connect() as connection:
            plan = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]
        assert any(step.startswith(wanted) for step in plan), plan
        assert not any(step.startswith(("SCAN items", "SCAN agents", "SCAN responses")) for step in plan), plan
