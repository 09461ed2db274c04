"""Outputs that a client sends into a running response, as the client sees it."""

import asyncio

import pytest
from agents.site import Site, output, texts, told
from engine.doubles import settle
from harness.agent_rules import TERMINALS, check_run
from harness.agents import PLAIN, call, gate, say, spawn, wait

from gateway.protocol.errors import Unauthorized

ALPHA, BETA = "/root/alpha", "/root/beta"


def ask(number=1):
    return call("get_proposal", {"proposal": f"p{number}"}, id=f"call_p{number}")


def running(*alpha, first=None):
    """Alpha has called; beta is held at its gate; the root waits for both."""
    return {
        "/root": [[spawn("alpha"), spawn("beta"), wait()], [wait()], [say("done")]],
        ALPHA: [first or [ask()], *(alpha or [[say("six")]])],
        BETA: [[say("nine ", gate("beta"), "weeks")]],
    }


async def begin(client, calls=1, **fields):
    """Create, and wait until alpha has made its calls; returns the id of the response."""
    client.create(**fields)
    lane = fields.get("lane")
    while sum(is_call(frame) for frame in client.on(lane)) < calls:
        await client.socket.arrival()
    await client.site.upstream.reached("beta")
    return client.on(lane)[0]["response"]["id"]


def is_call(frame):
    return frame["type"] == "response.output_item.done" and frame["item"]["type"] == "function_call"


def answers(client):
    """What was told of injects so far."""
    return [frame for frame in client.socket.frames if frame["type"].startswith("response.inject.")]


async def answered(client, count):
    """Wait for the n-th answer to an inject."""
    while len(answers(client)) < count:
        await client.socket.arrival()
    return answers(client)[count - 1]


def outcome(frame):
    return frame["type"].removeprefix("response.inject."), (frame.get("error") or {}).get("code")


@pytest.mark.agents(66)
async def test_the_order_of_everything():
    site = Site(
        {
            "/root": [
                [spawn("alpha"), spawn("beta")],
                [gate("root"), wait()],
                [gate("more"), wait()],
                [say("Pick alpha.")],
            ],
            ALPHA: [[ask()], [say("alpha: 6 weeks")]],
            BETA: [[say("beta looks ", gate("beta"), "slow but safe")]],
        }
    )
    given = output("call_p1", '{"weeks":6}')
    async with site.connect() as client:
        client.create()
        await site.upstream.reached("beta", "root")
        await client.event("response.output_text.delta", BETA)
        asked = await client.item("function_call", ALPHA)
        client.inject(await client.begun(), given)
        await client.item("message", ALPHA)
        site.upstream.release("root")
        await site.upstream.reached("more")
        site.upstream.release("beta")
        await client.item("message", BETA)
        site.upstream.release("more")
        events = list(await client.ended())
        client.inject(events[0]["response"]["id"], output("call_p1", "late"))
        events.append(await answered(client, 2))
    assert asked["call_id"] == "call_p1"
    assert check_run(events, [{"input": [given]}, {"input": [output("call_p1", "late")]}]) == []
    lines = told(events)

    def place(*wanted):
        places = [lines.index(line) for line in wanted]
        assert places == sorted(places), wanted

    spawned = [at for at, line in enumerate(lines) if line == "done multi_agent_call spawn_agent /root"]
    for at, path in zip(spawned, (ALPHA, BETA), strict=True):
        assert lines[at + 1 : at + 4] == [
            f"added agent_message {path}",
            f"done agent_message {path}",
            "added multi_agent_call_output spawn_agent /root",
        ]
    place(f"done function_call get_proposal {ALPHA}", "inject.created", f"added message {ALPHA}")
    # Two items are open at the same time.
    place(f"added message {BETA}", f"added message {ALPHA}", f"done message {ALPHA}", f"done message {BETA}")
    # Each letter is told at the root's next boundary.
    delivered = [at for at, line in enumerate(lines) if line == "added agent_message /root"]
    waited = [at for at, line in enumerate(lines) if line == "done multi_agent_call_output wait_agent /root"]
    assert [at - 1 for at in delivered] == waited
    place(
        f"done message {ALPHA}", "added agent_message /root", f"done message {BETA}", "added message /root", "completed"
    )
    assert lines[-1] == "inject.failed"
    assert events[-1]["sequence_number"] == events[-2]["sequence_number"] + 1
    assert site.upstream.of(ALPHA)[1].texts[-1] == '{"weeks":6}'
    site.assert_at_rest()


@pytest.mark.agents(67)
async def test_an_unknown_response():
    site = Site()
    async with site.connect() as client:
        for number in (0, 1):
            client.inject("resp_unknown", output("call_p1", "x"))
            frame = await answered(client, number + 1)
            assert frame == {
                "type": "response.inject.failed",
                "sequence_number": number,
                "response_id": "resp_unknown",
                "input": [output("call_p1", "x")],
                "error": {"code": "response_not_found", "message": "Response 'resp_unknown' was not found."},
            }
    site.assert_at_rest()


