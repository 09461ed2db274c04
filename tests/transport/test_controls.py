"""`response.inject` over one connection: what is taken, what is refused, and in which order the client hears of it."""

import asyncio

import pytest
from engine.agents.bench import ALPHA, BETA, ROOT, TOOL, TreeBench
from engine.doubles import Bench, HeldStore, settle, streamed
from harness.agents import call, gate, say, spawn, wait
from harness.engine import says
from transport.client_socket import converse, held, until
from transport.test_steering import answered, of_kind

from gateway.config.schema import InjectConfig
from gateway.protocol.errors import Unauthorized

HEADERS = [(b"openai-beta", b"responses_multi_agent=v1")]
BOTH = [spawn("alpha"), spawn("beta"), wait()]


def output(call_id="p1", text="6 weeks", **members):
    return {"type": "function_call_output", "call_id": call_id, "output": text, **members}


def asks(*call_ids):
    return [call("get_proposal", {"proposal": call_id}, id=call_id) for call_id in call_ids]


def play(*alpha, **options):
    """Two agents below the root: one that asks its client for something, and one that is held at a gate."""
    pick = [say("Pick alpha.")]
    script = {ROOT: [BOTH, pick, pick], ALPHA: alpha, BETA: [[gate("beta"), say("slow")]]}
    return TreeBench(script, **options)


def site(bench, **options):
    return converse(bench, headers=HEADERS, **options)


def create(talk, lane=None, **fields):
    talk.create(lane=lane, multi_agent={"enabled": True}, tools=[TOOL], **fields)


def inject(talk, response_id, *items, **members):
    talk.socket.say({"type": "response.inject", "response_id": response_id, "input": list(items), **members})


async def asked(talk, *call_ids, lane=None):
    """Begin, and wait until the client was asked for these outputs; returns the id of the response."""
    create(talk, lane)
    target = await talk.begun(lane)

    def told():
        return {frame["item"].get("call_id") for frame in of_kind(talk, "response.output_item.done")}

    await until(lambda: set(call_ids) <= told())
    await talk.bench.played.reached("beta")
    return target


async def failed(talk, count=1):
    return await answered(talk, "response.inject.failed", count)


async def finish(talk, lane=None):
    talk.bench.played.release("beta")
    return (await talk.ended(lane))[-1]


def numbered(talk, lane=None):
    """Whether all that was told of a response has its numbers without a gap."""
    numbers = [frame["sequence_number"] for frame in talk.on(lane)]
    return numbers == list(range(len(numbers)))


# ---------------------------------------------------------------- taken


@pytest.mark.agents(66, 80)
@pytest.mark.parametrize("lane", [None, "a"])
async def test_an_output_is_taken_while_others_work(lane):
    bench = play(asks("p1"), [say("6 weeks it is")])
    async with site(bench) as talk:
        target = await asked(talk, "p1", lane=lane)
        inject(talk, target, output())
        created = await answered(talk, "response.inject.created")
        assert created == {
            "type": "response.inject.created", "sequence_number": created["sequence_number"], "response_id": target,
            **({} if lane is None else {"stream_id": lane}),
        }  # fmt: skip
        await until(lambda: len(bench.played.of(ALPHA)) == 2)
        assert bench.played.of(ALPHA)[1].texts[-1] == "6 weeks"
        end = await finish(talk, lane)
        assert end["type"] == "response.completed"
        assert numbered(talk, lane)
        resumed = [
            frame
            for frame in talk.on(lane)
            if frame.get("agent") == {"agent_name": ALPHA} and frame.get("item", {}).get("type") == "message"
        ]
        assert min(frame["sequence_number"] for frame in resumed) > created["sequence_number"]
        inject(talk, target, output(text="late"))
        late = await failed(talk)
        assert late["sequence_number"] == end["sequence_number"] + 1
        assert late["error"] == {
            "code": "response_already_completed", "message": f"Response '{target}' has already completed.",
        }  # fmt: skip
        assert (late["input"], late.get("stream_id")) == ([output(text="late")], lane)
        assert talk.bench.sample("websocket_controls_total", control="inject", outcome="accepted") == 1
        late_count = talk.bench.sample("websocket_controls_total", control="inject", outcome=late["error"]["code"])
        assert late_count == 1


