"""`response.steer` over one connection: acceptance, boundaries, successors, and what becomes of each steer."""

import asyncio
import json

import pytest
from engine.doubles import Bench, OpenSealer, Reply, refusal, settle, streamed
from engine.test_cycles import left_behind
from engine.test_rounds import ASKED, CALL, LOOK, PAYS, calls
from harness.engine import Answer, call, message, says
from harness.tools import MCP, ScriptedTools
from transport.client_socket import BEGUN, REST, converse, expect_sound, held, until

from gateway.config.schema import InjectConfig, SteerConfig
from gateway.protocol.errors import StorageUnavailable
from gateway.storage.memory import MemoryStore

F = {"type": "function", "name": "f", "parameters": {}}
ASKS = Answer([call("f", "{}", "call_1")], chunk=5)
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
ENDS = ("response.completed", "response.incomplete", "response.failed")


def steer(talk, target, text="and dogs", **members):
    talk.socket.say({"type": "response.steer", "previous_response_id": target, "input": text, **members})


def of_kind(talk, kind):
    return [frame for frame in talk.socket.frames if frame["type"] == kind]


async def answered(talk, kind, count=1):
    """Wait for the newest of so many answers of a kind."""
    await until(lambda: len(of_kind(talk, kind)) >= count)
    return of_kind(talk, kind)[count - 1]


async def failed(talk, count=1):
    frame = await answered(talk, "response.steer.failed", count)
    assert frame["error"]["type"] == "invalid_request_error"
    assert frame["error"]["message"]
    return frame


def asked(talk, number=-1):
    """The input of one inference, its texts and types in order."""
    out = []
    for item in talk.bench.upstream.bodies[number]["input"]:
        content = item.get("content")
        out.append(item["type"] if content is None else content if isinstance(content, str) else content[0]["text"])
    return out


def runs(talk):
    """Id, parent and terminal of each response, in the order of their ends."""
    return [
        (frame["response"]["id"], frame["response"]["previous_response_id"], frame["type"].removeprefix("response."))
        for frame in talk.socket.frames
        if frame["type"] in ENDS
    ]


# ---------------------------------------------------------------- from accepted to applied


@pytest.mark.agents(96)
@pytest.mark.parametrize("lane", [None, "a"])
async def test_a_steer_begins_the_next_response(lane):
    gate = asyncio.Event()
    async with converse() as talk:
        settings = {"instructions": "Be kind.", "metadata": {"a": "b"}, "temperature": 0.5, "tools": [F]}
        talk.create(held(gate), streamed(says("Dogs too.")), lane=lane, **settings)
        first = await talk.begun(lane)
        steer(talk, first)
        accepted = await answered(talk, "response.steer.accepted")
        assert accepted["steer"].keys() == {"id", "previous_response_id"}
        assert accepted["steer"]["previous_response_id"] == first
        assert accepted.get("stream_id") == lane
        gate.set()
        await talk.ended(lane, 2)
        target, successor = runs(talk)
        assert (target, successor[1:]) == ((first, None, "completed"), (first, "completed"))
        made = [frame for frame in talk.on(lane) if frame["type"] != "response.steer.accepted"]
        ends = [number for number, frame in enumerate(made) if frame["type"] in ENDS]
        numbers = [frame["sequence_number"] for frame in talk.on(lane)[: ends[0] + 2]]
        assert numbers == list(range(len(numbers))), "the acknowledgement is one of the target's events"
        expect_sound(made[ends[0] + 1 :], lane, "Dogs too.")
        response = made[-1]["response"]
        assert (response["instructions"], response["metadata"], response["temperature"]) == (
            "Be kind.",
            {"a": "b"},
            0.5,
        )
        assert response["tools"][0]["name"] == "f"
        assert asked(talk) == ["hi", "Hello there", "and dogs"]
        assert talk.load() == (0, 0)
        assert talk.bench.sample("websocket_controls_total", control="steer", outcome="accepted") == 1


@pytest.mark.agents(98)
async def test_several_steers_become_one_successor_in_their_order():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate), streamed(says("Yes.")))
        first = await talk.begun()
        steer(talk, first, "one")
        two = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "two"}]}]
        steer(talk, first, two)
        steer(talk, first, [{"role": "user", "content": "three"}])
        ids = {(await answered(talk, "response.steer.accepted", count))["steer"]["id"] for count in (1, 2, 3)}
        assert len(ids) == 3
        gate.set()
        await talk.ended(None, 2)
        assert len(runs(talk)) == 2
        assert asked(talk)[2:] == ["one", "two", "three"]


