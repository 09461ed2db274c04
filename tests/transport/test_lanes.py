"""Creates of one WebSocket: their lanes, their errors, and what each costs the others."""

import asyncio
import json
import logging

import pytest
from engine.doubles import Bench, Reply, refusal, settle, streamed, types
from harness.engine import says
from transport.client_socket import BEGUN, converse, expect_error, expect_sound, held, until

from gateway.protocol.errors import StorageUnavailable
from gateway.storage.memory import MemoryStore

# ---------------------------------------------------------------- lanes


@pytest.mark.parametrize("lane", [None, "a", "a" * 256])
async def test_a_create_is_answered_on_its_lane(lane):
    async with converse() as talk:
        talk.create(streamed(says("Hi.")), lane=lane)
        expect_sound(await talk.ended(lane), lane, "Hi.")
        assert all(("stream_id" in frame) is (lane is not None) for frame in talk.socket.frames)
        assert talk.bench.sample("responses_total", transport="websocket", status="completed") == 1


async def test_creates_of_a_lane_follow_each_other():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate), lane="a", input="1")
        talk.create(streamed(says("2")), lane="a", input="2")
        talk.create(streamed(says("3")), lane="a", input="3")
        await talk.begun("a")
        await settle()
        assert (len(talk.bench.upstream.calls), talk.load()) == (1, (1, 2))
        gate.set()
        expect_sound(await talk.ended("a", 3), "a", "3")
        for number, text in ((1, "Hello there"), (2, "2")):
            expect_sound(await talk.ended("a", number), "a", text)
        asked = [body["input"][-1]["content"][0]["text"] for body in talk.bench.upstream.bodies]
        assert asked == ["1", "2", "3"]
        assert talk.load() == (0, 0)


async def test_the_next_begins_after_the_commit_of_the_one_before():
    class Noting(MemoryStore):
        calls = None

        async def append(self, response):
            await asyncio.sleep(0)
            await super().append(response)
            self.calls = len(bench.upstream.calls)

    store = Noting()
    bench = Bench(store=store)
    async with converse(bench) as talk:
        for number in ("1", "2"):
            talk.create(streamed(says(number)))
            talk.create(streamed(says(number)), lane="other")
        await talk.ended(None, 1)
        assert store.calls == 2
        await talk.ended(None, 2)
        await talk.ended("other", 2)


async def test_lanes_run_side_by_side():
    gates = {lane: asyncio.Event() for lane in (None, "a", "b")}
    async with converse() as talk:
        for lane, gate in gates.items():
            talk.create(held(gate), lane=lane)
        for lane in gates:
            await talk.begun(lane)
        await until(lambda: all(len(talk.on(lane)) == len(BEGUN) for lane in gates))
        assert talk.load() == (3, 0)
        for lane in ("b", None, "a"):
            gates[lane].set()
            expect_sound(await talk.ended(lane), lane, "Hello there")


async def test_no_more_run_than_may():
    gate = asyncio.Event()
    async with converse(max_active=2) as talk:
        for lane in "abcd":
            talk.create(held(gate), lane=lane)
        await talk.begun("b")
        await settle()
        assert (talk.load(), len(talk.bench.upstream.calls)) == ((2, 2), 2)
        assert talk.bench.sample("websocket_creates_waiting") == 2
        gate.set()
        for lane in "abcd":
            expect_sound(await talk.ended(lane), lane)


async def test_a_parent_is_looked_up_when_its_create_starts():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate), store=False, input="q1")
        parent = await talk.begun()
        talk.create(streamed(says("re q2")), store=False, input="q2", previous_response_id=parent)
        await settle()
        gate.set()
        expect_sound(await talk.ended(None, 2), None, "re q2")
        assert len(talk.bench.upstream.bodies[-1]["input"]) == 3


async def test_a_warm_up_is_two_frames():
    async with converse() as talk:
        talk.create(lane="a", generate=False)
        frames = await talk.ended("a")
        assert types(frames) == ["created", "completed"]
        assert [(frame["sequence_number"], frame["stream_id"]) for frame in frames] == [(0, "a"), (1, "a")]


async def test_a_create_without_a_model_has_that_of_the_connection():
    async with converse(default_model="house") as talk:
        talk.create(streamed(says("Hi.")), model=None)
        talk.create(streamed(says("Hi.")), model="own")
        await talk.ended(None, 2)
        assert [body["model"] for body in talk.bench.upstream.bodies] == ["house", "own"]