@pytest.mark.agents(68)
async def test_a_response_of_another_connection():
    site = Site(running())
    async with site.connect() as client, site.connect() as other:
        response_id = await begin(client)
        other.inject(response_id, output("call_p1"))
        assert outcome(await answered(other, 1)) == ("failed", "response_not_found")
        client.inject(response_id, output("call_p1"))
        assert outcome(await answered(client, 1)) == ("created", None)
        site.upstream.release("beta")
        assert (await client.ended())[-1]["type"] == "response.completed"
    site.assert_at_rest()


@pytest.mark.agents(69)
async def test_what_comes_too_late_goes_on_with_a_create():
    site = Site({"/root": [[ask()], [say("alpha")]]})
    async with site.connect() as client:
        client.create()
        events = await client.ended()
        response_id = events[0]["response"]["id"]
        client.inject(response_id, output("call_p1", "6"))
        frame = await answered(client, 1)
        assert frame["sequence_number"] == len(events)
        assert frame["error"] == {
            "code": "response_already_completed",
            "message": f"Response '{response_id}' has already completed.",
        }
        client.create(previous_response_id=response_id, input=frame["input"])
        response = (await client.event("response.completed", count=2))["response"]
    assert texts(response) == ["alpha"]
    assert site.upstream.of("/root")[1].texts[-1] == "6"
    site.assert_at_rest()


REFUSED = {
    "twice in a batch": (
        [output("call_p1", "1"), output("call_p1", "2")],
        "Tool call 'call_p1' already has an output.",
    ),
    "an unknown one": (
        [output("call_p1"), output("call_p9")],
        "Tool call 'call_p9' is not pending on response '{id}'.",
    ),
    "the wrong kind": ([{"type": "custom_tool_call_output", "call_id": "call_p1", "output": "x"}], None),
    "nothing": ([], None),
    "a message": ([{"type": "message", "role": "user", "content": "x"}], None),
    "a message beside an output": ([output("call_p1"), {"type": "message", "role": "user", "content": "x"}], None),
    "an action's": ([output("call_wait", "x")], "Tool call 'call_wait' is not pending on response '{id}'."),
}


@pytest.mark.agents(70, 71, 75, 76)
@pytest.mark.parametrize("case", REFUSED)
async def test_a_wrong_batch_is_refused_whole(case):
    given, message = REFUSED[case]
    script = running()
    script["/root"][0][2] = wait(id="call_wait")
    site = Site(script)
    async with site.connect() as client:
        response_id = await begin(client)
        client.inject(response_id, *given)
        frame = await answered(client, 1)
        assert outcome(frame) == ("failed", "invalid_input")
        assert frame["input"] == given
        assert set(frame["error"]) == {"code", "message"}
        if message is not None:
            assert frame["error"]["message"] == message.format(id=response_id)
        await settle(50)
        assert len(site.upstream.of(ALPHA)) == 1, "nothing of it was applied"
        client.inject(response_id, output("call_p1", "right"))
        assert outcome(await answered(client, 2)) == ("created", None)
        site.upstream.release("beta")
        events = await client.ended()
    assert check_run(events, [{"input": given}, {"input": [output("call_p1", "right")]}]) == []
    assert [text for text in site.upstream.of(ALPHA)[1].texts if text == "right"] == ["right"]
    site.assert_at_rest()


@pytest.mark.agents(72)
async def test_the_same_again():
    site = Site(running([gate("alpha"), say("six")]))
    async with site.connect() as client:
        response_id = await begin(client)
        for _ in range(2):
            client.inject(response_id, output("call_p1", "6"))
        second = await answered(client, 2)
        assert [outcome(frame) for frame in answers(client)] == [("created", None), ("failed", "invalid_input")]
        assert second["error"]["message"] == "Tool call 'call_p1' already has an output."
        site.upstream.release("beta", "alpha")
        await client.ended()
    assert site.upstream.of(ALPHA)[1].texts.count("6") == 1
    site.assert_at_rest()


@pytest.mark.agents(73)
async def test_an_agent_goes_on_with_its_last_output():
    site = Site(running(first=[ask(1), ask(2)]))
    async with site.connect() as client:
        response_id = await begin(client, calls=2)
        client.inject(response_id, output("call_p2", "second"))
        assert outcome(await answered(client, 1)) == ("created", None)
        await settle(50)
        assert len(site.upstream.of(ALPHA)) == 1
        client.inject(response_id, output("call_p1", "first"))
        await client.item("message", ALPHA)
        site.upstream.release("beta")
        await client.ended()
    # Each output stands behind its call.
    assert site.upstream.of(ALPHA)[1].texts[-4:] == ['{"proposal": "p1"}', "first", '{"proposal": "p2"}', "second"]
    site.assert_at_rest()