@pytest.mark.agents(97)
async def test_a_steer_ends_the_rounds_of_the_gateways_tools():
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    gate = asyncio.Event()
    frames = calls(CALL).frames()
    async with converse(bench) as talk:
        talk.create(Reply([*frames[:-1], gate, frames[-1]]), streamed(says("Dogs.")), tools=[MCP])
        first = await talk.begun()
        await answered(talk, "response.output_item.added")
        steer(talk, first)
        await answered(talk, "response.steer.accepted")
        gate.set()
        await talk.ended(None, 2)
        assert runs(talk)[0] == (first, None, "incomplete")
        ended = next(frame for frame in talk.socket.frames if frame["type"] == "response.incomplete")["response"]
        assert ended["incomplete_details"] == {"reason": "steered"}
        assert [(item["type"], item["output"]) for item in ended["output"]] == [("mcp_call", '{"a": "x"}')]
        assert asked(talk) == ["hi", "function_call", "function_call_output", "and dogs"]
        assert len(bench.upstream.calls) == 2
        stored = await bench.engine.retrieve("local", first)
        assert b'"steered"' in stored


async def test_an_answer_may_be_cut_behind_an_item():
    two = Answer([message("One."), message("Two.")], chunk=5).frames()
    begins = next(at for at, frame in enumerate(two) if b"output_item.added" in frame and b'"output_index":1' in frame)
    gate = asyncio.Event()
    async with converse(steer=SteerConfig(cut="item")) as talk:
        reply = Reply([*two[: begins - 3], gate, *two[begins - 3 :]])
        talk.create(reply, streamed(says("Yes.")))
        first = await talk.begun()
        steer(talk, first)
        await answered(talk, "response.steer.accepted")
        gate.set()
        await talk.ended(None, 2)
        assert (reply.closed, reply.retired) == (1, 0), "the model writes for nobody"
        assert runs(talk)[0] == (first, None, "incomplete")
        assert asked(talk) == ["hi", "One.", "and dogs"]


async def test_a_round_that_calls_the_clients_tools_is_not_cut():
    frames = Answer([call("f", "{}", "call_1"), call("f", "[]", "call_2")], chunk=5).frames()
    gate = asyncio.Event()
    async with converse(steer=SteerConfig(cut="item")) as talk:
        talk.create(Reply([*frames[:2], gate, *frames[2:]]), tools=[F])
        first = await talk.begun()
        steer(talk, first)
        await answered(talk, "response.steer.accepted")
        gate.set()
        pending = await answered(talk, "response.steer.pending")
        assert [stub["call_id"] for stub in pending["required_input"]] == ["call_1", "call_2"]
        assert runs(talk) == [(first, None, "completed")]


@pytest.mark.agents(107)
async def test_the_successor_comes_before_what_waits_on_the_lane():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate), streamed(says("Dogs.")), streamed(says("Later.")), lane="a")
        first = await talk.begun("a")
        talk.create(lane="a", input="later")
        steer(talk, first)
        await answered(talk, "response.steer.accepted")
        assert talk.load() == (1, 1)
        gate.set()
        await talk.ended("a", 3)
        assert [parent for _, parent, _ in runs(talk)] == [None, first, None]
        assert (asked(talk, 1)[-1], asked(talk, 2)) == ("and dogs", ["later"])


@pytest.mark.agents(109)
async def test_a_successor_is_steered_by_its_own_id():
    gates = [asyncio.Event(), asyncio.Event()]
    async with converse() as talk:
        talk.create(held(gates[0]), held(gates[1]), streamed(says("Done.")))
        first = await talk.begun()
        steer(talk, first, "one")
        await answered(talk, "response.steer.accepted")
        gates[0].set()
        second = (await answered(talk, "response.created", 2))["response"]["id"]
        steer(talk, first, "lost")
        refused = await failed(talk)
        assert (refused["error"]["code"], refused["steer"]["input"]) == ("response_already_completed", "lost")
        assert "id" not in refused["steer"]
        steer(talk, second, "two")
        await answered(talk, "response.steer.accepted", 2)
        gates[1].set()
        await talk.ended(None, 3)
        assert [parent for _, parent, _ in runs(talk)] == [None, first, second]
        assert asked(talk)[-1] == "two"