async def test_listed_headers_of_the_upgrade_go_to_the_upstream():
    bench = Bench(upstream={"forward_headers": ["X-Team"]})
    async with converse(bench, headers=[(b"x-team", b"red"), (b"authorization", b"Bearer secret")]) as talk:
        talk.create(streamed(says("Hi.")))
        talk.create(streamed(says("Hi.")))
        await talk.ended(None, 2)
        sent = [{name.lower(): value for name, value in call.headers.items()} for call in bench.upstream.calls]
        assert [headers["x-team"] for headers in sent] == ["red", "red"]
        assert all("authorization" not in headers for headers in sent)


async def test_tools_that_cannot_run_are_noted(caplog):
    caplog.set_level(logging.INFO)
    async with converse() as talk:
        talk.create(streamed(says("Hi.")), tools=[{"type": "code_interpreter", "container": {"type": "auto"}}])
        expect_sound(await talk.ended())
        assert talk.bench.sample("unsupported_tools_total") == 1
    (record,) = [record for record in caplog.records if "left out" in record.message]
    assert record.tools == "code_interpreter"


# ---------------------------------------------------------------- what is refused before it is a create


@pytest.mark.parametrize(
    ("message", "code", "members"),
    [
        ("{", "invalid_json", {}),
        (b"{}", "unsupported_message_type", {}),
        ({"type": "response.cancel", "stream_id": "a", "event_id": "e"}, "unsupported_event", "both"),
        ({"type": "response.create", "stream_id": "a b", "event_id": "e"}, "invalid_stream_id", {"event_id": "e"}),
    ],
)
async def test_what_cannot_be_routed_is_answered_and_evicts_nothing(message, code, members):
    members = {"stream_id": "a", "event_id": "e"} if members == "both" else members
    async with converse() as talk:
        parent = await talk.told(streamed(says("Hi.")), store=False)
        talk.socket.say(message)
        await until(lambda: talk.socket.frames[-1]["type"] == "error")
        expect_error(talk.socket.frames[-1:], 400, code, **members)
        assert talk.bench.sample("websocket_errors_total", code=code) == 1
        (error,) = talk.bench.metrics.last_errors.list()
        assert (error.route, error.status, error.code) == ("websocket", 400, code)
        await talk.told(streamed(says("Hi.")), store=False, previous_response_id=parent)


async def test_what_asks_for_nothing_gets_nothing():
    async with converse() as talk:
        talk.socket.say({"type": "response.processed", "response_id": "resp_1"})
        await talk.told(streamed(says("Hi.")))
        assert talk.socket.frames[0]["type"] == "response.created"


@pytest.mark.parametrize(
    ("bounds", "status", "code"),
    [
        ({"max_outstanding": 2}, 429, "rate_limit_exceeded"),
        ({"max_outstanding_bytes": 700}, 429, "rate_limit_exceeded"),
        ({"max_named_lanes": 1}, 400, "websocket_stream_limit_reached"),
    ],
)
async def test_what_is_too_much_is_refused_and_the_rest_goes_on(bounds, status, code):
    gate = asyncio.Event()
    async with converse(**bounds) as talk:
        parent = await talk.told(streamed(says("Hi.")), store=False)
        named = {"store": False, "previous_response_id": parent, "input": "x" * 150}
        talk.create(held(gate), lane="a", store=False, input="x" * 150)
        talk.create(streamed(says("Hi.")), lane="a", store=False, input="x" * 150)
        talk.create(lane="b", event_id="e", **named)
        error = expect_error(await talk.ended("b"), status, code, stream_id="b", event_id="e")
        assert (error["param"] == "stream_id") is (status == 400)
        gate.set()
        expect_sound(await talk.ended("a", 2), "a")
        assert len(talk.bench.upstream.calls) == 3
        await talk.told(streamed(says("Hi.")), **named)


async def test_bytes_are_counted_as_they_were_sent():
    async with converse() as talk:
        text = json.dumps({"type": "response.create", "model": "m", "input": "\u00e9" * 10}, ensure_ascii=False)
        talk.bench.upstream.replies.append(held())
        talk.socket.say(text)
        await talk.begun()
        assert talk.bench.metrics.socket_load.outstanding_bytes.now == len(text.encode()) > len(text)
        assert talk.bench.sample("websocket_message_bytes_sum") == len(text.encode())


