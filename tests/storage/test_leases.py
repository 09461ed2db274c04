"""Leases: one holder at a time, whatever the process, by the database's clock."""

import asyncio

import pytest

from gateway.ports import Deletion, Lease, LeaseClaim, LeaseRelease, LeaseRenewal, UsageFlush
from gateway.storage.commit import BatchCommit
from gateway.storage.leases import MemoryLeases, remove_expired
from tests.storage.samples import make_response


def lease(holder="ada", name="thing"):
    return Lease(name=name, holder=holder)


async def test_one_holder_has_it_until_it_gives_it_up(store):
    leases = store.leases
    assert await leases.acquire(lease(), 60)
    assert not await leases.acquire(lease("bob"), 60)
    assert await leases.acquire(lease(), 60)
    assert await leases.acquire(lease("bob", "other"), 60)
    assert not await leases.renew(lease("bob"), 60)
    await leases.release(lease("bob"))
    assert await leases.renew(lease(), 60)
    await leases.release(lease())
    assert not await leases.renew(lease(), 60)
    assert await leases.acquire(lease("bob"), 60)


async def test_what_has_run_out_is_its_holders_until_somebody_wants_it(store):
    leases = store.leases
    assert await leases.acquire(lease(), 0)
    assert await leases.renew(lease(), 0)
    assert await leases.acquire(lease("bob"), 60)
    assert not await leases.renew(lease(), 60)
    await leases.release(lease())
    assert not await leases.acquire(lease(), 60)


async def test_several_processes_want_the_same_at_once(open_sql_store):
    stores = [await open_sql_store() for _ in range(3)]
    names = [f"thing {number}" for number in range(10)]
    got = await asyncio.gather(
        *(
            store.leases.acquire(lease(f"{number}", name), 60)
            for number, store in enumerate(stores)
            for name in names[:: (-1) ** number]
        )
    )
    assert sum(got) == len(names)


async def test_leases_share_a_transaction_with_everything_else(sql_store):
    gone, response = make_response(), make_response()
    await sql_store.append(gone)
    await sql_store.leases.acquire(lease("old", "b"), 60)
    commit = BatchCommit(sql_store._engine, lambda: None)
    batch = [
        LeaseClaim(lease=lease("new", "b"), seconds=60),
        LeaseClaim(lease=lease("new", "a"), seconds=60),
        UsageFlush(id="one", counts=[]),
        response,
        LeaseRenewal(lease=lease("old", "b"), seconds=60),
        LeaseRelease(lease=lease("nobody", "c")),
        Deletion(id=gone.id, principal="local", at=1),
    ]
    outcomes = await asyncio.to_thread(commit, batch)
    commit.release()
    assert list(outcomes) == [False, True, None, None, True, False, None]
    assert await sql_store.response("local", response.id) == response


async def test_leases_that_ended_long_ago_are_removed(sql_store):
    await sql_store.leases.acquire(lease("old", "a"), 0)
    await sql_store.leases.acquire(lease("new", "b"), 60)
    with sql_store._engine.begin() as connection:
        assert remove_expired(connection, grace_seconds=60) == 0
        assert remove_expired(connection, grace_seconds=-1) == 1
    assert await sql_store.leases.renew(lease("new", "b"), 60)


async def test_in_memory_time_runs_out():
    now = 0.0
    leases = MemoryLeases(lambda: now)
    assert await leases.acquire(lease(), 10)
    now = 9.0
    assert not await leases.acquire(lease("bob"), 10)
    assert await leases.renew(lease(), 10)
    now = 18.0
    assert not await leases.acquire(lease("bob"), 10)
    now = 19.0
    assert await leases.acquire(lease("bob"), 10)


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_who_asks_while_it_is_being_given_up_waits_for_the_answer(sql_store):
    """The rows are locked until the end of a transaction, so no two can both have seen that it is free."""
    await sql_store.leases.acquire(lease(), 60)
    with sql_store._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM leases")
        asked = asyncio.create_task(sql_store.leases.acquire(lease("bob"), 60))
        done, _ = await asyncio.wait((asked,), timeout=0.1)
        assert not done
    assert await asked
