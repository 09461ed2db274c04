"""Responses made on one connection: each continues what the connection remembers, or what is stored."""

import asyncio
import json
import logging

import pytest
from engine.connections import Connection, CountingStore, failure_of
from engine.doubles import Bench, BrokenStore, Reply, refusal, settle, sizes, streamed, types
from harness.engine import Answer, call, message, says

from gateway.engine.input_items import Page
from gateway.protocol.errors import (
    InvalidRequest,
    PreviousResponseNotFound,
    StorageUnavailable,
    Unavailable,
    UpstreamError,
    UpstreamRefused,
)
from gateway.protocol.frames import tag_overhead

TOOLS = [{"type": "function", "name": "f", "parameters": {}}]


@pytest.fixture
def connection():
    return Connection()


# ---------------------------------------------------------------- chains


async def test_unstored_responses_are_continued_without_the_database(connection):
    bench = connection.bench
    first = await connection.tell("q1")
    second = await connection.tell("q2", first)
    await connection.tell("q3", second)
    assert connection.sent == ["q1", "re q1", "q2", "re q2", "q3"]
    assert bench.store.reads == 0
    assert [await bench.stored(response_id) for response_id in (first, second)] == [None, None]
    assert bench.sample("websocket_parent_lookups_total", outcome="hit") == 2


async def test_what_the_lane_has_left_behind_is_unknown(connection):
    first = await connection.tell("q1")
    await connection.tell("q2", first)
    with pytest.raises(PreviousResponseNotFound):
        await connection.create(store=False, previous_response_id=first)
    assert connection.bench.sample("websocket_parent_lookups_total", outcome="miss") == 1


async def test_another_connection_knows_nothing_of_it(connection):
    first = await connection.tell("q1")
    other = Connection(connection.bench)
    with pytest.raises(PreviousResponseNotFound):
        await other.create(previous_response_id=first)
    with pytest.raises(PreviousResponseNotFound):
        await connection.bench.plan(previous_response_id=first)


@pytest.mark.parametrize("store", [True, False])
async def test_a_hit_reads_nothing(connection, store):
    first = await connection.tell("q1", store=True)
    await connection.tell("q2", first, store=store)
    assert connection.sent == ["q1", "re q1", "q2"]
    assert connection.bench.store.reads == 0


async def test_a_miss_reads_the_history_once(connection):
    first = await connection.tell("q1", store=True)
    await connection.tell("q2", first)
    await connection.tell("q3", first)
    assert connection.sent == ["q1", "re q1", "q3"]
    assert connection.bench.store.reads == 1


async def test_the_stored_child_of_a_stored_parent_refers_to_it(connection):
    first = await connection.tell("q1", store=True)
    second = await connection.tell("q2", first, store=True)
    stored = await connection.bench.stored(second)
    assert stored.parent_id == first
    assert [item.role for item in stored.items] == ["input", "output"]


@pytest.mark.parametrize("root", [True, False], ids=["of a stored root", "of an unstored root"])
async def test_the_stored_child_of_an_unstored_parent_holds_all_that_came_before(connection, root):
    first = await connection.tell("q1", store=root)
    second = await connection.tell("q2", first)
    third = await connection.tell("q3", second, store=True)
    stored = await connection.bench.stored(third)
    assert stored.parent_id is None
    assert [item.role for item in stored.items] == [*["context"] * 4, "input", "output"]
    # The next one has a parent in the database again.
    fourth = await connection.tell("q4", third, store=True)
    assert (await connection.bench.stored(fourth)).parent_id == third

    restarted = Bench(store=connection.bench.store)
    await restarted.answer(
        Reply([json.dumps(says("q5").response).encode()], event_stream=False),
        input="q5",
        previous_response_id=fourth,
        store=False,
    )
    items = restarted.upstream.bodies[-1]["input"]
    texts = [item["content"] if isinstance(item["content"], str) else item["content"][0]["text"] for item in items]
    assert texts == ["q1", "re q1", "q2", "re q2", "q3", "re q3", "q4", "re q4", "q5"]
    for lost in (second, "resp_nobody"):
        with pytest.raises(PreviousResponseNotFound):
            await restarted.plan(previous_response_id=lost)


async def test_what_came_before_is_no_input_of_the_child(connection):
    first = await connection.tell("q1")
    second = await connection.tell("q2", first, store=True)
    listed = json.loads(await connection.engine.input_items("local", second, Page(limit=20, order="asc")))
    assert [item["content"][0]["text"] for item in listed["data"]] == ["q2"]


