"""Responses that are made without an inference, for a later one to continue."""

import json

import pytest
from engine.connections import Connection, CountingStore
from engine.doubles import Bench, BrokenStore, sizes, streamed, text_of, types
from harness.engine import says

from gateway.protocol.errors import GatewayError, ResourceLimitExceeded, StorageUnavailable

ZERO = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


@pytest.fixture
def connection():
    return Connection()


@pytest.mark.parametrize("store", [True, False])
async def test_a_warm_up_is_two_events_and_no_inference(connection, store):
    told = await connection.create(store=store, generate=False, instructions="Be brief.")
    assert types(told) == ["created", "completed"]
    assert [event["sequence_number"] for event in told] == [0, 1]
    created, completed = (event["response"] for event in told)
    assert (created["status"], created["usage"], created["output"]) == ("in_progress", None, [])
    assert (completed["status"], completed["usage"], completed["output"]) == ("completed", ZERO, [])
    assert created["id"] == completed["id"]
    assert connection.bench.upstream.calls == []
    stored = await connection.bench.stored(completed["id"])
    assert (stored is not None) is store
    if store:
        assert json.loads(stored.snapshot) == completed
        assert [item.role for item in stored.items] == ["input"]


@pytest.mark.parametrize("store", [True, False])
async def test_a_warm_up_is_continued(connection, store):
    parent = await connection.tell("q0")
    warm = await connection.create(store=store, generate=False, input="q1", previous_response_id=parent)
    await connection.tell("q2", warm[-1]["response"]["id"])
    assert connection.sent == ["q0", "re q0", "q1", "q2"]


async def test_a_warm_up_may_bring_nothing(connection):
    warm = await connection.create(store=False, generate=False, input=[])
    await connection.tell("q1", warm[-1]["response"]["id"])
    assert connection.sent == ["q1"]


async def test_both_events_of_a_warm_up_fit_or_nothing_is_committed():
    measured = sizes(await Connection().create(generate=False))
    assert measured[0] < measured[1]
    for limit, told in ((measured[1], True), (measured[1] - 1, False), (measured[0] - 1, False)):
        connection = Connection(Bench(responses={"max_stream_event_bytes": limit}, store=CountingStore()))
        if told:
            assert types(await connection.create(generate=False)) == ["created", "completed"]
            continue
        with pytest.raises(ResourceLimitExceeded) as refused:
            await connection.create(generate=False)
        assert (refused.value.resource, refused.value.status) == ("max_stream_event_bytes", 502)
        assert connection.bench.store._responses == {}
        assert (connection.session.latest(None), connection.session.bytes) == (None, 0)


@pytest.mark.parametrize(
    ("error", "status"), [(StorageUnavailable("Down."), 503), (RuntimeError("torn"), 500)], ids=["known", "unforeseen"]
)
async def test_a_warm_up_that_is_not_stored_is_refused(error, status):
    connection = Connection(Bench(store=BrokenStore(error)))
    with pytest.raises(GatewayError) as refused:
        await connection.create(generate=False)
    assert refused.value.status == status
    assert (connection.session.latest(None), connection.session.bytes) == (None, 0)
    assert connection.bench.sample("responses_total", transport="websocket", status="failed") == 1


async def test_http_knows_no_warm_up():
    bench = Bench()
    told = await bench.stream(streamed(says("Hi.")), generate=False)
    assert text_of(told[-1]["response"]) == "Hi."


async def test_a_warm_up_that_cannot_be_remembered_is_refused():
    connection = Connection(max_checkpoint_bytes=100)
    with pytest.raises(ResourceLimitExceeded, match="max_checkpoint_bytes"):
        await connection.create(generate=False, store=False, input="x" * 200)
