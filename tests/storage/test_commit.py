import asyncio

import pytest
from sqlalchemy import event, text

from gateway.ports import Deletion
from gateway.protocol.errors import StorageUnavailable
from gateway.storage.commit import BatchCommit
from gateway.storage.engine import open_engine
from gateway.storage.settings import StoreSettings
from tests.storage.samples import make_item, make_response


def nothing_to_ensure():
    pass


@pytest.fixture
async def commit(sql_store):
    commit = BatchCommit(sql_store._engine, nothing_to_ensure)
    yield commit
    commit.release()


@pytest.mark.parametrize("bad", [{"id": None}, {"created_at": 2**70}, {"snapshot": "text"}, {"parent_id": "resp_gone"}])
async def test_a_response_the_database_refuses_fails_alone(sql_store, commit, bad):
    good = [make_response(make_item(str(number))) for number in range(4)]
    poison = make_response(make_item("poison"), **bad)
    outcomes = commit([*good[:2], poison, *good[2:]])
    assert [outcome is None for outcome in outcomes] == [True, True, False, True, True]
    assert isinstance(outcomes[2], StorageUnavailable)
    for response in good:
        assert await sql_store.response("local", response.id) == response


async def test_an_item_the_database_refuses_takes_its_response_along(sql_store, commit):
    poison = make_response(make_item("fine"), make_item(data=None))
    (outcome,) = commit([poison])
    assert isinstance(outcome, StorageUnavailable)
    assert await sql_store.response("local", poison.id) is None


async def test_poison_and_its_healthy_neighbours_through_the_store(sql_store):
    taken = make_response()
    await sql_store.append(taken)
    appends = [sql_store.append(make_response()) for _ in range(5)]
    outcomes = await asyncio.gather(*appends, sql_store.append(taken), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [*[type(None)] * 5, StorageUnavailable]


@pytest.fixture
async def postgres_engine(open_sql_store, database):
    engine = open_engine(StoreSettings(url=database))
    yield engine
    engine.dispose()


def kill_sessions(engine):
    statement = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> :own"
    )
    with engine.connect() as connection:
        own = connection.scalar(text("SELECT pg_backend_pid()"))
        connection.execute(text(statement), {"own": own})


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_dead_connection_is_replaced(sql_store, postgres_engine):
    response = make_response()
    await sql_store.append(response)
    kill_sessions(postgres_engine)
    second = make_response(parent_id=response.id)
    await sql_store.append(second)
    kill_sessions(postgres_engine)
    assert await sql_store.response("local", second.id) == second
    kill_sessions(postgres_engine)
    assert (await sql_store.probe()).healthy


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_connection_lost_while_committing_stores_nothing_twice(sql_store, postgres_engine):
    """The first commit reaches the database, its answer does not reach us."""
    gone = make_response()
    await sql_store.append(gone)
    batch = [make_response(make_item("one")), make_response(make_item("two"))]
    commits = []

    def lose_answer(connection):
        commits.append(connection)
        if len(commits) == 1:
            connection.connection.driver_connection.commit()
            kill_sessions(postgres_engine)
            connection.exec_driver_sql("SELECT 1")

    event.listen(sql_store._engine, "commit", lose_answer)
    commit = BatchCommit(sql_store._engine, nothing_to_ensure)
    deletion = Deletion(id=gone.id, principal="local", at=1)
    assert list(await asyncio.to_thread(commit, [*batch, deletion])) == [None, None, None]
    assert len(commits) == 2
    for response in batch:
        assert await sql_store.response("local", response.id) == response
    assert await sql_store.response("local", gone.id) is None
