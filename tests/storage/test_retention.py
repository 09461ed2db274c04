"""What deletion and expiry rely on: indexes, foreign keys and shared items; and what they remove."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from sqlalchemy import delete, event, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from gateway.ports import Deletion
from gateway.storage.retention import (
    Cutoffs,
    Member,
    Removed,
    Sweep,
    _in_tree,
    choose_removable,
    select_deleted_roots,
    select_expired_roots,
)
from gateway.storage.tables import agents, belongs_to, conversation_items, conversations, items, responses
from tests.storage.samples import make_chain, make_item, make_response


@pytest.fixture
def connection(sql_store):
    with sql_store._engine.connect() as connection:
        yield connection


@pytest.mark.parametrize(
    ("query", "parameters", "indexes"),
    [
        (select_expired_roots, {"created": 200}, ["ix_responses_roots", "ix_responses_descendants"]),
        (select_deleted_roots, {"deleted": 200}, ["ix_responses_deleted_at", "ix_responses_parent_id"]),
    ],
)
async def test_finding_what_can_go_reads_indexes_only(open_sql_store, database, query, parameters, indexes):
    if database.get_backend_name() == "postgresql":
        explain, setting = "EXPLAIN", "SET enable_seqscan = off"
    else:
        explain, setting = "EXPLAIN QUERY PLAN", "SELECT 1"
    store = await open_sql_store()
    statement = query().params(parameters).compile(store._engine, compile_kwargs={"literal_binds": True})
    with store._engine.connect() as connection:
        connection.execute(text(setting))
        plan = " ".join(str(row) for row in connection.exec_driver_sql(f"{explain} {statement}"))
    # Of several that do, PostgreSQL chooses by what the tables hold.
    assert "Seq Scan" not in plan
    assert [index for index in indexes if index not in plan] == [] or database.get_backend_name() == "postgresql"


async def test_a_tree_is_found_by_indexes_only(open_sql_store, database):
    store = await open_sql_store()
    statement = select(responses.c.id).where(_in_tree("resp_1"))
    shown = statement.compile(store._engine, compile_kwargs={"literal_binds": True})
    on_postgresql = database.get_backend_name() == "postgresql"
    with store._engine.connect() as connection:
        connection.execute(text("SET enable_seqscan = off" if on_postgresql else "SELECT 1"))
        explain = "EXPLAIN" if on_postgresql else "EXPLAIN QUERY PLAN"
        plan = " ".join(str(row) for row in connection.exec_driver_sql(f"{explain} {shown}"))
    assert "ix_responses_descendants" in plan
    assert ("pk_responses" if on_postgresql else "sqlite_autoindex_responses_1") in plan


@pytest.mark.parametrize(("owner", "by_index"), [("team-a", True), ("local", False)])
async def test_the_responses_of_an_owner_are_found_by_index_where_owners_are_told_apart(
    open_sql_store, database, owner, by_index
):
    store = await open_sql_store()
    statement = select(responses.c.id).where(belongs_to(responses, owner))
    shown = statement.compile(store._engine, compile_kwargs={"literal_binds": True})
    on_postgresql = database.get_backend_name() == "postgresql"
    with store._engine.connect() as connection:
        connection.execute(text("SET enable_seqscan = off" if on_postgresql else "SELECT 1"))
        explain = "EXPLAIN" if on_postgresql else "EXPLAIN QUERY PLAN"
        plan = " ".join(str(row) for row in connection.exec_driver_sql(f"{explain} {shown}"))
    assert ("ix_responses_owners" in plan) is by_index


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


# ---------------------------------------------------------------- what can go

TIMES = st.integers(0, 9)


@st.composite
def trees(draw):
    """A tree of up to 12 members in any order; clocks of several machines may disagree."""
    size = draw(st.integers(1, 12))
    members = [
        Member(
            id=str(number),
            parent_id=str(draw(st.integers(0, number - 1))) if number else None,
            created_at=draw(TIMES),
            deleted_at=draw(st.none() | TIMES),
        )
        for number in range(size)
    ]
    return draw(st.permutations(members))


@given(tree=trees(), created=st.none() | TIMES, deleted=TIMES)
def test_what_can_go_is_exactly_what_nobody_needs(tree, created, deleted):
    chosen = choose_removable(tree, Cutoffs(created=created, deleted=deleted))
    children = {member.id: [other.id for other in tree if other.parent_id == member.id] for member in tree}

    def is_needed(member):
        had_its_time = member.deleted_at is not None and member.deleted_at < deleted
        return not had_its_time or any(is_needed(other) for other in tree if other.parent_id == member.id)

    if created is not None and all(member.created_at < created for member in tree):
        assert len(chosen) == len(tree)
    else:
        assert set(chosen) == {member.id for member in tree if not is_needed(member)}
    assert len(set(chosen)) == len(chosen)
    assert all(chosen.index(child) < place for place, parent in enumerate(chosen) for child in children[parent])


def test_a_very_long_chain_is_no_trouble():
    tree = [Member(str(place), str(place - 1) if place else None, 1, None) for place in range(20_000)]
    assert choose_removable(tree, Cutoffs(created=2, deleted=0)) == [str(place) for place in reversed(range(20_000))]


# ---------------------------------------------------------------- sweeping

KEEP_ALL = Cutoffs(created=None, deleted=0)


@pytest.fixture
def sweep(sql_store):
    return Sweep(sql_store._engine, batch_responses=2)


async def append_chain(store, *times):
    chain = make_chain(len(times))
    chain = [structs.replace(response, created_at=at) for response, at in zip(chain, times, strict=True)]
    for response in chain:
        await store.append(response)
    return chain


async def delete_at(store, at, *chain):
    for response in chain:
        await store.delete(Deletion(id=response.id, principal="local", at=at))


def left(connection):
    ids = set(connection.scalars(select(responses.c.id)))
    assert set(connection.scalars(select(items.c.response_id))) == ids
    connection.rollback()
    return ids


def ids_of(*chains):
    return {response.id for chain in chains for response in chain}


async def test_trees_go_by_their_newest_member(sql_store, connection, sweep):
    old = await append_chain(sql_store, 100, 101, 102)
    alive = await append_chain(sql_store, 100, 101, 300)
    assert list(sweep.remove(KEEP_ALL)) == []
    cutoffs = Cutoffs(created=200, deleted=0)
    assert sweep.count(cutoffs) == Removed(responses=3, items=6)
    assert left(connection) == ids_of(old, alive)
    assert list(sweep.remove(cutoffs)) == [Removed(responses=2, items=4), Removed(responses=1, items=2)]
    assert left(connection) == ids_of(alive)
    assert sweep.count(cutoffs) == Removed()


async def test_deleted_responses_go_unless_something_continues_from_them(sql_store, connection, sweep):
    whole = await append_chain(sql_store, 100, 100, 100)
    ended = await append_chain(sql_store, 100, 100)
    needed = await append_chain(sql_store, 100, 100)
    await delete_at(sql_store, 150, *whole, ended[1], needed[0])
    assert list(sweep.remove(Cutoffs(created=None, deleted=150))) == []
    cutoffs = Cutoffs(created=None, deleted=151)
    assert sweep.count(cutoffs) == Removed(responses=4, items=8)
    assert sum(sweep.remove(cutoffs), Removed()) == Removed(responses=4, items=8)
    assert left(connection) == ids_of(ended[:1], needed)
    history = await sql_store.history("local", needed[1].id)
    assert len(history.items) == 4


async def test_items_of_a_conversation_stay(sql_store, connection, sweep):
    await append_chain(sql_store, 100)
    held = connection.scalar(select(items.c.row_id).where(items.c.position == 0))
    connection.execute(insert(conversations).values(id="conv_1", principal="local", metadata=b"{}", created_at=1))
    connection.execute(
        insert(conversation_items).values(conversation_id="conv_1", position=0, item_row_id=held, created_at=1)
    )
    connection.commit()
    cutoffs = Cutoffs(created=200, deleted=0)
    assert sweep.count(cutoffs) == Removed(responses=1, items=1)
    assert list(sweep.remove(cutoffs)) == [Removed(responses=1, items=1)]
    assert connection.execute(select(items.c.row_id, items.c.response_id)).all() == [(held, None)]


async def test_a_fault_in_a_batch_changes_nothing(sql_store, connection, sweep):
    chain = await append_chain(sql_store, 100)

    def fail(connection, cursor, statement, *rest):
        if statement.startswith("DELETE FROM responses"):
            raise RuntimeError

    event.listen(sql_store._engine, "before_cursor_execute", fail)
    with pytest.raises(RuntimeError):
        list(sweep.remove(Cutoffs(created=200, deleted=0)))
    event.remove(sql_store._engine, "before_cursor_execute", fail)
    assert left(connection) == ids_of(chain)
    assert sum(sweep.remove(Cutoffs(created=200, deleted=0)), Removed()).responses == 1


async def test_two_processes_sweep_at_once(open_sql_store):
    stores = [await open_sql_store(), await open_sql_store()]
    for _ in range(10):
        await append_chain(stores[0], 100, 100)
    kept = await append_chain(stores[0], 100, 300)

    def sweep_all(store):
        return sum(Sweep(store._engine, batch_responses=3).remove(Cutoffs(created=200, deleted=0)), Removed())

    totals = await asyncio.gather(*(asyncio.to_thread(sweep_all, store) for store in stores))
    assert sum(total.responses for total in totals) == 20
    assert await stores[1].response("local", kept[1].id) == kept[1]


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_tree_that_just_grows_is_left_alone(sql_store, connection, sweep):
    growing = await append_chain(sql_store, 100)
    old = await append_chain(sql_store, 150)
    # The foreign key of a child that is not committed yet holds a lock on its parent, as this does.
    parent = select(responses.c.id).where(responses.c.id == growing[0].id)
    connection.execute(parent.with_for_update(key_share=True, read=True))
    removed = await asyncio.to_thread(lambda: list(sweep.remove(Cutoffs(created=200, deleted=0))))
    assert removed == [Removed(responses=1, items=2)]
    assert left(connection) == ids_of(growing)
    assert ids_of(old).isdisjoint(left(connection))
