"""What a response leaves behind: nothing that only the garbage collector finds, for its passes stop everybody."""

import gc
import json
from collections import Counter

import pytest
from engine.doubles import Bench, Reply, streamed, whole
from harness.engine import Answer, call, says
from harness.tools import MCP, ScriptedTools, tool

from gateway.engine.plan import Caller

RESPONSES = 5


class Nowhere:
    """A channel that keeps nothing."""

    opened = False

    def write(self, batch):
        return self.opened

    async def put(self, batch):
        self.opened = True

    async def end(self, batch):
        self.opened = True


async def left_behind(make):
    """Types of what is garbage after some responses and was still there."""
    await make()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(RESPONSES):
            await make()
        gc.collect()
        return Counter(type(left).__qualname__ for left in gc.garbage if type(left).__module__.startswith("gateway."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("progress_seconds", [0, 60])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_stream_leaves_no_cycles(progress_seconds, fails):
    bench = Bench()

    async def make():
        frames = says("Hello there", chunk=2).frames()
        bench.upstream.replies.append(Reply(frames[:6]) if fails else streamed(says("Hello there", chunk=2)))
        request, route = bench.engine.read(b'{"model": "m", "input": "hi", "stream": true}')
        caller = Caller(principal="local", transport="sse", headers={}, progress_seconds=progress_seconds)
        await bench.engine.stream(await bench.engine.prepare(caller, request, route), Nowhere())

    assert await left_behind(make) == {}


async def test_a_json_answer_leaves_no_cycles():
    bench = Bench()

    async def make():
        bench.upstream.replies.append(whole(says("Hello there")))
        request, route = bench.engine.read(b'{"model": "m", "input": "hi"}')
        caller = Caller(principal="local", transport="json", headers={})
        await bench.engine.answer(await bench.engine.prepare(caller, request, route))

    assert await left_behind(make) == {}


async def test_a_response_on_a_connection_leaves_no_cycles():
    bench = Bench()
    session = bench.engine.open_session()

    async def make():
        bench.upstream.replies.append(streamed(says("Hello there", chunk=2)))
        with session.begin("a", None) as continuation:
            fields = {"model": "m", "input": "hi", "store": False}
            request, route = bench.engine.read_fields(fields, on_websocket=True)
            caller = Caller(principal="local", transport="websocket", headers={})
            plan = await bench.engine.prepare(caller, request, route, continuation)
            await bench.engine.stream(plan, Nowhere())

    assert await left_behind(make) == {}


@pytest.mark.parametrize("calls", [1, 2])
async def test_rounds_leave_no_cycles(calls):
    bench = Bench(tools=ScriptedTools(known=[tool("look")]))

    async def make():
        called = [call("mcp__s__look", "{}", f"call_{number}") for number in range(calls)]
        bench.upstream.replies.extend([streamed(Answer(called)), streamed(says("Hello there", chunk=2))])
        body = json.dumps({"model": "m", "input": "hi", "stream": True, "tools": [MCP]}).encode()
        request, route = bench.engine.read(body)
        caller = Caller(principal="local", transport="sse", headers={})
        await bench.engine.stream(await bench.engine.prepare(caller, request, route), Nowhere())
        bench.engine._tools._providers[0].calls.clear()
        bench.engine._tools._providers[0].contexts.clear()

    assert await left_behind(make) == {}


async def test_a_cycle_would_be_noticed():
    class Knot:
        pass

    Knot.__module__ = "gateway.knot"

    async def make():
        knot = Knot()
        knot.itself = knot

    assert (await left_behind(make))["test_a_cycle_would_be_noticed.<locals>.Knot"] == RESPONSES
