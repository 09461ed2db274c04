"""Background responses in the database: every write is compared and set, on both databases."""

import json

import pytest
from sqlalchemy import text

from gateway.ports import (
    Claim,
    Deletion,
    EventBatch,
    EventSweep,
    Lease,
    RunBegin,
    RunCancel,
    RunEnd,
    RunHandover,
    RunLog,
    RunStart,
    RunTakeover,
    StoredItem,
    StoredResponse,
)
from gateway.storage.background_changes import RUN_ACTS

OWNER, HOLDER = "alice", "background/one"


def item(role, number):
    data = json.dumps({"type": "message", "id": f"msg_{number}"}).encode()
    return StoredItem(role=role, type="message", id=f"msg_{number}", data=data, status="completed")


def response(name="resp_1", **fields):
    given = {"status": "queued", "model": "m", "created_at": 10, "snapshot": b'{"output":[]}', **fields}
    return StoredResponse(id=name, principal=OWNER, items=[item("input", 1)], **given)


def events(first, *texts):
    return EventBatch(first=first, count=len(texts), data="\n".join(texts).encode())


def begin(name="resp_1", *, streams=True, holder=HOLDER, trace=None):
    batch = events(0, "a", "b") if streams else None
    return RunBegin(response=response(name), request=b"{}", holder=holder, batch=batch, trace=trace)


def end(claim, status="completed", batch=None, at=20):
    items = [item("output", 2), item("output", 3)]
    return RunEnd(claim=claim, status=status, snapshot=b'{"end":1}', items=items, ended_at=at, batch=batch)


CLAIM = Claim(response_id="resp_1", attempt=1)


async def test_a_response_goes_from_queued_to_its_end(open_sql_store):
    store = await open_sql_store()
    runs = store.background
    await runs.begin(begin())
    state = await runs.state(OWNER, "resp_1")
    assert (state.status, state.ended, state.streams, state.next_number, state.swept) == (
        "queued",
        False,
        True,
        2,
        False,
    )
    assert await runs.state("bob", "resp_1") is None

    assert await runs.start(RunStart(claim=CLAIM, snapshot=b'{"s":1}'))
    assert (await store.response(OWNER, "resp_1")).status == "in_progress"
    assert await store.history(OWNER, "resp_1") is None, "it cannot be continued yet"
    assert await runs.log(RunLog(claim=CLAIM, batch=events(2, "c"), told=False))
    assert await runs.log(RunLog(claim=CLAIM, batch=events(3, "d", "e"), told=True))
    run = await runs.load(CLAIM)
    assert (run.principal, run.request, run.next_number, run.told, run.starts, run.cancelled) == (
        OWNER, b"{}", 5, True, 1, False,
    )  # fmt: skip

    assert await runs.end(end(CLAIM, batch=events(5, "f")))
    stored = await store.response(OWNER, "resp_1")
    assert (stored.status, stored.snapshot) == ("completed", b'{"end":1}')
    assert [(one.role, one.id) for one in stored.items] == [
        ("input", "msg_1"), ("output", "msg_2"), ("output", "msg_3"),
    ]  # fmt: skip
    assert len((await store.history(OWNER, "resp_1")).items) == 3
    assert await store.stored_bytes(OWNER) == stored.size
    assert await runs.load(CLAIM) is None
    assert (await runs.state(OWNER, "resp_1")).ended


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_events_are_read_behind_a_number(open_sql_store):
    runs = (await open_sql_store()).background
    await runs.begin(begin())
    await runs.log(RunLog(claim=CLAIM, batch=events(2, "c", "d"), told=True))
    await runs.log(RunLog(claim=CLAIM, batch=events(4, "e"), told=True))
    read = {
        after: [batch.first for batch in await runs.events(OWNER, "resp_1", after, limit=9)] for after in range(-1, 6)
    }
    assert read == {-1: [0, 2, 4], 0: [0, 2, 4], 1: [2, 4], 2: [2, 4], 3: [4], 4: [], 5: []}
    assert [batch.first for batch in await runs.events(OWNER, "resp_1", -1, limit=2)] == [0, 2]
    assert await runs.events("bob", "resp_1", -1, limit=9) == []


async def test_whoever_was_overtaken_changes_nothing(open_sql_store):
    store = await open_sql_store()
    runs = store.background
    await runs.begin(begin())
    taken = await runs.take_over(RunTakeover(claim=CLAIM, holder="background/two"))
    assert taken == Claim(response_id="resp_1", attempt=2)
    assert await runs.take_over(RunTakeover(claim=CLAIM, holder="background/three")) is None
    assert not await runs.start(RunStart(claim=CLAIM, snapshot=b"{}"))
    assert not await runs.log(RunLog(claim=CLAIM, batch=events(2, "x"), told=True))
    assert not await runs.end(end(CLAIM, batch=events(2, "x")))
    assert await runs.load(CLAIM) is None
    assert (await store.response(OWNER, "resp_1")).status == "queued"
    assert len(await runs.events(OWNER, "resp_1", -1, limit=9)) == 1
    assert await runs.end(end(taken, "failed", batch=events(2, "y")))
    assert not await runs.end(end(taken, "completed", batch=events(3, "z")))
    assert (await store.response(OWNER, "resp_1")).status == "failed"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_cancel_is_seen_by_the_holder_until_the_end(open_sql_store):
    store = await open_sql_store()
    runs = store.background
    await runs.begin(begin())
    await runs.begin(begin("resp_2"))
    await runs.cancel(RunCancel(response_id="resp_1", principal="bob", at=11))
    assert list(await runs.find_cancelled(HOLDER)) == []
    await runs.cancel(RunCancel(response_id="resp_1", principal=OWNER, at=11))
    assert list(await runs.find_cancelled(HOLDER)) == ["resp_1"]
    assert (await runs.load(CLAIM)).cancelled
    await store.delete(Deletion(id="resp_2", principal=OWNER, at=11))
    assert sorted(await runs.find_cancelled(HOLDER)) == ["resp_1", "resp_2"]
    assert list(await runs.find_cancelled("background/two")) == []
    assert await runs.state(OWNER, "resp_2") is None
    assert await runs.end(end(CLAIM, "cancelled"))
    assert list(await runs.find_cancelled(HOLDER)) == ["resp_2"]
    await runs.cancel(RunCancel(response_id="resp_1", principal=OWNER, at=12))
    assert (await store.response(OWNER, "resp_1")).status == "cancelled"