@pytest.mark.agents(69)
async def test_what_came_too_late_is_sent_again_with_a_create():
    bench = TreeBench({ROOT: [asks("p1"), [say("done")]]}, agents={"quiescence_grace_ms": 1})
    async with site(bench) as talk:
        create(talk)
        end = (await talk.ended())[-1]
        target = end["response"]["id"]
        inject(talk, target, output())
        late = await failed(talk)
        assert late["sequence_number"] == end["sequence_number"] + 1
        create(talk, previous_response_id=target, input=late["input"])
        await until(lambda: len(of_kind(talk, "response.completed")) == 2)
        assert bench.played.of(ROOT)[1].texts[-1] == "6 weeks"


@pytest.mark.agents(73)
async def test_an_agent_goes_on_when_it_has_all_it_waits_for():
    bench = play(asks("p1", "p2"), [say("both")])
    async with site(bench) as talk:
        target = await asked(talk, "p1", "p2")
        inject(talk, target, output("p1"))
        await answered(talk, "response.inject.created")
        await settle()
        assert len(bench.played.of(ALPHA)) == 1
        inject(talk, target, output("p2"))
        await answered(talk, "response.inject.created", 2)
        await until(lambda: len(bench.played.of(ALPHA)) == 2)
        assert (await finish(talk))["type"] == "response.completed"


@pytest.mark.agents(85)
async def test_an_output_in_parts_reaches_the_model_as_it_was_sent():
    parts = [{"type": "input_text", "text": "six"}, {"type": "input_text", "text": "weeks"}]
    bench = play(asks("p1"), [say("ok")])
    async with site(bench) as talk:
        target = await asked(talk, "p1")
        inject(talk, target, output(text=parts))
        await answered(talk, "response.inject.created")
        await until(lambda: len(bench.played.of(ALPHA)) == 2)
        assert bench.played.of(ALPHA)[1].body["input"][-1]["output"] == parts
        await finish(talk)


@pytest.mark.agents(79)
async def test_an_inject_waits_for_no_lane():
    bench = play(asks("p1"), [say("ok")])
    bench.played.script[""] = [[say("plain")]]
    async with site(bench) as talk:
        target = await asked(talk, "p1", lane="a")
        talk.create(lane="a", input="later")
        await until(lambda: talk.load() == (1, 1))
        inject(talk, target, output())
        await answered(talk, "response.inject.created")
        assert talk.load() == (1, 1)
        await finish(talk, "a")
        await talk.ended("a", 2)


# ---------------------------------------------------------------- refused, and the batch whole


@pytest.mark.agents(70, 71, 72, 75, 76)
async def test_a_batch_is_taken_whole_or_not_at_all():
    bench = play(asks("p1"), [say("ok")])
    async with site(bench) as talk:
        target = await asked(talk, "p1")
        refused = [
            ([output(), output()], "Tool call 'p1' already has an output."),
            ([output(), output("nobody")], f"Tool call 'nobody' is not pending on response '{target}'."),
            ([], None),
            ([{"type": "message", "role": "user", "content": "x"}], None),
            ([{"type": "custom_tool_call_output", "call_id": "p1", "output": "x"}], None),
        ]
        for count, (batch, message) in enumerate(refused, 1):
            inject(talk, target, *batch)
            frame = await failed(talk, count)
            assert (frame["error"]["code"], frame["input"]) == ("invalid_input", batch)
            assert frame["error"].keys() == {"code", "message"}
            assert message is None or frame["error"]["message"] == message
        await settle()
        assert len(bench.played.of(ALPHA)) == 1
        inject(talk, target, output())
        inject(talk, target, output())
        await answered(talk, "response.inject.created")
        again = await failed(talk, len(refused) + 1)
        assert again["error"]["message"] == "Tool call 'p1' already has an output."
        await finish(talk)
        assert numbered(talk)


@pytest.mark.agents(67, 68)
async def test_what_the_connection_does_not_know_is_not_found():
    async with site(Bench()) as other:
        foreign = await other.told(streamed(says("Hi.")))
    async with site(Bench()) as talk:
        for number, name in enumerate(("resp_nobody", foreign)):
            inject(talk, name, output())
            assert await failed(talk, number + 1) == {
                "type": "response.inject.failed", "sequence_number": number, "response_id": name,
                "input": [output()],
                "error": {"code": "response_not_found", "message": f"Response '{name}' was not found."},
            }  # fmt: skip