@pytest.mark.agents(110)
async def test_what_is_not_stored_is_steered_from_the_memory_of_the_connection():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate), streamed(says("Yes.")), store=False)
        steer(talk, await talk.begun())
        await answered(talk, "response.steer.accepted")
        gate.set()
        frames = await talk.ended(None, 2)
        assert (frames[-1]["type"], frames[-1]["response"]["store"]) == ("response.completed", False)
        assert asked(talk) == ["hi", "Hello there", "and dogs"]


# ---------------------------------------------------------------- outputs that are waited for


async def wait_for_output(talk, *texts, lane=None, count=1):
    """Have a response end with a call, and with these steers, the first of which is the connection's `count`th."""
    gate = asyncio.Event()
    frames = ASKS.frames()
    talk.create(Reply([*frames[:2], gate, *frames[2:]]), lane=lane, tools=[F])
    target = await talk.begun(lane)
    for number, text in enumerate(texts, count):
        steer(talk, target, text)
        await answered(talk, "response.steer.accepted", number)
    gate.set()
    await talk.ended(lane)
    return target


@pytest.mark.agents(99)
async def test_steers_wait_for_the_outputs_of_the_clients_tools():
    async with converse() as talk:
        target = await wait_for_output(talk, "one", "two", lane="a")
        await answered(talk, "response.steer.pending", 2)
        terminal = next(frame for frame in talk.socket.frames if frame["type"] == "response.completed")
        accepted, pending = of_kind(talk, "response.steer.accepted"), of_kind(talk, "response.steer.pending")
        assert [frame["steer"] for frame in pending] == [frame["steer"] for frame in accepted]
        for offset, frame in enumerate(pending, 1):
            assert frame["sequence_number"] == terminal["sequence_number"] + offset
            assert (frame["reason"], frame["stream_id"]) == ("waiting_for_required_input", "a")
            stub = {"type": "function_call_output", "call_id": "call_1", "name": "f"}
            assert frame["required_input"] == [stub]
        talk.create(
            streamed(says("Done.")),
            lane="a",
            previous_response_id=target,
            input=[OUTPUT, {"role": "user", "content": "more"}],
        )
        await talk.ended("a", 2)
        assert asked(talk) == ["hi", "function_call", "one", "two", "function_call_output", "more"]
        steer(talk, target)
        assert (await failed(talk))["error"]["code"] == "response_already_completed"


async def test_a_response_that_waits_takes_further_steers():
    async with converse() as talk:
        target = await wait_for_output(talk)
        steer(talk, target, "late")
        pending = await answered(talk, "response.steer.pending")
        accepted = await answered(talk, "response.steer.accepted")
        assert pending["sequence_number"] == accepted["sequence_number"] + 1
        talk.create(streamed(says("Done.")), previous_response_id=target, input=[OUTPUT])
        await talk.ended(None, 2)
        assert asked(talk)[-2:] == ["late", "function_call_output"]


async def test_steers_wait_for_approvals():
    bench = Bench(tools=ScriptedTools(known=[ASKED]))
    gate = asyncio.Event()
    frames = calls(PAYS).frames()
    async with converse(bench) as talk:
        talk.create(Reply([*frames[:-1], gate, frames[-1]]), tools=[MCP])
        target = await talk.begun()
        steer(talk, target)
        await answered(talk, "response.steer.accepted")
        gate.set()
        (stub,) = (await answered(talk, "response.steer.pending"))["required_input"]
        assert stub["type"] == "mcp_approval_response"
        approval = {**stub, "approve": False}
        talk.create(streamed(says("No.")), tools=[MCP], previous_response_id=target, input=[approval])
        await talk.ended(None, 2)
        assert asked(talk) == ["hi", "function_call", "function_call_output", "and dogs"]


@pytest.mark.agents(100)
async def test_nothing_is_pending_when_the_outputs_are_there_already():
    gate = asyncio.Event()
    frames = ASKS.frames()
    async with converse() as talk:
        talk.create(Reply([*frames[:2], gate, *frames[2:]]), streamed(says("Done.")), tools=[F])
        target = await talk.begun()
        steer(talk, target)
        await answered(talk, "response.steer.accepted")
        talk.create(previous_response_id=target, input=[OUTPUT])
        await until(lambda: talk.load() == (1, 1))
        gate.set()
        await talk.ended(None, 2)
        assert of_kind(talk, "response.steer.pending") == []
        assert asked(talk)[-2:] == ["and dogs", "function_call_output"]


