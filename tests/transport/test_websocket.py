"""The endpoint of WebSockets: who may connect, with which bounds, and how all of them end."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from engine.doubles import LONG, Bench, settle, streamed
from harness.engine import says
from msgspec import structs
from transport.client_socket import ScriptedSocket, assert_at_rest, configure, expect_sound, held, until

from gateway.ports import LOCAL, Identity
from gateway.protocol.errors import RateLimitExceeded, Unavailable
from gateway.transport.auth import Unauthenticated
from gateway.transport.edge import STATE_IDENTITY
from gateway.transport.socket import SOCKET_EXTENSION
from gateway.transport.websocket import WebSocketEndpoint


class Door:
    """An endpoint and its clients."""

    def __init__(self, bench, config):
        self.bench = bench
        self.config = config
        self.endpoint = WebSocketEndpoint(bench.engine, config, bench.metrics, bench.tracing, Unauthenticated())
        self.calls = {}
        self.accepted = []
        self.opening = asyncio.Event()
        self.opening.set()

    def knock(self, principal="local", query=b""):
        """Send an upgrade; returns the socket it is about."""
        socket = ScriptedSocket()
        scope = {
            "type": "websocket",
            "headers": [],
            "query_string": query,
            "state": {STATE_IDENTITY: Identity(principal=principal)},
            "extensions": {SOCKET_EXTENSION: socket},
        }
        waiting = [{"type": "websocket.connect"}]

        async def receive():
            return waiting.pop()

        async def send(message):
            assert not waiting, "the upgrade is received first"
            await self.opening.wait()
            self.accepted.append((socket, message))

        self.calls[socket] = asyncio.create_task(self.endpoint(scope, receive, send))
        return socket

    async def enter(self, principal="local", query=b""):
        """Connect, and be accepted."""
        socket = self.knock(principal, query)
        await until(lambda: any(accepted is socket for accepted, _ in self.accepted))
        return socket

    async def refusal(self, principal="local"):
        """Connect, and be refused: the error, for which nothing was accepted."""
        socket = self.knock(principal)
        call = self.calls.pop(socket)
        await asyncio.wait_for(asyncio.wait([call]), LONG)
        assert all(accepted is not socket for accepted, _ in self.accepted)
        return call.exception()

    async def leave(self, socket, code=1006):
        """Have a client go; returns once the endpoint has noticed."""
        socket.leave(code)
        await asyncio.wait_for(self.calls[socket], LONG)

    def closes(self, code, by="client"):
        return self.bench.sample("websocket_closes_total", code=str(code), by=by)


@asynccontextmanager
async def door(**websocket):
    """An endpoint within these bounds; no client outlives the test."""
    bench = Bench()
    others = asyncio.all_tasks()
    one = Door(bench, configure(bench, **websocket))
    try:
        yield one
    finally:
        for socket, call in one.calls.items():
            if socket.close_code is None:
                socket.leave()
            await asyncio.wait_for(call, LONG)
        await settle(3)
    assert asyncio.all_tasks() == others
    assert_at_rest(bench)
    assert (len(one.endpoint._connections), dict(one.endpoint._owners)) == (0, {})


def ask(socket, **fields):
    socket.say({"type": "response.create", "model": "m", "input": "hi", **fields})


async def test_an_upgrade_is_accepted_without_a_subprotocol():
    async with door() as place:
        socket = await place.enter()
        assert [message for _, message in place.accepted] == [
            {"type": "websocket.accept", "subprotocol": None, "headers": []}
        ]
        assert place.bench.sample("websocket_connections") == 1
        place.bench.upstream.replies.append(streamed(says("Hi.")))
        ask(socket)
        await until(lambda: socket.frames and socket.frames[-1]["type"] == "response.completed")
        expect_sound(socket.frames, None, "Hi.")
        await place.leave(socket)
        assert place.bench.sample("websocket_connections") == 0


@pytest.mark.parametrize(
    ("code", "counted"), [(1000, "1000"), (1001, "1001"), (1006, "1006"), (3999, "other"), (1004, "other")]
)
async def test_ends_are_counted_by_their_code(code, counted):
    async with door() as place:
        await place.leave(await place.enter(), code)
        assert place.closes(counted) == 1


@pytest.mark.parametrize(
    ("query", "model"),
    [
        (b"", None),
        (b"model=house", "house"),
        (b"a=b&model=house%2Fbig&model=other", "house/big"),
        (b"model=", None),
        (b"model", None),
        (b"model=%ff", "\ufffd"),
    ],
)
async def test_the_query_may_name_the_model_of_creates_that_name_none(query, model):
    async with door() as place:
        socket = await place.enter(query=query)
        place.bench.upstream.replies.append(streamed(says("Hi.")))
        ask(socket, model=None)
        await until(lambda: socket.frames and socket.frames[-1]["type"] in {"response.completed", "error"})
        if model is None:
            assert socket.frames[-1]["error"]["code"] == "missing_required_parameter"
        else:
            assert [body["model"] for body in place.bench.upstream.bodies] == [model]


# ---------------------------------------------------------------- room


async def test_no_more_are_open_than_may():
    async with door(max_connections=2) as place:
        first = await place.enter("a")
        await place.enter("b")
        refused = await place.refusal("c")
        assert isinstance(refused, Unavailable)
        assert (refused.status, refused.retry_after) == (503, 1.0)
        assert "2 WebSockets are open" in refused.message
        assert "max_connections)" in refused.message
        await place.leave(first)
        await place.enter("c")


async def test_no_principal_has_more_than_it_may():
    async with door(max_connections_per_principal=1) as place:
        first = await place.enter("a")
        refused = await place.refusal("a")
        assert isinstance(refused, RateLimitExceeded)
        assert "max_connections_per_principal" in refused.message
        await place.enter("b")
        await place.leave(first)
        await place.enter("a")


async def test_what_is_refused_takes_no_room():
    async with door(max_connections=1) as place:
        first = await place.enter()
        for _ in range(3):
            assert isinstance(await place.refusal(), Unavailable)
        await place.leave(first)
        await place.enter()


async def test_an_acceptance_that_fails_leaves_nothing():
    async with door(max_connections=1) as place:

        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            raise OSError("gone")

        scope = {
            "type": "websocket",
            "headers": [],
            "query_string": b"",
            "state": {STATE_IDENTITY: LOCAL},
            "extensions": {SOCKET_EXTENSION: ScriptedSocket()},
        }
        with pytest.raises(OSError, match="gone"):
            await place.endpoint(scope, receive, send)
        assert place.closes(1006) is None
        await place.enter()


# ---------------------------------------------------------------- other bounds


async def test_other_bounds_hold_for_later_connections():
    async with door() as place:
        first = await place.enter()
        place.endpoint.reconfigure(configure(place.bench, max_named_lanes=1, max_connections=2))
        second = await place.enter()
        assert isinstance(await place.refusal(), Unavailable)
        for socket in (first, second):
            for lane in "ab":
                place.bench.upstream.replies.append(streamed(says("Hi.")))
                ask(socket, stream_id=lane)
        codes = []
        for socket in (first, second):
            await until(lambda socket=socket: {frame["stream_id"] for frame in socket.frames} == {"a", "b"})
            codes.append([frame["error"]["code"] for frame in socket.frames if frame["type"] == "error"])
        assert codes == [[], ["websocket_stream_limit_reached"]]


async def test_reading_is_bounded_by_the_configuration_of_the_connection():
    async with door() as place:
        shallow = structs.replace(place.config, responses=structs.replace(place.config.responses, max_json_depth=3))
        place.endpoint.reconfigure(shallow)
        socket = await place.enter()
        ask(socket, input=[{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}])
        await until(lambda: socket.frames)
        assert socket.frames[0]["error"]["code"] == "invalid_json"


# ---------------------------------------------------------------- a drain


async def test_a_drain_closes_all_and_lets_nobody_in():
    gate = asyncio.Event()
    async with door() as place:
        idle, busy = await place.enter("a"), await place.enter("b")
        place.bench.upstream.replies.append(held(gate))
        ask(busy)
        await until(lambda: busy.frames)
        place.endpoint.begin_drain()
        refused = await place.refusal("c")
        assert isinstance(refused, Unavailable)
        assert "shutting down" in refused.message
        await asyncio.wait_for(place.calls[idle], LONG)
        assert (idle.close_code, busy.close_code) == (1001, None)
        gate.set()
        await asyncio.wait_for(place.calls[busy], LONG)
        assert (busy.close_code, busy.frames[-1]["type"]) == (1001, "response.completed")
        assert place.closes(1001, by="gateway") == 2


async def test_a_drain_reaches_a_connection_that_is_just_being_accepted():
    async with door() as place:
        place.opening.clear()
        socket = place.knock()
        await settle()
        place.endpoint.begin_drain()
        place.opening.set()
        await asyncio.wait_for(place.calls[socket], LONG)
        assert socket.close_code == 1001