async def test_lanes_fork_from_one_parent(connection):
    root = await connection.tell("root")
    forks = {lane: await connection.tell(lane, root, lane) for lane in ("a", "b")}
    for lane, fork in forks.items():
        await connection.tell("on", fork, lane)
        assert connection.sent == ["root", "re root", lane, f"re {lane}", "on"]
    await connection.tell("on", root)
    assert connection.sent == ["root", "re root", "on"]


async def test_calls_are_matched_with_the_outputs_of_the_next_create(connection):
    asked = await connection.create(streamed(Answer([call("f", "{}", "call_1")])), store=False, tools=TOOLS)
    parent = asked[-1]["response"]["id"]
    output = {"type": "function_call_output", "call_id": "call_1", "output": "7"}
    await connection.create(streamed(says("7.")), input=[output], previous_response_id=parent, store=False)
    kinds = [item["type"] for item in connection.bench.upstream.bodies[-1]["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]


async def test_an_incomplete_response_is_continued_without_the_call_that_was_cut_short(connection):
    half = Answer([message("half"), call("f", '{"a', "call_1")], status="incomplete")
    told = await connection.create(streamed(half), store=False, input="q1")
    assert types(told)[-1] == "incomplete"
    await connection.tell("q2", told[-1]["response"]["id"])
    assert connection.sent == ["q1", "half", "q2"]


# ---------------------------------------------------------------- bounds of the memory

BOUNDS = [
    ({"max_checkpoint_bytes": 100}, "max_checkpoint_bytes", 100),
    ({"max_checkpoint_items": 1}, "max_checkpoint_items", 1),
    ({"max_session_bytes": 100}, "max_session_bytes", 100),
]


@pytest.mark.parametrize(("bounds", "resource", "limit"), BOUNDS)
async def test_an_unstored_response_that_cannot_be_remembered_fails(bounds, resource, limit):
    connection = Connection(**bounds)
    told = await connection.create(streamed(says("x" * 200)), store=False)
    error = failure_of(told)
    assert (error["code"], error["resource"], error["limit"]) == ("response_resource_limit_exceeded", resource, limit)
    assert resource in error["message"]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert (connection.session.latest(None), connection.session.bytes) == (None, 0)
    assert connection.bench.sample("limit_breaches_total", resource=resource) == 1
    assert connection.bench.sample("websocket_checkpoints_total", outcome="too_large") == 1


@pytest.mark.parametrize(("bounds", "resource", "limit"), BOUNDS)
async def test_a_stored_response_that_cannot_be_remembered_goes_on_from_the_database(bounds, resource, limit):
    connection = Connection(**bounds)
    first = await connection.tell("q1", store=True, says_="x" * 200)
    assert (connection.session.latest(None), connection.session.bytes) == (None, 0)
    await connection.tell("q2", first, store=True)
    assert connection.sent == ["q1", "x" * 200, "q2"]
    assert connection.bench.store.reads == 1
    assert connection.bench.sample("websocket_checkpoints_total", outcome="too_large") == 2


async def test_other_bounds_hold_for_later_connections_alone():
    connection = Connection(max_checkpoint_bytes=10_000)
    later = Connection(connection.bench, max_checkpoint_bytes=100)
    await connection.tell("q1", says_="x" * 200)
    assert failure_of(await later.create(streamed(says("x" * 200)), store=False))["resource"] == "max_checkpoint_bytes"


async def test_an_event_counts_with_what_the_lane_adds_to_it():
    long = "x" * 2000
    limit = max(sizes(await Connection().create(streamed(says(long)))))
    for lane, fits in ((None, True), ("a" * 256, False)):
        bench = Bench(responses={"max_stream_event_bytes": limit}, store=CountingStore())
        connection = Connection(bench)
        told = await connection.create(streamed(says(long)), lane=lane)
        response = told[-1]["response"]
        assert (await bench.stored(response["id"]) is not None) is fits
        assert (connection.session.latest(lane) is not None) is fits
        if not fits:
            assert failure_of(told)["resource"] == "max_stream_event_bytes"
            assert max(sizes(told)) + tag_overhead(lane) <= limit


# ---------------------------------------------------------------- failures

FAILURES = {
    "refused": lambda: Reply(error=refusal()),
    "failed in the middle": lambda: Reply(says("Hello there", chunk=2).frames()[:6]),
}


async def fail(connection, how, **fields):
    try:
        failure_of(await connection.create(FAILURES[how](), store=False, **fields))
    except UpstreamRefused:
        assert how == "refused"


@pytest.mark.parametrize("how", FAILURES)
async def test_a_failed_continuation_evicts_its_parent_and_the_lane_works_on(connection, how):
    parent = await connection.tell("q1", lane="a")
    await fail(connection, how, lane="a", previous_response_id=parent)
    with pytest.raises(PreviousResponseNotFound):
        await connection.create(lane="a", previous_response_id=parent)
    assert connection.session.bytes == 0
    await connection.tell("q3", await connection.tell("anew", lane="a"), lane="a")


@pytest.mark.parametrize("how", FAILURES)
async def test_a_failed_fork_keeps_it(connection, how):
    parent = await connection.tell("q1", lane="a")
    await fail(connection, how, lane="b", previous_response_id=parent)
    await fail(connection, how, lane="a")
    await connection.tell("q2", parent, lane="a")
    assert connection.sent == ["q1", "re q1", "q2"]


@pytest.mark.parametrize("how", FAILURES)
async def test_the_operator_may_keep_parents(how):
    connection = Connection(evict_parent_on_failure="never")
    parent = await connection.tell("q1")
    await fail(connection, how, previous_response_id=parent)
    await connection.tell("q2", parent)
    assert connection.sent == ["q1", "re q1", "q2"]


@pytest.mark.parametrize("how", FAILURES)
async def test_a_stored_parent_is_found_in_the_database_after_its_eviction(connection, how):
    parent = await connection.tell("q1", store=True)
    await fail(connection, how, previous_response_id=parent)
    assert connection.session.latest(None) is None
    await connection.tell("q2", parent)
    assert connection.bench.store.reads == 1


@pytest.mark.parametrize(
    "fields",
    [{"temperature": 9}, {"input": [{"type": "function_call_output", "call_id": "nobody", "output": "x"}]}],
    ids=["wrong parameter", "orphaned output"],
)
async def test_a_continuation_that_is_refused_evicts_its_parent(connection, fields):
    parent = await connection.tell("q1")
    with pytest.raises(InvalidRequest):
        await connection.create(previous_response_id=parent, **fields)
    assert (connection.session.latest(None), connection.session.bytes) == (None, 0)


async def test_a_response_that_is_not_stored_is_not_remembered_either():
    store = BrokenStore(StorageUnavailable("Down."))
    connection = Connection(Bench(store=store))
    parent = await connection.tell("q1")
    told = await connection.create(streamed(says("Hi.")), previous_response_id=parent)
    assert failure_of(told)["code"] == "server_is_overloaded"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert (connection.session.latest(None), connection.session.bytes) == (None, 0)


async def test_a_create_that_is_cancelled_leaves_everything_as_it_was(connection):
    parent = await connection.tell("q1")
    held = connection.session.bytes
    reply = Reply([*says("Hi.").frames()[:4], asyncio.Event()])
    task = asyncio.create_task(connection.create(reply, previous_response_id=parent))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert (reply.closed, connection.session.bytes) == (1, held)
    await connection.tell("q2", parent)
    assert connection.sent == ["q1", "re q1", "q2"]


async def test_one_response_can_be_cut_off(connection, caplog):
    replies = [Reply([*says("Hi there.", chunk=2).frames()[:5], asyncio.Event()]) for _ in range(2)]
    tasks = [
        asyncio.create_task(connection.create(reply, lane=lane)) for lane, reply in zip("ab", replies, strict=True)
    ]
    await settle()
    first, _ = connection.engine.runs
    connection.engine.runs.cut_off_response(first, Unavailable("Enough."))
    connection.engine.runs.cut_off_response("resp_nobody", Unavailable("Enough."))
    error = failure_of(await tasks[0])
    assert (error["code"], error["message"]) == ("server_is_overloaded", "Enough.")
    assert [reply.closed for reply in replies] == [1, 0]
    assert not tasks[1].done()
    connection.engine.runs.cut_off_response(first, Unavailable("It is over already."))
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert connection.engine.runs == {}
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


# ---------------------------------------------------------------- deletions, and creates that could not begin


async def test_a_deleted_response_is_continued_on_no_connection():
    connection = Connection()
    made = (await connection.create(streamed(says("Hi."))))[-1]["response"]["id"]
    await connection.engine.delete("local", made)
    with pytest.raises(PreviousResponseNotFound):
        await connection.create(previous_response_id=made)


@pytest.mark.parametrize(("error", "stays"), [(Unavailable("Later."), True), (UpstreamError("Broke."), False)])
async def test_who_is_told_to_come_back_finds_what_he_continues(error, stays):
    connection = Connection()
    made = (await connection.create(streamed(says("Hi.")), store=False))[-1]["response"]["id"]
    with pytest.raises(type(error)):
        await connection.create(Reply(error=error), previous_response_id=made, store=False)
    assert (connection.session.find(made) is not None) == stays
