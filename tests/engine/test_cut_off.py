"""The end of the drain: what still runs is ended by us, and its caller is told."""

import asyncio
import json
import logging

import pytest
from conformance.rules import check_events
from conformance.wire import WireEvent
from engine.doubles import Bench, HeldStore, Listener, Reply, settle, streamed, text_of, types, whole
from harness.engine import says

from gateway.protocol.errors import Unavailable

BEGUN = says("Hello there", chunk=5).frames()[:5]


def judged(told):
    """The last event's response, once the stream is found to keep the rules."""
    assert check_events([WireEvent(number, event) for number, event in enumerate(told)]) == []
    return told[-1]["response"]


def assert_overloaded(error):
    assert (error.status, error.code, error.retry_after) == (503, "server_is_overloaded", 1.0)


async def test_a_stream_that_has_begun_ends_as_failed(caplog):
    bench = Bench()
    reply = Reply([*BEGUN, asyncio.Event()])
    listener, task = await bench.start(reply)
    await settle()
    assert bench.engine.cut_off() == 1
    response = judged(await listener.take_all())
    assert (response["status"], response["error"]["code"]) == ("failed", "server_is_overloaded")
    assert text_of(response) == "Hello"
    await task
    assert (reply.closed, reply.retired) == (1, 0)
    assert await bench.stored(response["id"]) is None
    assert bench.sample("responses_total", transport="sse", status="failed") == 1
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize("form", ["stream", "json"])
async def test_a_call_that_is_not_accepted_yet_is_refused(form):
    bench = Bench()
    work = bench.stream if form == "stream" else bench.answer
    waiting = asyncio.create_task(work(Reply(accept=asyncio.Event())))
    await settle()
    bench.engine.cut_off()
    with pytest.raises(Unavailable) as refused:
        await waiting
    assert_overloaded(refused.value)


async def test_a_json_caller_is_refused_and_its_upstream_call_aborted():
    bench = Bench()
    reply = Reply([b'{"output":', asyncio.Event()], event_stream=False)
    waiting = asyncio.create_task(bench.answer(reply))
    await settle()
    bench.engine.cut_off()
    bench.engine.cut_off()
    with pytest.raises(Unavailable) as refused:
        await waiting
    assert_overloaded(refused.value)
    assert (reply.closed, reply.retired) == (1, 0)
    assert bench.engine.cut_off() == 0


async def test_a_run_whose_client_does_not_read_is_ended_too():
    bench = Bench()
    reply = Reply([*says("Hello there", chunk=1).frames()])
    listener, task = await bench.start(reply)
    listener.reads.clear()
    await settle()
    assert len(listener.waiting) == 1
    bench.engine.cut_off()
    await settle()
    assert (reply.closed, task.done()) == (1, False)
    listener.reads.set()
    assert judged(await listener.take_all())["error"]["code"] == "server_is_overloaded"


@pytest.mark.parametrize("form", ["stream", "json"])
async def test_what_is_being_committed_is_left_to_end_by_itself(form):
    store = HeldStore()
    bench = Bench(store=store)
    work = bench.stream(streamed(says("Hi"))) if form == "stream" else bench.answer(whole(says("Hi")))
    running = asyncio.create_task(work)
    await store.reached.wait()
    bench.engine.cut_off()
    await settle()
    assert not running.done()
    await store.commit()
    made = await running
    response = made if form == "json" else judged(made)
    assert response["status"] == "completed"
    assert await bench.stored(response["id"]) is not None


@pytest.mark.parametrize("form", ["stream", "json"])
async def test_a_response_that_begins_afterwards_is_refused_before_the_upstream_is_asked(form):
    bench = Bench()
    plan = await bench.plan(stream=form == "stream")
    assert bench.engine.cut_off() == 0

    async def begin():
        if form == "json":
            return await bench.engine.answer(plan)
        return await bench.engine.stream(plan, Listener())

    with pytest.raises(Unavailable) as refused:
        await begin()
    assert_overloaded(refused.value)
    assert bench.upstream.calls == []
    with pytest.raises(Unavailable), bench.engine.admit("local"):
        raise AssertionError("admitted")


async def test_runs_that_have_ended_are_forgotten():
    bench = Bench()
    await bench.answer(whole(says("Hi")))
    await bench.stream(streamed(says("Hi")))
    _, task = await bench.start(Reply(accept=asyncio.Event()))
    task.cancel()
    await asyncio.wait([task])
    await settle()
    assert bench.engine.cut_off() == 0


async def test_a_deadline_and_the_end_of_the_drain_may_come_together():
    bench = Bench(deadline=0.05)
    listener, task = await bench.start(Reply([*BEGUN, asyncio.Event()]))
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, bench.engine.cut_off)
    told = await listener.take_all()
    await task
    assert types(told)[-1] == "failed"
    assert json.dumps(told[-1]["response"]["error"]["code"]) in ('"server_is_overloaded"', '"server_error"')
