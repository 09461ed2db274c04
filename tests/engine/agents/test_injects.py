"""Outputs that come while agents work."""

import asyncio

import pytest
from engine.agents.bench import ALPHA, ROOT, TreeBench
from engine.doubles import HeldStore, settle
from harness.agents import call, gate, listing, say, spawn, wait

ASKS = [call("get_proposal", id="ask_1")]
GRACE = 0.25


def kinds(told):
    return [event["type"].removeprefix("response.") for event in told]


async def until_told(listener, kind):
    """What was told up to an event of this type."""
    told = []
    while kind not in kinds(told):
        await settle(1)
        told += listener.take()
    return told


def id_of(told):
    return told[0]["response"]["id"]


@pytest.mark.agents(47, 66)
async def test_an_agent_goes_on_with_what_is_injected():
    bench = TreeBench({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [ASKS, [say("found")]]}, live=True)
    listener, _ = await bench.start()
    told = await until_told(listener, "function_call_arguments.done")
    await settle(50)
    answer = bench.inject(id_of(told), ("ask_1", "six weeks"))
    told += await listener.take_all()
    assert await answer is True
    assert told[-1]["type"] == "response.completed"
    assert kinds(told).count("inject.created") == 1
    created = kinds(told).index("inject.created")
    assert all(event.get("item", {}).get("type") != "message" for event in told[:created])
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert bench.played.of(ALPHA)[1].texts[-1] == "six weeks"
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.agents(62)
async def test_a_response_at_rest_is_held_open_for_a_moment():
    bench = TreeBench({ROOT: [ASKS, [say("done")]]}, live=True)
    listener, task = await bench.start()
    told = await until_told(listener, "output_item.done")
    await asyncio.sleep(GRACE - 0.01)
    assert not task.done()
    assert await bench.inject(id_of(told), ("ask_1", "six weeks")) is True
    told += await listener.take_all()
    assert told[-1]["type"] == "response.completed"
    assert asyncio.get_running_loop().time() == GRACE - 0.01


async def test_a_response_at_rest_ends_when_nothing_comes():
    bench = TreeBench({ROOT: [ASKS]}, live=True)
    listener, _ = await bench.start()
    told = await until_told(listener, "output_item.done")
    told += await listener.take_all()
    assert asyncio.get_running_loop().time() == GRACE
    assert told[-1]["response"]["status"] == "completed"
    assert bench.engine.runs.inject(id_of(told), []) is None


async def test_a_refused_inject_holds_nothing_open():
    bench = TreeBench({ROOT: [ASKS]}, live=True)
    listener, _ = await bench.start()
    told = await until_told(listener, "output_item.done")
    await asyncio.sleep(GRACE / 2)
    assert await bench.inject(id_of(told), ("ask_2", "x")) is True
    told += await listener.take_all()
    assert kinds(told)[-2:] == ["inject.failed", "completed"]
    assert told[-2]["error"] == {
        "code": "invalid_input",
        "message": f"Tool call 'ask_2' is not pending on response '{id_of(told)}'.",
    }
    assert told[-2]["input"] == [{"type": "function_call_output", "call_id": "ask_2", "output": "x"}]
    assert asyncio.get_running_loop().time() == GRACE


