"""One task owns the tree and the turn, and agents work at once."""

import asyncio

import pytest
from engine.agents.bench import ALPHA, BETA, ROOT, TreeBench
from engine.doubles import settle, types
from harness.agents import call, cut, fail, gate, interrupt, listing, say, spawn, think, wait

from gateway.protocol.errors import UpstreamRefused
from gateway.telemetry.metrics import read_values


def outputs(response, agent):
    return [item for item in response["output"] if item["agent"]["agent_name"] == agent]


def outcomes(response, action):
    return [
        item["output"][0]["text"]
        for item in response["output"]
        if item["type"] == "multi_agent_call_output" and item["action"] == action
    ]


@pytest.mark.agents(15)
async def test_a_root_alone_answers():
    bench = TreeBench({ROOT: [[say("hi")]]})
    response = await bench.answer()
    assert [(item["type"], item["phase"], item["agent"]) for item in response["output"]] == [
        ("message", "final_answer", {"agent_name": "/root"})
    ]
    assert response["status"] == "completed"
    assert [tool["name"] for tool in response["tools"]] == ["get_proposal"]


async def test_a_json_answer_is_made_of_streams():
    bench = TreeBench({ROOT: [[say("hi")]]})
    await bench.answer()
    (asked,) = bench.played.asked
    assert asked.body["stream"] is True
    assert asked.body["store"] is False
    assert not {"multi_agent", "context_management", "previous_response_id"} & set(asked.body)


async def test_every_agent_is_told_who_it_is_and_has_the_actions_behind_the_tools_of_the_client():
    bench = TreeBench({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("found")]]})
    await bench.answer(instructions="Be brief.", text={"format": {"type": "json_object"}, "verbosity": "low"})
    root, child = bench.played.of(ROOT)[0].body, bench.played.of(ALPHA)[0].body
    names = [tool["name"] for tool in root["tools"]]
    assert names[0] == "get_proposal"
    assert sorted(names[1:]) == sorted(
        ["spawn_agent", "send_message", "followup_task", "wait_agent", "interrupt_agent", "list_agents"]
    )
    assert root["tools"] == child["tools"]
    assert root["instructions"].startswith("Be brief.\n\nYou are agent `/root`")
    assert child["instructions"].startswith("Be brief.\n\nYou are agent `/root/alpha`")
    assert root["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
    assert child["text"] == {"verbosity": "low"}


async def test_a_choice_of_tools_is_for_the_first_inference_of_the_root_alone():
    bench = TreeBench({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("found")]]})
    await bench.answer(tool_choice="required")
    choices = [asked.body["tool_choice"] for asked in bench.played.asked]
    assert choices == ["required", "auto", "auto"]


async def test_the_choice_of_no_tool_leaves_the_actions_out():
    bench = TreeBench({ROOT: [[say("hi")]]})
    await bench.answer(tool_choice="none")
    (asked,) = bench.played.asked
    assert [tool["name"] for tool in asked.body["tools"]] == ["get_proposal"]
    assert asked.body["tool_choice"] == "none"


@pytest.mark.agents(21, 23, 33)
async def test_a_child_works_and_answers():
    bench = TreeBench({ROOT: [[spawn("alpha", "Look."), wait()], [say("done")]], ALPHA: [[say("found")]]})
    told = await bench.stream()
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert [(item["type"], item["agent"]["agent_name"]) for item in done] == [
        ("multi_agent_call", ROOT),
        ("agent_message", ALPHA),
        ("multi_agent_call_output", ROOT),
        ("multi_agent_call", ROOT),
        ("message", ALPHA),
        ("multi_agent_call_output", ROOT),
        ("agent_message", ROOT),
        ("message", ROOT),
    ]
    assert told[-1]["type"] == "response.completed"
    assert told[-1]["response"]["output"] == done
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert bench.played.of(ROOT)[1].texts[-1].endswith("found")
    assert "Look." in bench.played.of(ALPHA)[0].texts[-1]


