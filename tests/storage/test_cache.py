"""Histories in memory: when the database is asked, and what may never be answered from memory."""

import asyncio

import pytest
from sqlalchemy import event

from gateway.ports import Deletion
from gateway.protocol.errors import InvalidRequest, ResponseNotFound, StorageUnavailable
from gateway.storage.cache import CachedStore
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import Metrics
from tests.storage.samples import make_chain, make_item, make_response

OUTCOMES = ("hit", "revalidated", "gone", "miss")


class HeldStore(MemoryStore):
    """Holds each call named in `held` back after it was carried out, until `release`."""

    def __init__(self):
        super().__init__()
        self.held = set()
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def append(self, response):
        await super().append(response)
        await self._hold("append")

    async def history(self, principal, response_id):
        found = await super().history(principal, response_id)
        await self._hold("history")
        return found

    async def holds(self, principal, response_id):
        found = await super().holds(principal, response_id)
        await self._hold("holds")
        return found

    async def delete(self, deletion):
        await super().delete(deletion)
        await self._hold("delete")

    async def _hold(self, call):
        if call in self.held:
            self.held.discard(call)
            self.reached.set()
            await self.released.wait()


class Bench:
    """A cached store with a clock that a test moves."""

    def __init__(self, inner=None, **bounds):
        self.inner = MemoryStore() if inner is None else inner
        self.seconds = 1000.0
        self.metrics = Metrics()
        bounds = {"history_max_responses": 10_000, "history_max_bytes": 1 << 26, **bounds}
        self.store = CachedStore(
            self.inner,
            **{"max_bytes": 1 << 20, "revalidate_seconds": 5.0, **bounds},
            metrics=self.metrics,
            monotonic=lambda: self.seconds,
        )

    async def append_chain(self, length):
        chain = make_chain(length)
        for response in chain:
            await self.store.append(response)
        return chain

    @property
    def bytes(self):
        return self.metrics.registry.get_sample_value("gateway_history_cache_bytes")

    @property
    def lookups(self):
        samples = {
            outcome: self.metrics.registry.get_sample_value("gateway_history_cache_lookups_total", {"outcome": outcome})
            for outcome in OUTCOMES
        }
        return {outcome: int(count) for outcome, count in samples.items() if count}


def deletion(response):
    return Deletion(id=response.id, principal=response.principal, at=1_700_000_100)


async def run_held(inner, call, work):
    """Start `work` and return once it is held in `call`."""
    inner.held.add(call)
    task = asyncio.create_task(work)
    await inner.reached.wait()
    return task


async def finish(inner, task):
    inner.released.set()
    return await task


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def held():
    return Bench(HeldStore())


# ---------------------------------------------------------------- what is asked of the database


async def test_the_next_turn_of_a_chain_asks_nothing(bench):
    *_, last = await bench.append_chain(40)
    assert await bench.store.history("local", last.id) == await bench.inner.history("local", last.id)
    assert bench.lookups == {"hit": 1}


async def test_a_chain_that_was_read_goes_on_in_memory(bench):
    first, second = make_chain(2)
    await bench.inner.append(first)
    assert (await bench.store.history("local", first.id)).responses == 1
    await bench.store.append(second)
    assert await bench.store.history("local", second.id) == await bench.inner.history("local", second.id)
    assert bench.lookups == {"miss": 1, "hit": 1}


async def test_a_child_of_what_is_not_in_memory_is_read_once(bench):
    first, second = make_chain(2)
    await bench.inner.append(first)
    await bench.store.append(second)
    for _ in range(2):
        assert await bench.store.history("local", second.id) == await bench.inner.history("local", second.id)
    assert bench.lookups == {"miss": 1, "hit": 1}


async def test_it_is_asked_whether_the_response_still_exists_once_in_a_while(bench):
    *_, last = await bench.append_chain(3)
    for seconds, outcome in (
        (4.9, "hit"),
        (0.1, "revalidated"),
        (4.9, "hit"),
        (0.1, "revalidated"),
        (60, "revalidated"),
    ):
        bench.seconds += seconds
        before = bench.lookups.get(outcome, 0)
        assert (await bench.store.history("local", last.id)).responses == 3
        assert bench.lookups[outcome] == before + 1


async def test_without_a_period_it_is_asked_every_time():
    bench = Bench(revalidate_seconds=0.0)
    (response,) = await bench.append_chain(1)
    for _ in range(3):
        assert await bench.store.history("local", response.id)
    assert bench.lookups == {"revalidated": 3}


async def test_the_time_of_asking_counts_and_not_that_of_the_answer(held):
    (response,) = await held.append_chain(1)
    held.seconds += 5
    asking = await run_held(held.inner, "holds", held.store.history("local", response.id))
    held.seconds += 5
    assert await finish(held.inner, asking)
    assert await held.store.history("local", response.id)
    assert held.lookups == {"revalidated": 2}