@pytest.mark.agents(101)
async def test_another_lane_forks_and_takes_no_steers():
    async with converse() as talk:
        target = await wait_for_output(talk, "mine")
        talk.create(streamed(says("Fork.")), lane="b", previous_response_id=target, input=[OUTPUT])
        await talk.ended("b")
        assert asked(talk) == ["hi", "function_call", "function_call_output"]
        talk.create(streamed(says("Done.")), previous_response_id=target, input=[OUTPUT])
        await talk.ended(None, 2)
        assert asked(talk)[-2:] == ["mine", "function_call_output"]


async def test_a_refused_create_leaves_the_steers():
    async with converse(evict_parent_on_failure="never") as talk:
        target = await wait_for_output(talk, "mine")
        await answered(talk, "response.steer.pending")
        for body in ({"input": "no output"}, {"input": 5}, {"input": [OUTPUT], "temperature": 9}):
            talk.create(previous_response_id=target, **body)
        await until(lambda: len(of_kind(talk, "error")) == 3)
        talk.create(refusal(429), streamed(says("Done.")), previous_response_id=target, input=[OUTPUT])
        await until(lambda: len(of_kind(talk, "error")) == 4)
        talk.create(previous_response_id=target, input=[OUTPUT])
        await answered(talk, "response.completed", 2)
        assert asked(talk)[-2:] == ["mine", "function_call_output"]
        assert len(of_kind(talk, "response.steer.pending")) == 1


# ---------------------------------------------------------------- what fails


@pytest.mark.agents(102)
async def test_what_has_ended_or_is_unknown_takes_no_steers():
    async with converse() as talk:
        done = await talk.told(streamed(says("Hi.")))
        steer(talk, done)
        refused = await failed(talk)
        assert refused["error"]["code"] == "response_already_completed"
        assert refused["steer"] == {"previous_response_id": done, "input": "and dogs"}
        assert refused["sequence_number"] == of_kind(talk, "response.completed")[0]["sequence_number"] + 1
        talk.create(Reply([*BEGUN]), lane="b")
        broken = (await talk.ended("b"))[-1]
        assert broken["type"] == "response.failed"
        steer(talk, broken["response"]["id"])
        refused = await failed(talk, 2)
        assert (refused["error"]["code"], refused["stream_id"]) == ("response_not_active", "b")
        for number in (0, 1):
            steer(talk, "resp_unknown")
            refused = await failed(talk, 3 + number)
            assert (refused["error"]["code"], refused["sequence_number"]) == ("response_not_found", number)
            assert "stream_id" not in refused


@pytest.mark.agents(103)
async def test_some_responses_cannot_be_steered():
    bench = Bench(sealer=OpenSealer())
    async with converse(bench, steer=SteerConfig(models=("other",))) as talk:
        gate = asyncio.Event()
        talk.create(held(gate))
        steer(talk, await talk.begun())
        refused = await failed(talk)
        assert refused["error"]["code"] == "steering_not_supported"
        assert "[websocket.steer] models" in refused["error"]["message"]
        gate.set()
        await talk.ended()
        assert len(runs(talk)) == 1
    conversation = json.loads(await bench.engine.conversations.create("local", {}))["id"]
    managed = [{"type": "compaction", "compact_threshold": 100_000}]
    for fields in ({"conversation": conversation}, {"context_management": managed}):
        async with converse(bench) as talk:
            gate = asyncio.Event()
            talk.create(held(gate), **fields)
            steer(talk, await talk.begun())
            assert (await failed(talk))["error"]["code"] == "steering_not_supported"
            gate.set()
            await talk.ended()