@pytest.mark.agents(29)
async def test_agents_infer_at_once():
    names = ["alpha", "beta", "gamma"]
    bench = TreeBench(
        {
            ROOT: [[*map(spawn, names), spawn("delta"), wait()], [wait()], [wait()], [say("done")]],
            **{f"/root/{name}": [[gate(name), say(name)]] for name in names},
        }
    )
    listener, _ = await bench.start()
    await bench.played.reached(*names)
    assert bench.played.running == [f"/root/{name}" for name in names]
    for name in names:
        bench.played.release(name)
        await settle()
    response = (await listener.take_all())[-1]["response"]
    assert response["status"] == "completed"
    assert "error" in outcomes(response, "spawn_agent")[3]


@pytest.mark.agents(65)
async def test_usage_is_that_of_all_inferences():
    bench = TreeBench({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("found")]]})
    response = await bench.answer()
    assert response["usage"]["total_tokens"] == 3 * 12


@pytest.mark.agents(16)
async def test_a_response_ends_when_only_clients_can_go_on():
    bench = TreeBench({ROOT: [[say("a"), call("get_proposal", id="call_1")]]})
    response = await bench.answer()
    assert [(item["type"], item.get("phase")) for item in response["output"]] == [
        ("message", "commentary"),
        ("function_call", None),
    ]
    assert response["status"] == "completed"


@pytest.mark.agents(44)
async def test_a_wait_ends_by_its_time():
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), wait(20_000)], [wait()], [say("done")]], ALPHA: [[gate("late"), say("x")]]}
    )
    loop = asyncio.get_running_loop()
    loop.call_later(45, bench.played.release, "late")
    response = await bench.answer()
    assert outcomes(response, "wait_agent") == [
        '{"message": "Wait timed out.", "timed_out": true}',
        '{"message": "Wait completed.", "timed_out": false}',
    ]
    assert loop.time() == 45


@pytest.mark.agents(46)
async def test_without_a_socket_a_wait_for_agents_that_wait_for_the_client_ends_and_nobody_is_asked_again():
    bench = TreeBench({ROOT: [[spawn("alpha"), wait()]], ALPHA: [[call("get_proposal", id="call_1")]]})
    response = await bench.answer()
    assert outcomes(response, "wait_agent") == [
        '{"message": "Agents are waiting for client tool outputs.", "timed_out": false}'
    ]
    assert len(bench.played) == 2


@pytest.mark.agents(59)
async def test_a_response_goes_on_behind_the_answer_of_its_root():
    bench = TreeBench({ROOT: [[spawn("alpha")], [say("done")]], ALPHA: [[gate("hold"), say("found")]]})
    listener, task = await bench.start()
    await bench.played.reached("hold")
    await settle(50)
    assert not task.done()
    bench.played.release("hold")
    told = await listener.take_all()
    items = [(item["type"], item["agent"]["agent_name"]) for item in told[-1]["response"]["output"]]
    assert items[-3:] == [("message", ROOT), ("message", ALPHA), ("agent_message", ROOT)]
    assert len(bench.played.of(ROOT)) == 2


# ---------------------------------------------------------------- interrupts


@pytest.mark.agents(51)
async def test_an_inference_is_cut_where_nothing_is_open():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha")], [gate("now"), interrupt("alpha")], [listing()], [say("done")]],
            ALPHA: [[say("first"), gate("hold"), say("second")]],
        }
    )
    listener, _ = await bench.start()
    await bench.played.reached("hold", "now")
    bench.played.release("now")
    told = await listener.take_all()
    response = told[-1]["response"]
    assert outcomes(response, "interrupt_agent") == ['{"previous_status": "running"}']
    assert '"agent_name": "/root/alpha", "agent_status": "interrupted"' in outcomes(response, "list_agents")[0]
    assert [item["content"][0]["text"] for item in outputs(response, ALPHA) if item["type"] == "message"] == ["first"]
    assert outputs(response, ROOT)[-1]["type"] == "message"
    assert bench.played.running == []


async def test_an_inference_that_is_cut_may_end_its_item():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha")], [gate("now"), interrupt("alpha")], [say("done")]],
            ALPHA: [[say("fir", gate("hold"), "st"), say("second")]],
        }
    )
    listener, _ = await bench.start()
    await bench.played.reached("hold", "now")
    bench.played.release("now")
    await settle(50)
    bench.played.release("hold")
    response = (await listener.take_all())[-1]["response"]
    said = [
        (item["content"][0]["text"], item["phase"]) for item in outputs(response, ALPHA) if item["type"] == "message"
    ]
    assert said == [("first", "commentary")]
    assert not [item for item in outputs(response, ROOT) if item["type"] == "agent_message"]


