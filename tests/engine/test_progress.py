"""A sign of life for clients that take silence for the end."""

import asyncio
import json

from engine.doubles import Bench, Listener, Reply, settle, streamed, types
from harness.engine import Answer, call, says
from harness.tools import MCP, ScriptedTools, tool, when

from gateway.engine.plan import Caller
from gateway.engine.progress import Progress

SHORT = 0.02
FRAMES = says("Hello there", chunk=2).frames()


class Prompt(Reply):
    """Bytes that have arrived are there in the same turn of the loop."""

    def take(self):
        self._arrived = True
        return super().take()


async def begin(bench, reply, progress_seconds=SHORT):
    bench.upstream.replies.append(reply)
    request, route = bench.engine.read(b'{"model": "m", "input": "hi", "stream": true}')
    caller = Caller(principal="local", transport="websocket", headers={}, progress_seconds=progress_seconds)
    listener = Listener()
    plan = await bench.engine.prepare(caller, request, route)
    listener.task = asyncio.create_task(bench.engine.stream(plan, listener))
    return listener


def numbers(told):
    return [event["sequence_number"] for event in told]


async def test_a_response_that_falls_silent_is_in_progress_again_and_again():
    more = asyncio.Event()
    listener = await begin(Bench(), Prompt([b"".join(FRAMES[:5]), more, b"".join(FRAMES[5:])]))
    await asyncio.sleep(5 * SHORT)
    more.set()
    told = await listener.take_all()
    assert types(told).count("in_progress") >= 3
    assert numbers(told) == list(range(len(told)))


async def test_a_slow_tool_is_no_silence():
    free = asyncio.Event()
    bench = Bench(tools=ScriptedTools({"look": when(free, "x")}, known=[tool("look")]))
    called = Answer([call("mcp__s__look", "{}", "call_1")])
    bench.upstream.replies.extend([streamed(called), streamed(says("Hello there"))])
    body = {"model": "m", "input": "hi", "stream": True, "tools": [MCP]}
    request, route = bench.engine.read(json.dumps(body).encode())
    caller = Caller(principal="local", transport="websocket", headers={}, progress_seconds=SHORT)
    listener = Listener()
    plan = await bench.engine.prepare(caller, request, route)
    listener.task = asyncio.create_task(bench.engine.stream(plan, listener))
    await asyncio.sleep(5 * SHORT)
    free.set()
    told = await listener.take_all()
    assert types(told).count("in_progress") >= 3
    assert numbers(told) == list(range(len(told)))
    assert told[-1]["response"]["output"][0]["output"] == "x"


async def test_nothing_is_repeated_before_the_client_was_told_of_the_response():
    accept = asyncio.Event()
    listener = await begin(Bench(), Prompt([b"".join(FRAMES)], accept=accept))
    await asyncio.sleep(5 * SHORT)
    assert not listener.opened
    accept.set()
    assert types(await listener.take_all()).count("in_progress") == 1


async def test_a_client_that_must_catch_up_gets_one_sign_of_life_at_most():
    more = asyncio.Event()
    listener = await begin(Bench(), Prompt([b"".join(FRAMES[:5]), more, b"".join(FRAMES[5:])]))
    await settle()
    listener.reads.clear()
    await asyncio.sleep(5 * SHORT)
    more.set()
    listener.reads.set()
    told = await listener.take_all()
    assert types(told).count("in_progress") == 2
    assert numbers(told) == list(range(len(told)))


async def test_what_arrives_in_the_same_moment_keeps_its_order():
    bench, more = Bench(), asyncio.Event()
    listener = await begin(bench, Prompt([b"".join(FRAMES[:5]), more, FRAMES[5], b"".join(FRAMES[6:])]), 15)
    await settle()
    (run,) = bench.engine.runs.values()
    more.set()
    run._telling.tell_progress()
    told = await listener.take_all()
    assert types(told).count("in_progress") == 2
    assert numbers(told) == list(range(len(told)))


async def test_an_event_that_does_not_fit_is_left_out():
    bench = Bench()
    listener = await begin(bench, Prompt([b"".join(FRAMES[:5]), asyncio.Event()]), 15)
    await settle()
    (run,) = bench.engine.runs.values()
    listener.take()
    run._outbox._longest = run._outbox._largest = 10
    run._telling.tell_progress()
    assert listener.take() == []
    listener.task.cancel()
    await asyncio.wait([listener.task])


async def test_progress_that_is_off_sets_no_timer():
    told = []
    progress = Progress(0)
    progress.start(lambda: told.append(True))
    assert (progress.looks, progress._timer) == (False, None)
    progress.stop()
    assert told == []


async def test_a_response_that_was_begun_early_is_in_progress_again_too():
    accept = asyncio.Event()
    bench = Bench(server={"commit_after_seconds": 0.01})
    listener = await begin(bench, Prompt([b"".join(FRAMES)], accept=accept))
    await asyncio.sleep(8 * SHORT)
    accept.set()
    told = await listener.take_all()
    assert types(told).count("in_progress") >= 3
    assert numbers(told) == list(range(len(told)))


async def test_a_run_that_is_cut_off_while_its_client_must_catch_up_ends_as_failed():
    bench, more = Bench(deadline=10 * SHORT), asyncio.Event()
    listener = await begin(bench, Prompt([b"".join(FRAMES[:5]), more, FRAMES[5], asyncio.Event()]))
    await settle()
    listener.reads.clear()
    # A sign of life waits for the client, and the next delta behind it.
    await asyncio.sleep(3 * SHORT)
    more.set()
    await asyncio.sleep(12 * SHORT)
    listener.reads.set()
    told = await listener.take_all()
    assert types(told)[-1] == "failed"
    assert numbers(told) == list(range(len(told)))