# ---------------------------------------------------------------- creates that fail


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"temperature": 9}, 400, "invalid_value", "temperature"),
        ({"background": True}, 400, "unsupported_parameter", "background"),
        ({"model": None}, 400, "missing_required_parameter", "model"),
        ({"previous_response_id": "resp_9"}, 400, "previous_response_not_found", "previous_response_id"),
        ({"previous_response_id": 9}, 400, "invalid_type", "previous_response_id"),
    ],
)
async def test_a_wrong_create_is_told_on_its_lane(fields, status, code, param):
    async with converse() as talk:
        talk.create(lane="a", event_id="e", **fields)
        error = expect_error(await talk.ended("a"), status, code, stream_id="a", event_id="e")
        assert error["param"] == param
        await talk.told(streamed(says("Hi.")), lane="a")


async def test_an_upstream_that_refuses_is_quoted():
    async with converse() as talk:
        parent = await talk.told(streamed(says("Hi.")), store=False)
        talk.create(Reply(error=refusal(429, "busy")), event_id="e", store=False, previous_response_id=parent)
        error = expect_error(await talk.ended(None, 2), 429, "busy", event_id="e")
        assert (error["message"], error["type"]) == ("The engine is busy.", "rate_limit_error")
        assert talk.bench.sample("websocket_errors_total", code="upstream") == 1
        talk.create(store=False, previous_response_id=parent)
        expect_error(await talk.ended(None, 3), 400, "previous_response_not_found")


async def test_a_response_that_fails_in_the_middle_fails_alone():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(Reply(BEGUN), lane="a")
        talk.create(held(gate), lane="b")
        talk.create(streamed(says("Hi.")), lane="a")
        await talk.begun("b")
        failed = await talk.ended("a")
        expect_sound(failed, "a")
        assert failed[-1]["type"] == "response.failed"
        expect_sound(await talk.ended("a", 2), "a", "Hi.")
        gate.set()
        expect_sound(await talk.ended("b"), "b", "Hello there")


async def test_a_fault_of_ours_fails_its_create_alone(caplog):
    class Torn(MemoryStore):
        async def history(self, principal, response_id):
            raise RuntimeError("torn")

    gate = asyncio.Event()
    async with converse(Bench(store=Torn())) as talk:
        talk.create(held(gate), lane="b")
        talk.create(lane="a", event_id="e", previous_response_id="resp_1")
        error = expect_error(await talk.ended("a"), 500, "server_error", stream_id="a", event_id="e")
        assert "torn" not in error["message"]
        await talk.told(streamed(says("Hi.")), lane="a")
        gate.set()
        expect_sound(await talk.ended("b"), "b")
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("torn",)]


async def test_a_database_that_is_down_refuses_what_needs_it():
    class Down(MemoryStore):
        async def verify(self):
            raise StorageUnavailable("Down.")

    async with converse(Bench(store=Down())) as talk:
        talk.create()
        expect_error(await talk.ended(), 503, "server_is_overloaded")
        await talk.told(streamed(says("Hi.")), store=False)


async def test_a_full_gateway_refuses_and_nothing_is_evicted():
    gate = asyncio.Event()
    async with converse(Bench(server={"max_concurrent_requests": 1})) as talk:
        parent = await talk.told(streamed(says("Hi.")), store=False)
        talk.create(held(gate), lane="a")
        await talk.begun("a")
        talk.create(store=False, previous_response_id=parent)
        expect_error(await talk.ended(None, 2), 503, "server_is_overloaded")
        gate.set()
        await talk.ended("a")
        await talk.told(streamed(says("Hi.")), store=False, previous_response_id=parent)


async def test_the_smallest_failure_is_an_error_frame_with_its_number():
    async with converse() as talk:
        await talk.told(streamed(says("Hi.")), lane="a")
        created = json.dumps(talk.socket.frames[0], ensure_ascii=False, separators=(",", ":"))
        limit = len(created.encode())
    async with converse(Bench(responses={"max_stream_event_bytes": limit})) as talk:
        talk.create(streamed(says("Hi.")), lane="a", event_id="e")
        told = await talk.ended("a")
    error = told[-1].pop("error")
    assert told[-1] == {"type": "error", "status": 502, "sequence_number": len(told) - 1, "stream_id": "a"}
    assert (error["code"], error["type"]) == ("response_resource_limit_exceeded", "upstream_error")
    assert "max_stream_event_bytes" in error["message"]


async def test_a_create_too_large_to_be_echoed_is_refused_before_the_upstream_is_asked():
    async with converse(Bench(responses={"max_stream_event_bytes": 2048})) as talk:
        talk.create(lane="a", event_id="e", instructions="x" * 3000)
        error = expect_error(
            await talk.ended("a"), 502, "response_resource_limit_exceeded", stream_id="a", event_id="e"
        )
        assert (error["resource"], error["limit"], error["param"]) == ("max_stream_event_bytes", 2048, None)
        assert talk.bench.upstream.calls == []
