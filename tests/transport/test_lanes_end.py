"""The end of a WebSocket: a client that leaves or does not read, a drain, a lifetime, silence."""

import asyncio

import pytest
from engine.doubles import Bench, HeldStore, Reply, settle, streamed, types
from harness.engine import says
from transport.client_socket import BEGUN, converse, expect_error, expect_sound, held, until

from gateway.storage.memory import MemoryStore


class HeldVerification(MemoryStore):
    """A store that says only when told to that it takes writes."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()
        self.proceed = asyncio.Event()

    async def verify(self):
        self.asked.set()
        await self.proceed.wait()


# ---------------------------------------------------------------- a client that leaves


async def test_a_client_that_leaves_ends_what_runs_and_what_waits():
    async with converse(max_active=2) as talk:
        replies = [held(), held()]
        for lane, reply in zip("ab", replies, strict=True):
            talk.create(reply, lane=lane)
        talk.create(lane="a")
        talk.create(lane="c")
        await talk.begun("b")
        talk.socket.leave()
        await talk.task
        assert [reply.closed for reply in replies] == [1, 1]
        assert len(talk.bench.upstream.calls) == 2
        assert talk.bench.store._responses == {}
        assert talk.bench.sample("websocket_creates_running") == 0
        assert talk.bench.sample("client_disconnects_total") == 1


async def test_a_client_that_leaves_at_once_starts_no_inference():
    async with converse() as talk:
        talk.create()
        talk.create(lane="a")
        talk.socket.leave()
        await talk.task
        assert talk.bench.upstream.calls == []


async def test_a_create_that_is_being_prepared_ends_with_its_client():
    store = HeldVerification()
    async with converse(Bench(store=store)) as talk:
        talk.create()
        await store.asked.wait()
        talk.socket.leave()
        await talk.task
        assert talk.bench.upstream.calls == []


async def test_what_is_being_committed_is_stored_though_the_client_has_left():
    store = HeldStore()
    async with converse(Bench(store=store)) as talk:
        talk.create(streamed(says("Hi.")))
        await store.reached.wait()
        talk.socket.leave()
        await talk.task
        await store.commit()
        assert len(store._responses) == 1
        assert talk.bench.sample("websocket_checkpoints_total", outcome="kept") is None


async def test_a_client_that_leaves_while_much_waits_for_it_frees_everything():
    async with converse(delivery_max_batches=1) as talk:
        talk.socket.pause()
        for lane in "abc":
            talk.create(streamed(says("Hello there", chunk=1)), lane=lane)
        await until(lambda: talk.load() == (3, 0))
        await settle(100)
        assert talk.bench.metrics.delivery_load.batches.now == 1
        talk.socket.leave()
        await talk.task
        assert talk.socket.frames == []


# ---------------------------------------------------------------- a client that does not read


@pytest.mark.parametrize("bounds", [{"delivery_max_batches": 2}, {"delivery_max_bytes": 2000}], ids=str)
async def test_producers_wait_for_a_slow_client_and_lose_nothing(bounds):
    texts = {lane: lane * 60 for lane in "abc"}
    async with converse(**bounds) as talk:
        talk.socket.pause()
        replies = {lane: streamed(says(text, chunk=1)) for lane, text in texts.items()}
        for lane, reply in replies.items():
            talk.create(reply, lane=lane)
        await settle(300)
        unread = [len(reply._waiting) for reply in replies.values()]
        assert min(unread) > 50
        assert talk.bench.metrics.delivery_load.batches.now <= 3
        await settle(300)
        assert [len(reply._waiting) for reply in replies.values()] == unread
        assert talk.socket.frames == []
        talk.socket.resume()
        for lane, text in texts.items():
            expect_sound(await talk.ended(lane), lane, text)


async def test_a_lane_is_free_once_its_terminal_waits_for_the_client():
    async with converse() as talk:
        talk.socket.pause()
        talk.create(streamed(says("1")))
        talk.create(streamed(says("2")))
        await until(lambda: len(talk.bench.store._responses) == 2)
        await settle()
        assert (talk.socket.frames, talk.load()) == ([], (0, 0))
        talk.socket.resume()
        expect_sound(await talk.ended(None, 1), None, "1")
        expect_sound(await talk.ended(None, 2), None, "2")


# ---------------------------------------------------------------- a drain


async def test_a_drain_closes_a_connection_on_which_nothing_runs():
    async with converse() as talk:
        await talk.told(streamed(says("Hi.")))
        talk.connection.begin_drain()
        talk.connection.begin_drain()
        assert await talk.closed() == (1001, "The gateway is shutting down.")
        assert talk.socket.frames[-1]["type"] == "response.completed"


async def test_a_drain_waits_for_what_runs_and_refuses_what_waits():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate), lane="a")
        await talk.begun("a")
        talk.create(lane="a", event_id="e1")
        talk.create(lane="a", event_id="e2")
        await until(lambda: talk.load() == (1, 2))
        talk.connection.begin_drain()
        assert talk.load() == (1, 2)
        talk.create(lane="b", event_id="e3")
        await until(lambda: talk.on("b"))
        assert talk.socket.close_code is None
        gate.set()
        assert (await talk.closed())[0] == 1001
        refused = [frame for frame in talk.socket.frames if frame["type"] == "error"]
        assert [frame["event_id"] for frame in refused] == ["e3", "e1", "e2"]
        for frame in refused:
            expect_error([frame], 503, "server_is_overloaded", stream_id=frame["stream_id"], event_id=frame["event_id"])
        assert talk.on("a")[-2:] == refused[1:], "each is told in its turn"
        expect_sound(talk.on("a")[:-2], "a", "Hello there")
        assert len(talk.bench.upstream.calls) == 1


async def test_a_drain_closes_after_the_client_has_read_all():
    async with converse() as talk:
        talk.socket.pause()
        talk.create(streamed(says("Hi.")))
        await until(lambda: talk.bench.store._responses)
        talk.connection.begin_drain()
        await settle()
        assert talk.socket.close_code is None
        talk.socket.resume()
        assert (await talk.closed())[0] == 1001
        expect_sound(talk.socket.frames, None, "Hi.")


async def test_a_drain_frees_what_an_engine_cuts_off():
    async with converse() as talk:
        talk.create(held())
        await until(lambda: len(talk.socket.frames) == len(BEGUN))
        talk.connection.begin_drain()
        talk.bench.engine.cut_off()
        assert (await talk.closed())[0] == 1001
        assert talk.socket.frames[-1]["response"]["error"]["code"] == "server_is_overloaded"


# ---------------------------------------------------------------- a lifetime

SHORT = 0.05


async def test_a_connection_ends_with_its_lifetime():
    async with converse(lifetime_seconds=SHORT) as talk:
        assert await talk.closed() == (1000, "The connection's lifetime is over.")
        error = expect_error(talk.socket.frames, 400, "websocket_connection_limit_reached")
        assert error["message"].startswith("Responses websocket connection limit reached (0.05 seconds).")
        assert talk.bench.sample("websocket_errors_total", code="websocket_connection_limit_reached") == 1


async def test_what_runs_at_the_end_of_the_lifetime_may_end():
    gate = asyncio.Event()
    async with converse(lifetime_seconds=SHORT) as talk:
        talk.create(held(gate), lane="a")
        talk.create(lane="a", event_id="e1")
        await talk.begun("a")
        await asyncio.sleep(2 * SHORT)
        talk.create(lane="a", event_id="e2")
        await settle()
        talk.connection.begin_drain()
        gate.set()
        assert (await talk.closed())[0] == 1000
        codes = [frame["error"]["code"] for frame in talk.socket.frames if frame["type"] == "error"]
        assert codes == ["websocket_connection_limit_reached"] * 3
        expect_error(talk.socket.frames[-1:], 400, codes[0])
        assert [frame.get("event_id") for frame in talk.on("a")[-2:]] == ["e1", "e2"]
        expect_sound(talk.on("a")[:-2], "a", "Hello there")


@pytest.mark.parametrize("grace", [0, SHORT])
async def test_what_runs_after_the_grace_is_cut_off(grace):
    reply = held()
    async with converse(lifetime_seconds=SHORT, lifetime_grace_seconds=grace) as talk:
        talk.create(reply, lane="a")
        assert (await talk.closed())[0] == 1000
        failed = talk.on("a")
        expect_sound(failed, "a")
        assert failed[-1]["response"]["error"]["code"] == "websocket_connection_limit_reached"
        expect_error(talk.socket.frames[-1:], 400, "websocket_connection_limit_reached")
        assert (reply.closed, len(talk.bench.upstream.calls)) == (1, 1)


async def test_what_is_still_being_prepared_then_is_refused():
    store = HeldVerification()
    async with converse(Bench(store=store), lifetime_seconds=SHORT, lifetime_grace_seconds=0) as talk:
        talk.create(lane="a", event_id="e")
        assert (await talk.closed())[0] == 1000
        expect_error(talk.on("a"), 400, "websocket_connection_limit_reached", stream_id="a", event_id="e")
        assert talk.bench.upstream.calls == []


async def test_what_waits_for_its_upstream_then_is_refused():
    reply = Reply(accept=asyncio.Event())
    async with converse(lifetime_seconds=SHORT, lifetime_grace_seconds=0) as talk:
        talk.create(reply, lane="a")
        assert (await talk.closed())[0] == 1000
        expect_error(talk.on("a"), 400, "websocket_connection_limit_reached", stream_id="a")


# ---------------------------------------------------------------- silence


async def test_a_connection_without_a_message_is_closed():
    async with converse(handshake_timeout_seconds=SHORT) as talk:
        assert await talk.closed() == (1000, "idle")
        assert talk.socket.frames == []


async def test_a_connection_on_which_nothing_happens_is_closed():
    async with converse(idle_timeout_seconds=SHORT) as talk:
        talk.create(streamed(says("Hi.")))
        assert await talk.closed() == (1000, "idle")
        expect_sound(talk.socket.frames)


async def test_the_first_message_ends_the_handshake_whatever_it_says():
    async with converse(handshake_timeout_seconds=SHORT, idle_timeout_seconds=0) as talk:
        talk.socket.say("{")
        await until(lambda: talk.socket.frames)
        await asyncio.sleep(2 * SHORT)
        assert (talk.socket.close_code, types(talk.socket.frames)) == (None, ["error"])


async def test_what_runs_is_not_idle():
    gate = asyncio.Event()
    async with converse(idle_timeout_seconds=SHORT) as talk:
        talk.create(held(gate))
        await talk.begun()
        await asyncio.sleep(3 * SHORT)
        assert talk.socket.close_code is None
        gate.set()
        expect_sound(await talk.ended())
        ended_at = asyncio.get_running_loop().time()
        assert await talk.closed() == (1000, "idle")
        assert asyncio.get_running_loop().time() - ended_at > SHORT / 2