@pytest.mark.agents(74)
async def test_one_batch_for_two_agents():
    script = running()
    script["/root"] = [[*map(spawn, ("alpha", "beta", "gamma")), wait()], *[[wait()]] * 2, [say("done")]]
    script["/root/gamma"] = [[ask(2)], [say("ten")]]
    site = Site(script)
    async with site.connect() as client:
        response_id = await begin(client, calls=2)
        client.inject(response_id, output("call_p2", "of gamma"), output("call_p1", "of alpha"))
        await client.item("message", ALPHA)
        await client.item("message", "/root/gamma")
        assert len(answers(client)) == 1
        site.upstream.release("beta")
        assert (await client.ended())[-1]["type"] == "response.completed"
    assert site.upstream.of(ALPHA)[1].texts[-1] == "of alpha"
    assert site.upstream.of("/root/gamma")[1].texts[-1] == "of gamma"
    site.assert_at_rest()


MALFORMED = {
    "no response": {"input": []},
    "a response that is no text": {"response_id": 7, "input": []},
    "an empty response": {"response_id": "", "input": []},
    "no input": {"response_id": "ID"},
    "input that is no list": {"response_id": "ID", "input": "x"},
    "an element that is no object": {"response_id": "ID", "input": ["x"]},
    "an element without a type": {"response_id": "ID", "input": [{"call_id": "call_p1", "output": "x"}]},
    "no call": {"response_id": "ID", "input": [{"type": "function_call_output", "output": "x"}]},
    "no output": {"response_id": "ID", "input": [{"type": "function_call_output", "call_id": "call_p1"}]},
}


@pytest.mark.agents(77)
@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_frame_ends_the_connection(case):
    site = Site(running())
    async with site.connect() as client:
        response_id = await begin(client)
        given = MALFORMED[case]
        named = {"response_id": response_id} if given.get("response_id") == "ID" else {}
        client.socket.say({"type": "response.inject", **given, **named})
        code, _ = await client.closed()
        assert code == 1008
        last = client.socket.frames[-1]
    assert (last["type"], last["status"], last["error"]["type"]) == ("error", 400, "invalid_request_error")
    assert not any(frame["type"] in TERMINALS - {"error"} for frame in client.socket.frames)
    assert site.store.appended == []
    site.assert_at_rest()


@pytest.mark.agents(77)
async def test_further_keys_are_passed_over():
    site = Site(running())
    async with site.connect() as client:
        response_id = await begin(client)
        client.inject(response_id, {**output("call_p1"), "status": "completed"}, stream_id="x", event_id="e", more=1)
        assert outcome(await answered(client, 1)) == ("created", None)
        site.upstream.release("beta")
        await client.ended()
    site.assert_at_rest()


@pytest.mark.agents(78)
async def test_a_response_of_one_agent_takes_none():
    site = Site({PLAIN: [[say("one ", gate("plain"), "two")]]})
    async with site.connect() as client:
        client.create(multi_agent=None)
        await site.upstream.reached("plain")
        client.inject(await client.begun(), output("call_p1"))
        frame = await answered(client, 1)
        assert outcome(frame) == ("failed", "invalid_input")
        site.upstream.release("plain")
        events = await client.ended()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert texts(events[-1]["response"]) == ["one two"]
    site.assert_at_rest()


@pytest.mark.agents(79, 80)
async def test_an_output_overtakes_the_creates_of_its_lane():
    script = running()
    script["/root"].append([say("second")])
    site = Site(script)
    async with site.connect() as client:
        response_id = await begin(client, lane="one")
        client.create(lane="one", input="B")
        client.inject(response_id, output("call_p1"))
        frame = await answered(client, 1)
        assert (outcome(frame), frame["stream_id"]) == (("created", None), "one")
        assert sum(frame["type"] == "response.created" for frame in client.on("one")) == 1
        site.upstream.release("beta")
        first = await client.ended("one", 1)
        second = await client.ended("one", 2)
        client.inject(response_id, output("call_p1"))
        assert (await answered(client, 2))["stream_id"] == "one"
    assert {frame["stream_id"] for frame in (*first, *second)} == {"one"}
    assert texts(second[-1]["response"]) == ["second"]
    site.assert_at_rest()