# ---------------------------------------------------------------- failures


@pytest.mark.agents(58)
async def test_a_child_that_fails_leaves_the_others_alone():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha"), spawn("beta"), wait()], [wait()], [say("done")]],
            ALPHA: [[fail(500)]],
            BETA: [[gate("hold"), say("found")]],
        }
    )
    listener, _ = await bench.start()
    await bench.played.reached("hold")
    await settle(50)
    bench.played.release("hold")
    response = (await listener.take_all())[-1]["response"]
    assert response["status"] == "completed"
    assert "[agent failed] " in bench.played.of(ROOT)[1].texts[-1]


@pytest.mark.agents(20)
async def test_a_root_that_fails_ends_everything():
    bench = TreeBench({ROOT: [[spawn("alpha")], [gate("now"), fail(500)]], ALPHA: [[gate("hold"), say("x")]]})
    listener, _ = await bench.start()
    await bench.played.reached("hold", "now")
    bench.played.release("now")
    told = await listener.take_all()
    assert told[-1]["type"] == "response.failed"
    assert bench.played.running == []
    assert await bench.stored(told[-1]["response"]["id"]) is None


@pytest.mark.agents(19)
async def test_a_root_that_only_thinks_is_asked_again_twice():
    bench = TreeBench({ROOT: [[think("x")], [say("y")]]})
    response = await bench.answer()
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    bench = TreeBench({ROOT: [[think("x")], [think("x")], [think("x")]]})
    told = await bench.stream()
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["error"]["code"] == "server_error"


@pytest.mark.agents(64)
async def test_a_deadline_ends_everything():
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), say("part", gate("never"))]], ALPHA: [[gate("never"), say("x")]]},
        agents={"run_deadline_s": 15},
    )
    told = await bench.stream()
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["error"]["code"] == "server_error"
    assert "[multi_agent] run_deadline_s" in told[-1]["response"]["error"]["message"]
    assert asyncio.get_running_loop().time() == 15
    assert bench.played.running == []
    done = [event["item"]["id"] for event in told if event["type"] == "response.output_item.done"]
    assert [item["id"] for item in told[-1]["response"]["output"]] == done


async def test_rounds_of_a_response_are_bounded():
    bench = TreeBench({ROOT: [[listing()]] * 9}, agents={"max_rounds_per_response": 8})
    told = await bench.stream()
    assert told[-1]["type"] == "response.failed"
    assert "[multi_agent] max_rounds_per_response" in told[-1]["response"]["error"]["message"]
    assert len(bench.played) == 8


async def test_rounds_of_an_activation_are_bounded(caplog):
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[listing()]] * 3},
        agents={"max_rounds_per_turn": 2},
    )
    response = await bench.answer()
    assert response["status"] == "completed"
    assert len(bench.played.of(ALPHA)) == 2
    assert "max_rounds_per_turn" in bench.played.of(ROOT)[1].texts[-1]
    assert "agent /root/alpha failed: An agent was not done after 2 inferences" in caplog.text
    assert read_values(bench.metrics.rejections_total) == {("multi_agent.max_rounds_per_turn",): 1}


@pytest.mark.parametrize("per_turn", [64, 2])
async def test_rounds_of_a_root_are_bounded_as_those_of_any_response(per_turn):
    bench = TreeBench(
        {ROOT: [[spawn("alpha")], [listing()]], ALPHA: [[gate("hold"), say("x")]]},
        rounds=2,
        agents={"max_rounds_per_turn": per_turn},
    )
    listener, _ = await bench.start()
    await bench.played.reached("hold")
    await settle(50)
    bench.played.release("hold")
    told = await listener.take_all()
    assert told[-1]["type"] == "response.incomplete"
    assert told[-1]["response"]["incomplete_details"] == {"reason": "max_messages"}
    assert ("message", ALPHA) in [
        (item["type"], item["agent"]["agent_name"]) for item in told[-1]["response"]["output"]
    ]