@pytest.mark.agents(104)
@pytest.mark.parametrize(
    "members",
    [
        {"stream_id": "a"},
        {"input": [OUTPUT]},
        {"input": [{"type": "message", "role": "assistant", "content": "x"}]},
        {"input": [{"type": "message", "role": "user", "content": "x", "id": "msg_1"}]},
        {"input": [{"type": "message", "role": "user", "content": [{"type": "output_text", "text": "x"}]}]},
        {"input": [{"type": "message", "role": "user", "content": []}]},
        {"input": []},
        {"input": ""},
        {"input": None},
        {"input": 5},
        {"input": [{"type": "message", "role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
    ],
)
async def test_what_is_no_message_of_the_user_steers_nothing(members):
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate))
        target = await talk.begun()
        steer(talk, target, **members)
        refused = await failed(talk)
        assert refused["error"]["code"] == "invalid_input"
        assert refused["steer"].get("input") == members.get("input", "and dogs")
        gate.set()
        await talk.ended()
        assert len(runs(talk)) == 1
        assert talk.socket.close_code is None


@pytest.mark.agents(105)
async def test_steers_are_bounded_by_number_and_bytes():
    gate = asyncio.Event()
    async with converse(steer=SteerConfig(max_pending=2, max_pending_bytes=1000)) as talk:
        talk.create(held(gate), streamed(says("Yes.")))
        target = await talk.begun()
        steer(talk, target, "x" * 1000)
        assert "max_pending_bytes" in (await failed(talk))["error"]["message"]
        for text in ("one", "two", "three"):
            steer(talk, target, text)
        refused = await failed(talk, 2)
        assert (refused["error"]["code"], refused["steer"]["input"]) == ("too_many_pending_steers", "three")
        gate.set()
        await talk.ended(None, 2)
        assert asked(talk)[-2:] == ["one", "two"]


@pytest.mark.agents(106)
async def test_a_successor_that_cannot_be_made_fails_each_steer():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate), refusal(503), streamed(says("Later.")))
        target = await talk.begun()
        ids = []
        for count, text in enumerate(("one", "two"), 1):
            steer(talk, target, text)
            ids.append((await answered(talk, "response.steer.accepted", count))["steer"]["id"])
        gate.set()
        await failed(talk, 2)
        terminal = of_kind(talk, "response.completed")[0]["sequence_number"]
        for offset, frame in enumerate(of_kind(talk, "response.steer.failed")):
            assert frame["error"]["code"] == "successor_creation_failed"
            assert frame["steer"] == {
                "id": ids[offset], "previous_response_id": target, "input": ("one", "two")[offset],
            }  # fmt: skip
            assert frame["sequence_number"] == terminal + 1 + offset
        assert of_kind(talk, "error") == []
        talk.create(previous_response_id=target)
        await talk.ended(None, 2)


async def test_a_target_that_fails_fails_its_steers():
    gate = asyncio.Event()

    class Broken(MemoryStore):
        async def append(self, response):
            raise StorageUnavailable("The disk is full.")

    async with converse(Bench(store=Broken())) as talk:
        talk.create(held(gate))
        target = await talk.begun()
        steer(talk, target)
        await answered(talk, "response.steer.accepted")
        gate.set()
        refused = await failed(talk)
        assert (refused["error"]["code"], refused["steer"]["input"]) == ("response_not_active", "and dogs")
        assert refused["sequence_number"] == of_kind(talk, "response.failed")[0]["sequence_number"] + 1


@pytest.mark.agents(108)
async def test_a_disconnect_forgets_the_steers():
    gate = asyncio.Event()
    bench = Bench()
    async with converse(bench) as talk:
        talk.create(held(gate))
        steer(talk, await talk.begun())
        await answered(talk, "response.steer.accepted")
        talk.socket.leave()
        gate.set()
        await settle()
    assert len(bench.upstream.calls) == 1


async def test_a_steer_of_no_response_is_an_error_and_no_more():
    async with converse() as talk:
        talk.socket.say({"type": "response.steer", "input": "x"})
        assert (await answered(talk, "error"))["error"]["code"] == "invalid_event"
        await talk.told(streamed(says("Hi.")))


async def test_a_steer_that_comes_during_the_commit_is_answered_behind_the_end():
    committing, proceed = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def append(self, response):
            committing.set()
            await proceed.wait()
            await super().append(response)

    async with converse(Bench(store=Slow())) as talk:
        talk.create(streamed(says("Hi.")))
        await committing.wait()
        target = await talk.begun()
        steer(talk, target, "late")
        await settle()
        assert of_kind(talk, "response.steer.failed") == []
        proceed.set()
        refused = await failed(talk)
        assert refused["error"]["code"] == "response_already_completed"
        assert talk.socket.frames[-1] is refused