async def test_orphans_are_those_whose_lease_is_gone(open_sql_store):
    store = await open_sql_store()
    runs = store.background
    lease = Lease(name=HOLDER, holder="one")
    assert await store.leases.acquire(lease, 60)
    for name in ("resp_1", "resp_2"):
        await runs.begin(begin(name))
    assert list(await runs.find_orphans("background/two", limit=9)) == []
    # What is its own a process finds too: what it no longer knows of, it has to take over.
    assert len(await runs.find_orphans(HOLDER, limit=9)) == 2
    await runs.hand_over(RunHandover(claims=[Claim(response_id="resp_2", attempt=1)]))
    assert [claim.response_id for claim in await runs.find_orphans("background/two", limit=9)] == ["resp_2"]
    await store.leases.release(lease)
    found = await runs.find_orphans("background/two", limit=9)
    assert [claim.response_id for claim in found] == ["resp_1", "resp_2"]
    assert len(await runs.find_orphans("background/two", limit=1)) == 1
    await runs.end(end(CLAIM))
    assert [claim.response_id for claim in await runs.find_orphans("background/two", limit=9)] == ["resp_2"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_events_go_and_the_response_stays(open_sql_store):
    store = await open_sql_store()
    runs = store.background
    await runs.begin(begin())
    await runs.begin(begin("resp_2", streams=False))
    await runs.end(end(CLAIM, batch=events(2, "c"), at=20))
    await runs.end(end(Claim(response_id="resp_2", attempt=1), at=20))
    assert await runs.sweep(EventSweep(ended_before=20, limit=10)) == 0
    assert await runs.sweep(EventSweep(ended_before=21, limit=10)) == 1
    assert await runs.sweep(EventSweep(ended_before=21, limit=10)) == 0
    assert (await runs.state(OWNER, "resp_1")).swept
    assert await runs.events(OWNER, "resp_1", -1, limit=9) == []
    assert await store.response(OWNER, "resp_1") is not None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_the_request_is_removed_at_the_end(open_sql_store):
    store = await open_sql_store()
    await store.background.begin(begin(trace="00-1-2-01"))
    assert (await store.background.load(CLAIM)).trace == "00-1-2-01"
    await store.background.end(end(CLAIM))
    with store._engine.connect() as connection:
        assert bytes(connection.scalar(text("SELECT request FROM background_runs"))) == b""


async def test_what_was_committed_before_the_connection_broke_counts(open_sql_store):
    """A batch is tried again on a new connection; each change must find out that it was carried out already."""
    store = await open_sql_store()
    runs = store.background
    await runs.begin(begin())
    start, log = RunStart(claim=CLAIM, snapshot=b"{}"), RunLog(claim=CLAIM, batch=events(2, "c"), told=True)
    last = end(CLAIM, batch=events(3, "d"))
    assert await runs.start(start)
    assert await runs.log(log)
    with store._engine.begin() as connection:
        again = [RUN_ACTS[type(change)](connection, change, True) for change in (begin(), start, log)]
    assert again == [None, True, True]
    assert await runs.end(last)
    with store._engine.begin() as connection:
        assert RUN_ACTS[RunEnd](connection, last, True)
        assert not RUN_ACTS[RunEnd](connection, last, False)
        assert not RUN_ACTS[RunEnd](connection, end(CLAIM, "cancelled"), True)
    assert [batch.first for batch in await runs.events(OWNER, "resp_1", -1, limit=9)] == [0, 2, 3]
    await runs.begin(begin("resp_2"))
    takeover = RunTakeover(claim=Claim(response_id="resp_2", attempt=1), holder="background/two")
    taken = await runs.take_over(takeover)
    with store._engine.begin() as connection:
        assert RUN_ACTS[RunTakeover](connection, takeover, True) == taken
        assert RUN_ACTS[RunTakeover](connection, takeover, False) is None


async def test_what_is_removed_takes_its_run_along(open_sql_store):
    store = await open_sql_store()
    await store.background.begin(begin())
    with store._engine.begin() as connection:
        connection.execute(text("DELETE FROM items"))
        connection.execute(text("DELETE FROM responses"))
    assert not await store.background.log(RunLog(claim=CLAIM, batch=events(2, "c"), told=True))
    assert not await store.background.end(end(CLAIM))