async def test_nothing_but_histories_is_answered_from_memory(bench):
    (response,) = await bench.append_chain(1)
    await bench.inner.delete(deletion(response))
    assert await bench.store.response("local", response.id) is None
    assert await bench.store.items("local", ["msg_1"]) == {}
    assert not await bench.store.holds("local", response.id)
    assert (await bench.store.probe()).healthy
    await bench.store.verify()
    await bench.store.close()
    with pytest.raises(StorageUnavailable):
        await bench.store.verify()


# ---------------------------------------------------------------- deletions


async def test_a_deletion_through_this_store_is_seen_at_once(bench):
    first, second, third = await bench.append_chain(3)
    await bench.store.delete(deletion(second))
    assert await bench.store.history("local", second.id) is None
    assert (await bench.store.history("local", third.id)).items == (*first.items, *second.items, *third.items)
    with pytest.raises(ResponseNotFound):
        await bench.store.delete(deletion(second))


async def test_a_deletion_by_another_process_is_seen_after_the_period(bench):
    (response,) = await bench.append_chain(1)
    await bench.inner.delete(deletion(response))
    bench.seconds += 4.9
    assert await bench.store.history("local", response.id)
    bench.seconds += 0.1
    assert await bench.store.history("local", response.id) is None
    assert await bench.store.history("local", response.id) is None
    assert bench.lookups == {"hit": 1, "gone": 1, "miss": 1}
    assert bench.bytes == 0


async def test_another_owners_id_never_hits(bench):
    (response,) = await bench.append_chain(1)
    assert await bench.store.history("mallory", response.id) is None
    with pytest.raises(ResponseNotFound):
        await bench.store.delete(Deletion(id=response.id, principal="mallory", at=1))
    assert await bench.store.history("local", response.id)
    assert bench.lookups == {"miss": 1, "hit": 1}


async def test_a_child_below_another_owners_parent_is_not_kept(bench):
    (parent,) = await bench.append_chain(1)
    with pytest.raises(StorageUnavailable):
        await bench.store.append(make_response(make_item(), parent_id=parent.id, principal="mallory"))
    assert len(bench.store._cache) == 1


# ---------------------------------------------------------------- what overtakes what


async def test_a_read_that_a_deletion_overtakes_is_not_kept(held):
    response = make_response(make_item())
    await held.inner.append(response)
    reading = await run_held(held.inner, "history", held.store.history("local", response.id))
    await held.store.delete(deletion(response))
    assert await finish(held.inner, reading)
    assert await held.store.history("local", response.id) is None


async def test_a_read_that_ends_while_its_response_is_deleted_is_not_kept(held):
    response = make_response(make_item())
    await held.inner.append(response)
    reading = await run_held(held.inner, "history", held.store.history("local", response.id))
    held.inner.reached.clear()
    deleting = await run_held(held.inner, "delete", held.store.delete(deletion(response)))
    await finish(held.inner, reading)
    await deleting
    assert await held.store.history("local", response.id) is None
    assert held.bytes == 0


async def test_an_append_that_a_deletion_overtakes_is_not_kept(held):
    response = make_response(make_item())
    appending = await run_held(held.inner, "append", held.store.append(response))
    await held.store.delete(deletion(response))
    await finish(held.inner, appending)
    assert await held.store.history("local", response.id) is None


async def test_a_revalidation_that_a_deletion_overtakes_revives_nothing(held):
    (response,) = await held.append_chain(1)
    held.seconds += 5
    asking = await run_held(held.inner, "holds", held.store.history("local", response.id))
    await held.store.delete(deletion(response))
    assert await finish(held.inner, asking)
    assert await held.store.history("local", response.id) is None
    assert held.bytes == 0


async def test_a_cancelled_append_puts_nothing_into_memory(held):
    response = make_response(make_item())
    appending = await run_held(held.inner, "append", held.store.append(response))
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert (held.bytes, held.store._filling) == (0, {})
    assert await held.store.history("local", response.id)
    assert held.lookups == {"miss": 1}


async def test_a_failed_append_puts_nothing_into_memory(bench):
    response = make_response(make_item(), parent_id="resp_gone")
    with pytest.raises(StorageUnavailable):
        await bench.store.append(response)
    assert await bench.store.history("local", response.id) is None
    assert (bench.bytes, bench.store._filling) == (0, {})


async def test_a_parent_that_may_be_gone_is_asked_about_again(bench):
    (parent,) = await bench.append_chain(1)
    # As another process removes what has expired.
    del bench.inner._responses[parent.id]
    assert await bench.store.history("local", parent.id)
    with pytest.raises(StorageUnavailable):
        await bench.store.append(make_response(make_item(), parent_id=parent.id))
    assert await bench.store.history("local", parent.id) is None
    assert bench.lookups == {"hit": 1, "gone": 1}


async def test_a_refused_duplicate_leaves_the_first_alone(bench):
    (response,) = await bench.append_chain(1)
    with pytest.raises(StorageUnavailable):
        await bench.store.append(make_response(make_item("other"), id=response.id))
    assert list((await bench.store.history("local", response.id)).items) == list(response.items)