async def test_a_client_that_reads_slowly_gets_its_answers_in_order():
    gate = asyncio.Event()
    async with converse(delivery_max_batches=1) as talk:
        talk.create(Reply([*BEGUN, gate, *REST]), streamed(says("Yes.")))
        target = await talk.begun()
        talk.socket.pause()
        for text in ("one", "two", "three"):
            steer(talk, target, text)
        await settle()
        assert talk.bench.metrics.socket_load.controls.now == 3
        gate.set()
        await settle()
        talk.socket.resume()
        await talk.ended(None, 2)
        ends = next(at for at, frame in enumerate(talk.socket.frames) if frame["type"] in ENDS)
        assert [frame["sequence_number"] for frame in talk.socket.frames[: ends + 1]] == list(range(ends + 1))
        assert asked(talk)[-3:] == ["one", "two", "three"]
        await until(lambda: talk.bench.metrics.socket_load.controls.now == 0)


async def test_steers_are_given_back_when_the_gateway_shuts_down():
    gate = asyncio.Event()
    async with converse() as talk:
        talk.create(held(gate))
        target = await talk.begun()
        steer(talk, target)
        await answered(talk, "response.steer.accepted")
        talk.connection.begin_drain()
        gate.set()
        assert (await talk.closed())[0] == 1001
        assert [frame["type"] for frame in talk.socket.frames[-2:]] == ["response.completed", "response.steer.failed"]
        assert talk.socket.frames[-1]["error"]["code"] == "successor_creation_failed"


async def test_what_waits_is_given_back_when_its_response_is_forgotten():
    async with converse(inject=InjectConfig(completed_routes_max=1)) as talk:
        target = await wait_for_output(talk, "mine")
        await answered(talk, "response.steer.pending")
        await talk.told(streamed(says("Hi.")), lane="b")
        steer(talk, target, "more")
        await answered(talk, "response.steer.accepted", 2)
        await wait_for_output(talk, "other", lane="c", count=3)
        await failed(talk, 2)
        given_back = of_kind(talk, "response.steer.failed")
        assert [frame["steer"]["input"] for frame in given_back] == ["mine", "more"]
        assert {frame["error"]["code"] for frame in given_back} == {"response_not_found"}


async def test_steers_leave_no_cycles():
    bench = Bench()

    async def make():
        gate = asyncio.Event()
        async with converse(bench) as talk:
            talk.create(held(gate), streamed(says("Yes.")), store=False)
            steer(talk, await talk.begun())
            await answered(talk, "response.steer.accepted")
            gate.set()
            await talk.ended(None, 2)
            steer(talk, "resp_unknown")
            await failed(talk)

    assert await left_behind(make) == {}


async def test_who_sent_the_outputs_and_was_refused_hears_what_is_waited_for():
    gate = asyncio.Event()
    frames = ASKS.frames()
    async with converse(evict_parent_on_failure="never") as talk:
        talk.create(Reply([*frames[:2], gate, *frames[2:]]), tools=[F])
        target = await talk.begun()
        steer(talk, target)
        await answered(talk, "response.steer.accepted")
        talk.create(previous_response_id=target, input="no output")
        await until(lambda: talk.load() == (1, 1))
        gate.set()
        await answered(talk, "response.steer.pending")
        assert [frame["type"] for frame in talk.socket.frames[-2:]] == ["error", "response.steer.pending"]


async def test_what_was_taken_along_leaves_room_for_more():
    gates = [asyncio.Event(), asyncio.Event()]
    async with converse(steer=SteerConfig(max_pending_bytes=1000)) as talk:
        talk.create(held(gates[0]), held(gates[1]), streamed(says("Done.")))
        steer(talk, await talk.begun(), "x" * 800)
        await answered(talk, "response.steer.accepted")
        gates[0].set()
        second = (await answered(talk, "response.created", 2))["response"]["id"]
        steer(talk, second, "y" * 800)
        await answered(talk, "response.steer.accepted", 2)
        gates[1].set()
        await talk.ended(None, 3)


async def test_an_answer_goes_on_behind_an_acknowledgement_that_had_to_wait():
    gate = asyncio.Event()
    frames = says("Hello there my friend", chunk=5).frames()
    async with converse(delivery_max_batches=1) as talk:
        talk.create(Reply([*frames[:6], gate, *frames[6:]]), streamed(says("Yes.")))
        target = await talk.begun()
        await until(lambda: len(of_kind(talk, "response.output_text.delta")) == 2)
        talk.socket.pause()
        steer(talk, target, "one")
        await settle()
        steer(talk, target, "two")
        await settle()
        gate.set()
        await settle()
        talk.socket.resume()
        await talk.ended(None, 2)
        assert [end for _, _, end in runs(talk)] == ["completed", "completed"]