@pytest.mark.agents(66, 80)
async def test_two_trees_at_once_on_two_lanes():
    """Their agents have the same names and calls; each output goes to its own."""
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], [spawn("alpha"), wait()], [say("done")], [say("done")]],
            ALPHA: [[ask()], [ask()], [gate("alpha"), say("six")], [say("nine")]],
        }
    )
    async with site.connect() as client:
        ids = {}
        for lane in ("one", "two"):
            client.create(lane=lane)
            while not any(is_call(frame) for frame in client.on(lane)):
                await client.socket.arrival()
            ids[lane] = client.on(lane)[0]["response"]["id"]
        for number, lane in enumerate(("one", "two"), 1):
            client.inject(ids[lane], output("call_p1", f"of {lane}"))
            assert outcome(await answered(client, number)) == ("created", None)
        site.upstream.release("alpha")
        runs = [await client.ended("one"), await client.ended("two")]
    for events, lane in zip(runs, ("one", "two"), strict=True):
        assert check_run(events, [{"input": [output("call_p1", f"of {lane}")]}]) == []
        assert {event["stream_id"] for event in events} == {lane}
    assert [asked.texts[-1] for asked in site.upstream.of(ALPHA)[2:]] == ["of one", "of two"]
    assert sorted(texts(events[-1]["response"])[0] for events in runs) == ["nine", "six"]
    site.assert_at_rest()


@pytest.mark.agents(81)
async def test_a_client_that_does_not_read_may_send_so_many():
    site = Site(running())
    async with site.connect() as client:
        response_id = await begin(client)
        client.socket.pause()
        for number in range(33):
            client.inject(response_id, output(f"call_{number}"))
        await settle(300)
        client.socket.resume()
        refused = await client.event("error")
        assert (refused["status"], refused["error"]["code"]) == (429, "too_many_pending_injections")
        assert response_id in refused["error"]["message"]
        await answered(client, 32)
        assert {outcome(frame) for frame in answers(client)} == {("failed", "invalid_input")}
        client.inject(response_id, output("call_p1"))
        assert outcome(await answered(client, 33)) == ("created", None)
        site.upstream.release("beta")
        await client.event("response.completed")
    site.assert_at_rest()


@pytest.mark.agents(83)
async def test_what_has_ended_is_known_for_a_minute():
    site = Site({"/root": [[say("hi")]] * 2})
    async with site.connect() as client:
        client.create()
        response_id = (await client.ended())[0]["response"]["id"]
        for seconds, code in ((59, "response_already_completed"), (2, "response_not_found")):
            site.clock.seconds += seconds
            await asyncio.sleep(seconds)
            client.inject(response_id, output("call_p1"))
            frame = await answered(client, 1 + (seconds == 2))
            assert outcome(frame) == ("failed", code)
    site.assert_at_rest()


@pytest.mark.agents(83)
async def test_of_too_many_the_oldest_is_forgotten():
    site = Site({"/root": [[say("hi")]] * 129})
    async with site.connect() as client:
        ids = []
        for number in range(129):
            client.create()
            ids.append((await client.ended(count=number + 1))[0]["response"]["id"])
        for place, (number, code) in enumerate(
            ((0, "response_not_found"), (1, "response_already_completed"), (128, "response_already_completed"))
        ):
            client.inject(ids[number], output("call_p1"))
            assert outcome(await answered(client, place + 1)) == ("failed", code)
    site.assert_at_rest()


@pytest.mark.agents(85)
async def test_an_output_of_parts_reaches_the_model_as_it_is():
    parts = [{"type": "input_text", "text": "six"}, {"type": "input_text", "text": " weeks"}]
    site = Site(running())
    async with site.connect() as client:
        response_id = await begin(client)
        client.inject(response_id, output("call_p1", parts))
        assert outcome(await answered(client, 1)) == ("created", None)
        site.upstream.release("beta")
        await client.ended()
    assert site.upstream.of(ALPHA)[1].body["input"][-1]["output"] == parts
    site.assert_at_rest()


@pytest.mark.agents(86)
async def test_without_the_header_the_event_is_unknown():
    site = Site({PLAIN: [[say("one ", gate("plain"), "two")]]})
    async with site.connect(beta=False) as client:
        client.create(multi_agent=None)
        await site.upstream.reached("plain")
        client.inject(await client.begun(), output("call_p1"))
        frame = await client.event("error")
        assert (frame["status"], frame["error"]["type"]) == (400, "invalid_request_error")
        site.upstream.release("plain")
        completed = await client.event("response.completed")
    assert texts(completed["response"]) == ["one two"]
    site.assert_at_rest()


@pytest.mark.agents(87)
async def test_with_an_expired_token_nothing_is_applied():
    expired = []

    def check():
        if expired:
            raise Unauthorized("The token has expired.")

    site = Site(running())
    async with site.connect(check_caller=check) as client:
        response_id = await begin(client)
        expired.append(True)
        client.inject(response_id, output("call_p1"))
        frame = await client.until(lambda frame: frame["type"] == "error")
        assert frame["status"] == 401
        assert answers(client) == []
        await settle(50)
        assert len(site.upstream.of(ALPHA)) == 1
    assert site.store.appended == []
