"""Counts of tokens: added up by several processes, each once, and summed."""

import asyncio
from datetime import date

import pytest
from sqlalchemy import event, select

from gateway.ports import Deletion, UsageCount, UsageFlush
from gateway.storage.commit import BatchCommit
from gateway.storage.memory import MemoryStore
from gateway.storage.tables import usage
from gateway.storage.usage import remove_usage, sum_usage
from tests.storage.samples import make_response

MONDAY, TUESDAY = date(2026, 9, 21), date(2026, 9, 22)


def count(principal="ada", day=MONDAY, model="m", responses=1, tokens=10):
    return UsageCount(
        principal=principal,
        day=day,
        model=model,
        responses=responses,
        input_tokens=tokens,
        cached_tokens=tokens // 2,
        output_tokens=tokens * 2,
        reasoning_tokens=1,
    )


def read(store):
    """What is stored: responses and input tokens by principal, day and model."""
    if isinstance(store, MemoryStore):
        kept = store.usage.values()
    else:
        with store._engine.connect() as connection:
            kept = connection.execute(select(usage)).all()
    return {(one.principal, one.day, one.model): (one.responses, one.input_tokens) for one in kept}


async def test_flushes_add_up_and_each_counts_once(store):
    first = UsageFlush(id="one", counts=[count(), count("bob"), count(day=TUESDAY)])
    for flush in (first, first, UsageFlush(id="two", counts=[count(), count(model='odd \x00"')])):
        await store.add_usage(flush)
    assert read(store) == {
        ("ada", MONDAY, "m"): (2, 20),
        ("bob", MONDAY, "m"): (1, 10),
        ("ada", TUESDAY, "m"): (1, 10),
        ("ada", MONDAY, 'odd \x00"'): (1, 10),
    }


async def test_several_processes_add_to_the_same_rows_at_once(open_sql_store):
    stores = [await open_sql_store() for _ in range(2)]
    principals = [f"p{number}" for number in range(20)]
    await asyncio.gather(
        *(
            stores[turn % 2].add_usage(
                UsageFlush(id=f"{turn}", counts=[count(name) for name in principals[:: (-1) ** turn]])
            )
            for turn in range(20)
        )
    )
    assert read(stores[0]) == {(name, MONDAY, "m"): (20, 200) for name in principals}


async def test_counts_share_a_transaction_with_responses_and_deletions(sql_store):
    gone, response = make_response(), make_response()
    await sql_store.append(gone)
    commit = BatchCommit(sql_store._engine, lambda: None)
    batch = [
        UsageFlush(id="one", counts=[count()]),
        response,
        Deletion(id=gone.id, principal="local", at=1),
        Deletion(id="resp_none", principal="local", at=1),
        UsageFlush(id="two", counts=[]),
    ]
    outcomes = await asyncio.to_thread(commit, batch)
    commit.release()
    assert [outcome and outcome.code for outcome in outcomes] == [None, None, None, "response_not_found", None]
    assert await sql_store.response("local", response.id) == response
    assert read(sql_store) == {("ada", MONDAY, "m"): (1, 10)}


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("reaches", [True, False])
async def test_a_connection_lost_while_committing_counts_nothing_twice(sql_store, reaches):
    """Whether or not the first commit reaches the database, its answer does not reach us."""
    commits = []

    def lose_answer(connection):
        commits.append(connection)
        if len(commits) == 1:
            if reaches:
                connection.connection.driver_connection.commit()
            connection.connection.driver_connection.close()
            connection.exec_driver_sql("SELECT 1")

    event.listen(sql_store._engine, "commit", lose_answer)
    commit = BatchCommit(sql_store._engine, lambda: None)
    assert list(await asyncio.to_thread(commit, [UsageFlush(id="one", counts=[count()])])) == [None]
    commit.release()
    assert len(commits) == 2
    assert read(sql_store) == {("ada", MONDAY, "m"): (1, 10)}


async def test_sums_tell_apart_what_is_asked_for(sql_store):
    counts = [count(), count(model="n"), count(day=TUESDAY, tokens=1), count("bob", TUESDAY, tokens=7)]
    await sql_store.add_usage(UsageFlush(id="one", counts=counts))
    with sql_store._engine.begin() as connection:

        def show(*by, **chosen):
            return [
                (*(row[name] for name in by), row["responses"], row["input_tokens"])
                for row in sum_usage(connection, by, **chosen)
            ]

        assert show("principal") == [("ada", 3, 21), ("bob", 1, 7)]
        assert show("day") == [(MONDAY, 2, 20), (TUESDAY, 2, 8)]
        assert show("model", "day", principal="ada") == [
            ("m", MONDAY, 1, 10),
            ("m", TUESDAY, 1, 1),
            ("n", MONDAY, 1, 10),
        ]
        assert show("principal", since=TUESDAY) == [("ada", 1, 1), ("bob", 1, 7)]
        assert show("principal", principal="nobody") == []
        assert sum_usage(connection, ["model"], principal="bob") == [
            {
                "model": "m",
                "responses": 1,
                "input_tokens": 7,
                "cached_tokens": 3,
                "output_tokens": 14,
                "reasoning_tokens": 1,
            }
        ]
        assert remove_usage(connection, "ada") == 3
        assert show("principal") == [("bob", 1, 7)]