@pytest.mark.agents(78)
async def test_a_response_of_one_agent_takes_no_outputs():
    proceed = asyncio.Event()
    async with site(Bench()) as talk:
        talk.create(held(proceed))
        target = await talk.begun()
        inject(talk, target, output())
        assert (await failed(talk))["error"]["code"] == "invalid_input"
        proceed.set()
        await talk.ended()
        assert numbered(talk)


@pytest.mark.agents(77, 84)
async def test_a_malformed_inject_ends_the_connection_and_what_runs():
    bench = play(asks("p1"))
    async with site(bench) as talk:
        target = await asked(talk, "p1")
        talk.socket.say({"type": "response.inject", "response_id": target, "input": "x", "event_id": "e"})
        assert (await talk.closed())[0] == 1008
        told = talk.socket.frames[-1]
        assert (told["type"], told["status"], told["event_id"]) == ("error", 400, "e")
        assert (told["error"]["code"], told["error"]["param"]) == ("invalid_event", "input")
    assert bench.played.running == []
    with pytest.raises(Exception, match="not found"):
        await bench.engine.retrieve("local", target)


@pytest.mark.agents(84)
async def test_a_disconnect_behind_an_inject_leaves_nothing():
    bench = play(asks("p1"), [say("ok")])
    async with site(bench) as talk:
        target = await asked(talk, "p1")
        inject(talk, target, output())
        talk.socket.leave()
    assert bench.played.running == []
    with pytest.raises(Exception, match="not found"):
        await bench.engine.retrieve("local", target)


@pytest.mark.agents(86)
async def test_without_the_header_an_inject_is_an_unknown_event():
    async with converse(Bench()) as talk:
        inject(talk, "resp_1", "malformed too")
        assert (await answered(talk, "error"))["error"]["code"] == "unsupported_event"
        await talk.told(streamed(says("Hi.")))


async def test_the_header_need_not_be_asked_for():
    async with converse(Bench(agents={"require_beta_header": False})) as talk:
        inject(talk, "resp_1")
        assert (await failed(talk))["error"]["code"] == "response_not_found"
    async with site(Bench(agents={"enabled": False})) as talk:
        inject(talk, "resp_1")
        assert (await answered(talk, "error"))["error"]["code"] == "unsupported_event"


@pytest.mark.agents(87)
async def test_a_token_that_has_expired_injects_nothing():
    expired = []

    def check():
        if expired:
            raise Unauthorized("The token has expired.", code="invalid_token")

    bench = play(asks("p1"), [say("ok")])
    async with site(bench, check_caller=check) as talk:
        target = await asked(talk, "p1")
        expired.append(True)
        inject(talk, target, output())
        told = await answered(talk, "error")
        assert (told["status"], told["error"]["code"]) == (401, "invalid_token")
        expired.clear()
        inject(talk, target, output())
        await answered(talk, "response.inject.created")
        await finish(talk)


@pytest.mark.agents(62, 82)
async def test_what_comes_before_the_end_is_taken_and_what_comes_behind_it_is_not():
    store = HeldStore()
    bench = TreeBench({ROOT: [asks("p1"), asks("p2"), [say("done")]]}, store=store, agents={"quiescence_grace_ms": 40})
    async with site(bench) as talk:
        create(talk)
        target = await talk.begun()
        await until(lambda: of_kind(talk, "response.function_call_arguments.done"))
        inject(talk, target, output("p1"))
        await answered(talk, "response.inject.created")
        await store.reached.wait()
        inject(talk, target, output("p2"))
        await settle()
        assert of_kind(talk, "response.inject.failed") == []
        await store.commit()
        late = await failed(talk)
        assert late["error"]["code"] == "response_already_completed"
        assert [frame["type"] for frame in talk.socket.frames[-2:]] == ["response.completed", late["type"]]
        assert numbered(talk)
        # What is stored agrees: the first has its output, the second waits for one.
        create(talk, previous_response_id=target, input=[output("p1")])
        refused = await answered(talk, "error")
        assert refused["error"]["code"] == "invalid_tool_output"
        create(talk, previous_response_id=target, input=late["input"])
        await until(lambda: len(of_kind(talk, "response.completed")) == 2)
        assert len(bench.played.of(ROOT)) == 3


# ---------------------------------------------------------------- bounds