async def test_a_cancelled_deletion_counts_as_another_processs(held):
    response = make_response(make_item())
    await held.store.append(response)
    deleting = await run_held(held.inner, "delete", held.store.delete(deletion(response)))
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    assert await held.store.history("local", response.id) is None


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("bounds", [{"history_max_responses": 2}, {"history_max_bytes": 90}])
async def test_a_chain_above_a_bound_fails_as_in_the_database(open_store, bounds):
    bench = Bench(await open_store(**bounds), **bounds)
    first, second, third = await bench.append_chain(3)
    for response in (first, second):
        assert await bench.store.history("local", response.id)
    assert bench.lookups == {"hit": 2}
    with pytest.raises(InvalidRequest) as direct:
        await bench.inner.history("local", third.id)
    with pytest.raises(InvalidRequest) as cached:
        await bench.store.history("local", third.id)
    assert (cached.value.code, cached.value.message) == (direct.value.code, direct.value.message)


async def test_what_makes_room_is_counted():
    bench = Bench(max_bytes=20_000)
    for _ in range(10):
        await bench.store.append(make_response(make_item(data=b"x" * 5000)))
    assert 0 < bench.bytes <= 20_000
    assert bench.metrics.registry.get_sample_value("gateway_history_cache_evictions_total") == 10 - len(
        bench.store._cache
    )


# ---------------------------------------------------------------- on databases


def count_statements(store):
    statements = []
    event.listen(store._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    return statements


async def test_forty_turns_read_nothing_but_the_liveness(sql_store):
    bench = Bench(sql_store)
    statements = count_statements(sql_store)
    for place, response in enumerate(make_chain(40)):
        if place:
            bench.seconds += 5 * (place % 2)
            del statements[:]
            assert len((await bench.store.history("local", response.parent_id)).items) == 2 * place
            assert len(statements) == place % 2
            assert not any("RECURSIVE" in statement or "items" in statement for statement in statements)
        await bench.store.append(response)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_liveness_is_found_by_index(sql_store):
    plans = []

    def explain(connection, _cursor, statement, parameters, _context, _many):
        if not statement.startswith("EXPLAIN"):
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row.detail for row in rows)

    event.listen(sql_store._engine, "before_cursor_execute", explain)
    assert not await sql_store.holds("local", "resp_1")
    (plan,) = plans
    assert plan.startswith("SEARCH responses USING INDEX")
    assert "(id=?)" in plan


async def test_two_processes_on_one_database(open_sql_store):
    """A deletes, B continues: children replay hidden parents, and the deleted one itself ends with the period."""
    one, other = Bench(await open_sql_store()), Bench(await open_sql_store())
    parent, child = await one.append_chain(2)
    for bench in (one, other):
        assert (await bench.store.history("local", parent.id)).responses == 1
    await one.store.delete(deletion(parent))
    # The child goes on everywhere, with what its parent said.
    for bench in (one, other):
        history = await bench.store.history("local", child.id)
        assert list(history.items) == [*parent.items, *child.items]
    # The parent itself is gone at once where it was deleted, and within the period elsewhere.
    assert await one.store.history("local", parent.id) is None
    assert await other.store.history("local", parent.id)
    late = make_response(make_item("late"), parent_id=parent.id)
    await other.store.append(late)
    other.seconds += 5
    assert await other.store.history("local", parent.id) is None
    # What was made from it meanwhile is a response like any other.
    for bench in (one, other):
        assert list((await bench.store.history("local", late.id)).items) == [*parent.items, *late.items]
    with pytest.raises(ResponseNotFound):
        await other.store.delete(deletion(parent))


async def test_forks_share_what_came_before_and_part_ways(open_sql_store):
    one, other = Bench(await open_sql_store()), Bench(await open_sql_store())
    root, left = await one.append_chain(2)
    assert await other.store.history("local", root.id)
    right = make_response(make_item("right"), parent_id=root.id)
    await other.store.append(right)
    await one.store.delete(deletion(left))
    for bench in (one, other):
        assert await bench.store.history("local", left.id) is None
        assert list((await bench.store.history("local", right.id)).items) == [*root.items, *right.items]


async def test_items_of_a_deleted_response_can_be_replayed_but_not_referred_to(open_sql_store):
    one, other = Bench(await open_sql_store()), Bench(await open_sql_store())
    parent = make_response(make_item(id="msg_parent"))
    child = make_response(make_item(id="msg_child"), parent_id=parent.id)
    for response in (parent, child):
        await one.store.append(response)
    await other.store.delete(deletion(parent))
    for bench in (one, other):
        assert set(await bench.store.items("local", ["msg_parent", "msg_child"])) == {"msg_child"}
        assert [item.id for item in (await bench.store.history("local", child.id)).items] == ["msg_parent", "msg_child"]