@pytest.mark.agents(63)
async def test_without_a_socket_nothing_is_held_open():
    bench = TreeBench({ROOT: [ASKS]})
    await bench.answer()
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.agents(72)
async def test_outputs_are_taken_once():
    bench = TreeBench({ROOT: [[spawn("alpha")], [gate("hold"), say("done")]], ALPHA: [ASKS, [say("found")]]}, live=True)
    listener, _ = await bench.start()
    told = await until_told(listener, "function_call_arguments.done")
    await settle(50)
    first = bench.inject(id_of(told), ("ask_1", "six weeks"))
    second = bench.inject(id_of(told), ("ask_1", "six weeks"))
    assert (await first, await second) == (True, True)
    bench.played.release("hold")
    told += await listener.take_all()
    assert [kind for kind in kinds(told) if kind.startswith("inject")] == ["inject.created", "inject.failed"]
    assert "already has an output" in next(event for event in told if "error" in event)["error"]["message"]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "x", "call_id": ["ask_1"]},
        {"type": "mcp_approval_response", "call_id": {}, "approval_request_id": ["ask_1"], "approve": True},
        {"type": "local_shell_call_output", "call_id": ["ask_1"], "output": "x"},
    ],
)
async def test_an_output_whose_id_is_no_string_is_refused_and_its_response_goes_on(item):
    bench = TreeBench({ROOT: [[spawn("alpha")], [gate("hold"), say("done")]], ALPHA: [[say("found")]]}, live=True)
    listener, _ = await bench.start()
    told = await until_told(listener, "output_item.done")
    answer = bench.engine.runs.inject(id_of(told), [item])
    assert await answer is True
    bench.played.release("hold")
    told += await listener.take_all()
    assert next(event for event in told if "error" in event)["error"]["code"] == "invalid_input"
    assert told[-1]["type"] == "response.completed"


@pytest.mark.agents(73)
async def test_an_agent_goes_on_when_it_has_all_it_waits_for():
    both = [call("get_proposal", id="ask_1"), call("get_proposal", id="ask_2")]
    bench = TreeBench({ROOT: [both, [say("done")]]}, live=True)
    listener, _ = await bench.start()
    told = await until_told(listener, "function_call_arguments.done")
    await settle(50)
    assert await bench.inject(id_of(told), ("ask_1", "one")) is True
    await settle(50)
    assert len(bench.played) == 1
    assert await bench.inject(id_of(told), ("ask_2", "two")) is True
    told += await listener.take_all()
    assert bench.played.of(ROOT)[1].texts[-4:] == ["{}", "one", "{}", "two"]


async def test_an_output_for_an_inference_that_goes_on_waits_until_that_has_ended():
    bench = TreeBench(
        {ROOT: [[call("get_proposal", id="ask_1"), gate("hold"), call("get_proposal", id="ask_2")], [say("done")]]},
        live=True,
    )
    listener, _ = await bench.start()
    await bench.played.reached("hold")
    await settle(50)
    told = listener.take()
    answer = bench.inject(id_of(told), ("ask_1", "one"))
    await settle(50)
    assert not answer.done()
    bench.played.release("hold")
    assert await answer is True
    assert await bench.inject(id_of(told), ("ask_2", "two")) is True
    told += await listener.take_all()
    assert told[-1]["response"]["status"] == "completed"
    assert bench.played.of(ROOT)[1].texts[-4:] == ["{}", "one", "{}", "two"]


@pytest.mark.agents(82)
async def test_what_comes_when_the_response_is_about_to_end_is_answered_behind_its_end():
    store = HeldStore()
    bench = TreeBench({ROOT: [ASKS]}, live=True, store=store)
    listener, task = await bench.start()
    told = await until_told(listener, "output_item.done")
    await store.reached.wait()
    answer = bench.inject(id_of(told), ("ask_1", "too late"))
    await settle(50)
    assert not answer.done()
    await store.commit()
    assert await answer is False
    assert task.done()
    told += listener.take()
    assert kinds(told)[-1] == "completed"
    assert not [kind for kind in kinds(told) if kind.startswith("inject")]
    assert b"too late" not in store.queued[0].agents[0].state


async def test_outputs_that_do_not_fit_are_refused():
    bench = TreeBench({ROOT: [ASKS, [say("done")]]}, live=True, responses={"max_retained_bytes": 20_000})
    listener, _ = await bench.start()
    told = await until_told(listener, "output_item.done")
    assert await bench.inject(id_of(told), ("ask_1", "x" * 20_000)) is True
    assert await bench.inject(id_of(told), ("ask_1", "x")) is True
    told += await listener.take_all()
    assert [kind for kind in kinds(told) if kind.startswith("inject")] == ["inject.failed", "inject.created"]
    assert told[-1]["response"]["status"] == "completed"


