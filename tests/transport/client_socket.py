"""A WebSocket as the server lends it to the app, with a client that does what a test says."""

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import count

from conformance.rules import check_events
from conformance.wire import WireEvent
from engine.doubles import LONG, Bench, Reply, settle, text_of
from harness.engine import says
from msgspec import structs
from transport.asgi import timers

from gateway.config.schema import WebSocketConfig
from gateway.transport.lanes import LaneConnection

TERMINALS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})


BEGUN = says("Hello there", chunk=5).frames()[:5]
REST = says("Hello there", chunk=5).frames()[5:]


def held(gate=None):
    """A reply that stops in the middle until the event is set."""
    return Reply([*BEGUN, gate or asyncio.Event(), *REST])


def expect_sound(frames, lane=None, text=None):
    """Frames of one response from the first to the last, by the rules, all on its lane."""
    assert {frame.get("stream_id") for frame in frames} == {lane}
    assert check_events([WireEvent(number, frame) for number, frame in enumerate(frames)]) == []
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    if text is not None:
        assert text_of(frames[-1]["response"]) == text


def expect_error(frames, status, code, **members):
    (frame,) = frames
    told = {key: value for key, value in frame.items() if key != "error"}
    assert told == {"type": "error", "status": status, **members}
    assert frame["error"]["code"] == code
    assert frame["error"]["message"]
    return frame["error"]


class ScriptedSocket:
    """Both ends of one connection.

    Attributes:
        frames: what the client got, decoded.
        close_code: why it ended, None before.
        left_first: whether it was the client who ended it.
        reason: of the Close.
    """

    def __init__(self):
        self.frames = []
        self.close_code = None
        self.left_first = True
        self.reason = None
        self.write_paused = False
        self.closed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._messages = asyncio.Queue()
        self._left = None
        self._ready = None

    # ------------------------------------------------------------ for the gateway

    async def read(self, take=None):
        return await self._messages.get()

    def write(self, payloads):
        assert not self.write_paused, "whoever writes holds back"
        if self.close_code is not None:
            return False
        self.frames.extend(json.loads(payload) for payload in payloads)
        self._arrived.set()
        return True

    async def close(self, code, reason=""):
        if self.close_code is None:
            self.close_code, self.reason, self.left_first = code, reason, False
            self._messages.put_nowait(None)
        self.closed.set()
        self._arrived.set()

    def watch(self, left, ready=None):
        self._left, self._ready = left, ready
        if self.close_code is not None and left is not None:
            left()

    # ------------------------------------------------------------ for the test

    async def arrival(self):
        """Wait for the next frames, or the end of the connection."""
        assert self.close_code is None, f"nothing comes any more: {self.close_code} {self.reason}"
        self._arrived.clear()
        await self._arrived.wait()

    def say(self, message):
        """Send a message: text, bytes, or an object as JSON."""
        self._messages.put_nowait(message if isinstance(message, str | bytes) else json.dumps(message))

    def leave(self, code=1006):
        """End the connection from the client's side; the reader learns it before those who write."""
        self.close_code = code
        self.write_paused = False
        self._messages.put_nowait(None)
        left, self._left = self._left, None
        if left is not None:
            left()

    def pause(self):
        """Take nothing any more."""
        self.write_paused = True

    def resume(self):
        """Take everything again."""
        self.write_paused = False
        self._ready()


class Conversation:
    """One connection on an engine, and its client.

    Attributes:
        task: serves it.
    """

    def __init__(self, bench, config, default_model, headers, check_caller):
        self.bench = bench
        self.socket = ScriptedSocket()
        self.connection = LaneConnection(
            self.socket,
            bench.engine,
            config,
            bench.metrics,
            bench.tracing,
            principal="local",
            check_caller=check_caller,
            headers=headers,
            default_model=default_model,
        )
        self.task = asyncio.create_task(self.connection.serve())
        self._taken = 0

    def create(self, *replies, lane=None, **fields):
        """Send a create; the server plays `replies` with those of creates that are made before."""
        self.bench.upstream.replies.extend(replies)
        named = {} if lane is None else {"stream_id": lane}
        self.socket.say({"type": "response.create", "model": "m", "input": "hi", **named, **fields})

    def on(self, lane):
        """What has come on a lane so far."""
        return [frame for frame in self.socket.frames if frame.get("stream_id") == lane]

    async def ended(self, lane=None, count=1):
        """Wait until so many creates of a lane have ended; returns the frames of the last."""
        await until(lambda: sum(frame["type"] in TERMINALS for frame in self.on(lane)) >= count)
        runs = [[]]
        for frame in self.on(lane):
            runs[-1].append(frame)
            if frame["type"] in TERMINALS:
                runs.append([])
        return runs[count - 1]

    async def told(self, *replies, lane=None, **fields):
        """Have one create end as completed; returns the id of its response."""
        before = sum(frame["type"] in TERMINALS for frame in self.on(lane))
        self.create(*replies, lane=lane, **fields)
        last = (await self.ended(lane, before + 1))[-1]
        assert last["type"] == "response.completed", last
        return last["response"]["id"]

    async def begun(self, lane=None):
        """Wait until the events of a lane have begun; returns the id of the response."""
        await until(lambda: self.on(lane))
        return self.on(lane)[0]["response"]["id"]

    async def closed(self):
        """Wait until the gateway has closed; returns code and reason."""
        await asyncio.wait_for(self.socket.closed.wait(), LONG)
        await asyncio.wait_for(self.task, LONG)
        return self.socket.close_code, self.socket.reason

    def load(self):
        """Creates that run and wait."""
        load = self.bench.metrics.socket_load
        return load.running.now, load.waiting.now


async def until(condition):
    """Wait for what needs some turns of the loop, or a timer."""
    async with asyncio.timeout(LONG):
        for turn in count():
            if condition():
                return
            await asyncio.sleep(0 if turn < 500 else 0.005)


def configure(bench, **websocket):
    """The configuration of the bench with these keys of WebSockets; the engine has it too."""
    config = structs.replace(bench.config, websocket=WebSocketConfig(**websocket))
    bench.engine.reconfigure(config)
    return config


def assert_at_rest(bench):
    """Nothing of any connection is left: no task, no timer, no number."""
    load = bench.metrics.socket_load
    levels = (load.connections, load.running, load.waiting, load.outstanding_bytes, load.session_bytes)
    assert [level.now for level in levels] == [0, 0, 0, 0, 0]
    assert (bench.metrics.delivery_load.batches.now, bench.metrics.delivery_load.bytes.now) == (0, 0)
    assert (bench.engine.active, bench.engine.runs) == (0, {})
    assert timers() == []


@asynccontextmanager
async def converse(bench=None, *, default_model=None, headers=(), check_caller=lambda: None, **websocket):
    """Serve one client within these bounds; nothing outlives the test."""
    bench = bench or Bench()
    others = asyncio.all_tasks()
    talk = Conversation(bench, configure(bench, **websocket), default_model, headers, check_caller)
    try:
        yield talk
    finally:
        if talk.socket.close_code is None:
            talk.socket.leave()
        await asyncio.wait_for(talk.task, LONG)
        await settle(3)
    assert asyncio.all_tasks() == others
    assert_at_rest(bench)
