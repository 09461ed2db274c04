"""What is written of a response, and when."""

import asyncio
import json

import pytest
from engine.doubles import (
    Bench,
    BrokenStore,
    CountingIds,
    HeldStore,
    Reply,
    SettableClock,
    sizes,
    streamed,
    types,
    whole,
)
from harness.engine import Answer, call, message, reasoning, says

from gateway.config.schema import GatewayConfig
from gateway.engine.commit import Committer, Lineage
from gateway.engine.room import Room
from gateway.protocol.errors import NotFound, ResourceLimitExceeded, StorageUnavailable
from gateway.protocol.response import EncodedResponse, Response
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import Metrics

TOOLS = [{"type": "function", "name": "f", "parameters": {}}]
DOWN = StorageUnavailable("The database does not answer.")


async def test_everything_is_written_in_its_order():
    bench = Bench()
    spoken = Answer([reasoning("Hm."), message("Hi."), call("f", "{}", "call_1")])
    given = [
        {"role": "user", "content": "hello"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_own"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
    ]
    answer = await bench.answer(whole(spoken), input=given, tools=TOOLS)
    stored = await bench.stored(answer["id"])
    assert [(item.role, item.type, item.call_id, item.status) for item in stored.items] == [
        ("input", "message", None, None),
        ("input", "function_call", "c", None),
        ("input", "function_call_output", "c", None),
        ("output", "reasoning", None, "completed"),
        ("output", "message", None, "completed"),
        ("output", "function_call", "call_1", "completed"),
    ]
    assert [item.id.partition("_")[0] for item in stored.items] == ["msg", "fc", "fco", "rs", "msg", "fc"]
    assert stored.items[1].id == "fc_own"
    assert [json.loads(item.data) for item in stored.items if item.role == "output"] == answer["output"]
    assert json.loads(stored.items[0].data) == {"type": "message", "role": "user", "content": "hello"}


async def test_the_record_holds_the_response_without_its_output():
    bench = Bench()
    answer = await bench.answer(whole(says("Hi.")), metadata={"a": "b"})
    stored = await bench.stored(answer["id"])
    assert json.loads(stored.snapshot) == {**answer, "output": []}
    assert (stored.status, stored.model, stored.created_at, stored.completed_at, stored.parent_id) == (
        "completed",
        "m",
        answer["created_at"],
        answer["completed_at"],
        None,
    )


async def test_an_incomplete_answer_is_kept():
    bench = Bench()
    answer = await bench.answer(whole(Answer([message("Hi")], status="incomplete")))
    stored = await bench.stored(answer["id"])
    assert (stored.status, stored.completed_at) == ("incomplete", None)


@pytest.mark.parametrize("reply", [whole, streamed])
async def test_nothing_is_written_when_the_caller_does_not_want_it(reply):
    bench = Bench(store=BrokenStore(AssertionError("written")))
    if reply is whole:
        assert (await bench.answer(reply(says("Hi.")), store=False))["store"] is False
    else:
        assert types(await bench.stream(reply(says("Hi.")), store=False))[-1] == "completed"


async def test_the_time_of_a_commit_is_measured():
    bench = Bench()
    await bench.answer(whole(says("Hi.")))
    assert bench.sample("storage_append_seconds_count") == 1
    assert bench.sample("storage_failures_total") == 0


@pytest.mark.parametrize(("given", "kept"), [("item_1", "item_1"), (None, "item_"), (7, "item_"), ("", "item_")])
async def test_an_item_without_an_id_gets_one(given, kept):
    store = MemoryStore()
    response = Response(id="resp_1", created_at=1, status="completed", model="m")
    room = Room(store, SettableClock(), GatewayConfig())
    await Committer(store, CountingIds(), Metrics(), room).commit(
        "local", EncodedResponse(response), [{"type": "unheard_of", "id": given}], Lineage()
    )
    assert (await store.response("local", "resp_1")).items[0].id.startswith(kept)


async def test_a_failure_of_the_store_fails_the_response():
    bench = Bench(store=BrokenStore(DOWN))
    with pytest.raises(StorageUnavailable):
        await bench.answer(whole(says("Hi.")))
    assert bench.sample("storage_failures_total") == 1
    assert bench.sample("storage_append_seconds_count") == 0
    assert bench.sample("responses_total", transport="json", status="failed") == 1


async def test_a_failure_of_the_store_is_the_end_of_the_stream():
    told = await Bench(store=BrokenStore(DOWN)).stream(streamed(says("Hi.")))
    assert types(told)[-1] == "failed"
    assert "completed" not in types(told)
    assert told[-1]["response"]["error"]["code"] == "server_is_overloaded"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


async def test_the_terminal_event_leaves_only_after_the_commit():
    store = HeldStore()
    bench = Bench(store=store)
    listener, task = await bench.start(streamed(says("Hi.")))
    told = await listener.take_until_silent()
    assert store.reached.is_set()
    assert types(told)[-1] == "content_part.done"
    assert not listener.ended
    await store.commit()
    rest = await listener.take_all()
    assert types(rest) == ["output_item.done", "completed"]
    await task
    assert await bench.stored(rest[-1]["response"]["id"]) is not None


async def test_a_json_answer_leaves_only_after_the_commit():
    store = HeldStore()
    bench = Bench(store=store)
    work = asyncio.create_task(bench.answer(whole(says("Hi."))))
    await store.reached.wait()
    assert not (await asyncio.wait([work], timeout=0.02))[0]
    await store.commit()
    assert (await work)["status"] == "completed"


async def test_a_client_that_leaves_during_the_commit_finds_its_response():
    store = HeldStore()
    bench = Bench(store=store)
    _, task = await bench.start(streamed(says("Hi.")))
    await store.reached.wait()
    task.cancel()
    await asyncio.wait([task])
    await store.commit()
    found = json.loads(await bench.engine.retrieve("local", store.queued[0].id))
    assert found["output"][0]["content"][0]["text"] == "Hi."


async def test_a_client_that_leaves_before_the_commit_leaves_nothing():
    bench = Bench()
    reply = Reply([*says("Hi.").frames()[:-1], asyncio.Event()])
    listener, task = await bench.start(reply)
    told = await listener.take_until_silent()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert listener.take() == []
    with pytest.raises(NotFound):
        await bench.engine.retrieve("local", told[0]["response"]["id"])
    assert (reply.closed, reply.retired) == (1, 0)


async def test_a_terminal_event_that_is_too_large_is_found_out_before_anything_is_written():
    answer = says("x" * 2000)
    largest = max(sizes((await Bench().stream(streamed(answer)))[:-1]))
    bench = Bench(store=BrokenStore(AssertionError("written")), responses={"max_stream_event_bytes": largest})
    told = await bench.stream(streamed(answer))
    assert types(told)[-2:] == ["output_item.done", "failed"]
    error = told[-1]["response"]["error"]
    assert (error["code"], error["resource"]) == (ResourceLimitExceeded.code, "max_stream_event_bytes")
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


async def test_a_fault_of_ours_in_the_commit_leaves_no_gap_in_the_numbers():
    told = await Bench(store=BrokenStore(RuntimeError("secret"))).stream(streamed(says("Hi.")))
    assert types(told)[-1] == "failed"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