@pytest.mark.agents(84)
async def test_what_was_sent_into_a_response_that_is_cancelled_is_answered():
    bench = TreeBench({ROOT: [[call("get_proposal", id="ask_1"), gate("never"), say("x")]]}, live=True)
    listener, task = await bench.start()
    await bench.played.reached("never")
    answer = bench.inject(id_of(listener.take()), ("ask_1", "x"))
    await settle(5)
    task.cancel()
    assert await answer is False


async def test_an_output_that_no_request_could_bring_is_refused():
    bench = TreeBench({ROOT: [ASKS, [say("done")]]}, live=True)
    listener, _ = await bench.start()
    told = await until_told(listener, "output_item.done")
    image = [{"type": "input_image", "image_url": "http://elsewhere/a.png"}]
    made = bench.engine.runs.inject(
        id_of(told), [{"type": "function_call_output", "call_id": "ask_1", "output": image}]
    )
    assert await made is True
    told += await listener.take_all()
    (failed,) = [event for event in told if event["type"] == "response.inject.failed"]
    assert failed["error"]["code"] == "invalid_input"
    assert failed["input"][0]["output"] == image


async def test_what_is_too_long_to_be_sent_back_is_no_reason_to_end_the_response():
    bench = TreeBench({ROOT: [ASKS]}, live=True, responses={"max_stream_event_bytes": 4_000})
    listener, _ = await bench.start()
    told = await until_told(listener, "output_item.done")
    assert await bench.inject(id_of(told), ("ask_2", "x" * 4_000)) is True
    told += await listener.take_all()
    assert told[-1]["type"] == "response.completed"
    (failed,) = [event for event in told if event["type"] == "response.inject.failed"]
    assert failed["input"] == []
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


SEARCH = {"type": "tool_search", "execution": "client"}


def found(*names):
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in names]
    return {"type": "tool_search_output", "call_id": "ask_1", "execution": "client", "tools": tools}


async def test_tools_that_an_output_brings_are_offered_to_all_from_then_on():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha"), call("tool_search", '{"query": "x"}', id="ask_1")], [call("look", id="ask_2")]],
            ALPHA: [[gate("hold"), listing()], [say("found")]],
        },
        live=True,
    )
    listener, _ = await bench.start(tools=[SEARCH])
    await bench.played.reached("hold")
    await settle(50)
    told = listener.take()
    assert await bench.engine.runs.inject(id_of(told), [found("look")]) is True
    await settle(50)
    bench.played.release("hold")
    told += await listener.take_all()
    names = [[tool["name"] for tool in asked.body["tools"]] for asked in bench.played.asked]
    assert ["look" in known for known in names] == [False, False, True, True]
    assert [name for name in names[2] if name != "look"] == names[0]
    made = [item for item in told[-1]["response"]["output"] if item["type"] == "function_call"]
    assert [(item["name"], item["call_id"]) for item in made] == [("look", "ask_2")]


@pytest.mark.parametrize("output", [found("spawn_agent"), {**found(), "tools": [{"type": "function"}]}])
async def test_tools_that_no_request_could_bring_are_refused(output):
    bench = TreeBench({ROOT: [[call("tool_search", '{"query": "x"}', id="ask_1")], [say("done")]]}, live=True)
    listener, _ = await bench.start(tools=[SEARCH])
    await settle(50)
    told = listener.take()
    assert await bench.engine.runs.inject(id_of(told), [output]) is True
    assert await bench.engine.runs.inject(id_of(told), [found("look")]) is True
    told += await listener.take_all()
    acks = [event["type"].removeprefix("response.inject.") for event in told if "inject" in event["type"]]
    assert acks == ["failed", "created"]
    assert told[-1]["response"]["status"] == "completed"