async def test_an_answer_of_the_root_that_is_cut_short_makes_the_response_incomplete():
    bench = TreeBench({ROOT: [[spawn("alpha"), wait()], [say("do"), cut()]], ALPHA: [[say("found"), cut()]]})
    response = await bench.answer()
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.agents(95)
async def test_a_tree_that_grows_too_large_ends_the_response():
    bench = TreeBench(
        {ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("x" * 20_000)]]},
        agents={"max_tree_bytes": 10_000},
    )
    told = await bench.stream()
    assert told[-1]["type"] == "response.failed"
    error = told[-1]["response"]["error"]
    assert (error["code"], error["resource"], error["limit"]) == (
        "response_resource_limit_exceeded",
        "max_tree_bytes",
        10_000,
    )
    assert "[multi_agent] max_tree_bytes" in error["message"]
    assert await bench.stored(told[-1]["response"]["id"]) is None


# ---------------------------------------------------------------- clients


async def test_a_client_that_does_not_read_holds_up_every_agent():
    bench = TreeBench({ROOT: [[spawn("alpha"), say(*"root")], [say("done")]], ALPHA: [[say(*"alpha")]]})
    listener, _ = await bench.start()
    await settle(3)
    listener.reads.clear()
    await settle(200)
    held = [len(asked.reply._waiting) for asked in bench.played.asked]
    await settle(200)
    assert [len(asked.reply._waiting) for asked in bench.played.asked] == held
    listener.reads.set()
    told = await listener.take_all()
    assert told[-1]["type"] == "response.completed"


async def test_a_client_that_leaves_takes_everything_with_it_whenever_it_does():
    script = {
        ROOT: [[spawn("alpha"), spawn("beta"), wait()], [wait()], [say("done")]],
        ALPHA: [[say("a"), interrupt("/root/beta")], [say("found")]],
        BETA: [[call("get_proposal", id="call_1"), gate("never"), say("b")]],
    }
    ended = False
    turns = 0
    while not ended:
        turns += 1
        bench = TreeBench(script)
        _, task = await bench.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        ended = task.done()
        task.cancel()
        await asyncio.wait([task])
        assert bench.played.running == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        seats = bench.engine.routing.default.seats
        assert (seats.running.now, seats.waiting.now, bench.metrics.agents_active.now) == (0, 0, 0)
        assert turns < 500


async def test_a_gateway_that_stops_ends_what_agents_do():
    bench = TreeBench({ROOT: [[spawn("alpha")], [gate("never"), say("x")]], ALPHA: [[gate("never"), say("x")]]})
    listener, _ = await bench.start()
    await bench.played.reached("never")
    await settle(50)
    assert bench.engine.cut_off() == 1
    told = await listener.take_all()
    assert told[-1]["type"] == "response.failed"
    assert told[-1]["response"]["error"]["code"] == "server_is_overloaded"
    assert bench.played.running == []


async def test_a_client_is_told_that_its_response_has_begun_although_no_server_has_answered_yet():
    bench = TreeBench({ROOT: [[gate("hold"), say("done")]]}, server={"commit_after_seconds": 5})
    listener, _ = await bench.start()
    await asyncio.sleep(4)
    assert listener.take() == []
    await asyncio.sleep(2)
    assert types(listener.take()) == ["created", "in_progress"]
    bench.played.release("hold")
    assert (await listener.take_all())[-1]["type"] == "response.completed"


async def test_a_root_that_is_refused_before_anything_was_told_is_the_answer():
    bench = TreeBench({ROOT: [[fail(429)]]})
    with pytest.raises(UpstreamRefused):
        await bench.stream()


async def test_a_conversation_with_its_client_goes_on_from_what_was_stored():
    bench = TreeBench(
        {
            ROOT: [[spawn("alpha"), wait()], [say("done")], [say("more")]],
            ALPHA: [[call("get_proposal", id="ask_1")], [say("x")]],
        }
    )
    first = await bench.answer()
    output = {"type": "function_call_output", "call_id": "ask_1", "output": "six weeks"}
    second = await bench.answer(previous_response_id=first["id"], input=[output])
    assert [(item["type"], item["agent"]["agent_name"]) for item in second["output"]] == [
        ("message", ALPHA), ("agent_message", ROOT), ("message", ROOT),
    ]  # fmt: skip
    assert bench.played.of(ALPHA)[1].texts[-1] == "six weeks"
    third = await bench.answer(previous_response_id=second["id"], input="and?")
    assert bench.played.of(ROOT)[2].texts[-2:] == ["done", "and?"]
    assert third["previous_response_id"] == second["id"]