@pytest.mark.agents(81)
async def test_what_waits_to_be_answered_is_bounded_and_the_reader_reads_on():
    bench = play(asks("p1"), [say("ok")])
    async with site(bench, inject=InjectConfig(max_outstanding=3), delivery_max_batches=2) as talk:
        target = await asked(talk, "p1")
        talk.socket.pause()
        for number in range(4):
            inject(talk, target, output(f"c{number}"))
        await settle()
        load = bench.metrics.socket_load
        assert (load.controls.now, load.controls.high) == (3, 3)
        talk.socket.resume()
        refused = await answered(talk, "error")
        assert (refused["status"], refused["error"]["code"]) == (429, "too_many_pending_injections")
        assert target in refused["error"]["message"]
        await failed(talk, 3)
        await until(lambda: load.controls.now == 0)
        inject(talk, target, output())
        await answered(talk, "response.inject.created")
        await finish(talk)


async def test_what_waits_to_be_answered_is_bounded_by_bytes():
    async with site(Bench(), inject=InjectConfig(max_outstanding_bytes=300)) as talk:
        inject(talk, "resp_1", output(text="x" * 300))
        assert "max_outstanding_bytes" in (await answered(talk, "error"))["error"]["message"]
        inject(talk, "resp_1", output())
        await failed(talk)


async def test_what_one_event_cannot_hold_is_not_sent_back():
    proceed = asyncio.Event()
    bench = Bench(responses={"max_stream_event_bytes": 5000})
    async with site(bench) as talk:
        talk.create(held(proceed))
        target = await talk.begun()
        inject(talk, target, output(text="x" * 5000))
        assert (await failed(talk))["input"] == []
        steer = {"type": "response.steer", "previous_response_id": target, "input": ["x" * 5000]}
        talk.socket.say(steer)
        assert (await answered(talk, "response.steer.failed"))["steer"] == {"previous_response_id": target, "input": ""}
        proceed.set()
        await talk.ended()
        inject(talk, target, output(text="x" * 5000))
        assert (await failed(talk, 2))["input"] == []
        assert numbered(talk)


@pytest.mark.agents(83)
async def test_what_has_ended_is_known_for_a_bounded_time():
    bounds = InjectConfig(completed_routes_max=2, completed_route_ttl_s=3600)
    async with site(Bench(), inject=bounds) as talk:
        ended = [await talk.told(streamed(says("Hi."))) for _ in range(3)]
        for count, response_id in enumerate(ended, 1):
            inject(talk, response_id, output())
            await failed(talk, count)
        assert [frame["error"]["code"] for frame in of_kind(talk, "response.inject.failed")] == [
            "response_not_found", "response_already_completed", "response_already_completed",
        ]  # fmt: skip
    async with site(Bench(), inject=InjectConfig(completed_route_ttl_s=0.01)) as talk:
        ended = await talk.told(streamed(says("Hi.")))
        await asyncio.sleep(0.02)
        inject(talk, ended, output())
        assert (await failed(talk))["error"]["code"] == "response_not_found"


async def test_no_more_responses_run_than_there_are_routes():
    proceed = asyncio.Event()
    async with site(Bench(), inject=InjectConfig(completed_routes_max=1)) as talk:
        talk.create(held(proceed), lane="a")
        await talk.begun("a")
        talk.create(lane="b")
        told = (await talk.ended("b"))[-1]
        assert (told["status"], told["error"]["code"]) == (429, "rate_limit_exceeded")
        proceed.set()
        await talk.ended("a")


# ---------------------------------------------------------------- the end of the connection


async def test_injects_are_served_while_the_gateway_drains():
    bench = play(asks("p1"), [say("ok")])
    async with site(bench) as talk:
        target = await asked(talk, "p1")
        talk.connection.begin_drain()
        inject(talk, target, output())
        await answered(talk, "response.inject.created")
        create(talk, "b")
        assert (await answered(talk, "error"))["status"] == 503
        await finish(talk)
        assert (await talk.closed())[0] == 1001
        assert talk.socket.frames[-1]["type"] == "response.completed"


async def test_what_comes_during_the_commit_is_answered_behind_the_end_and_before_the_close():
    store = HeldStore()
    async with site(Bench(store=store)) as talk:
        talk.create(streamed(says("Hi.")))
        await store.reached.wait()
        target = await talk.begun()
        talk.connection.begin_drain()
        inject(talk, target, output())
        await settle()
        assert of_kind(talk, "response.inject.failed") == []
        await store.commit()
        assert (await talk.closed())[0] == 1001
        assert [frame["type"] for frame in talk.socket.frames[-2:]] == ["response.completed", "response.inject.failed"]
        assert talk.socket.frames[-1]["error"]["code"] == "response_already_completed"
        assert numbered(talk)
