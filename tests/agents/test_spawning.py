"""Agents that make agents: what is told and what a child is shown, names, forks, and how many there may be."""

import asyncio
import json

import pytest
from agents.site import PROPOSAL, TRANSPORTS, Site, agent_of, errors, items_of, letter, outcomes, output, texts, told
from harness.agent_rules import check_run
from harness.agents import call, follow, gate, interrupt, listing, say, send, spawn, think, wait
from harness.tools import MCP, ScriptedTools, tool, when

ALPHA = "/root/alpha"


def user(text):
    return {"type": "message", "role": "user", "content": text}


@pytest.mark.agents(21)
@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_a_spawn_is_told_call_first_then_the_message_then_the_output(transport):
    site = Site({"/root": [[spawn("alpha", "Look.")], [say("done")]], ALPHA: [[say("six")]]})
    events = await site.events(transport)
    items = [line for line in told(events) if "message /" not in line or "agent_message" in line]
    assert items[2:8] == [
        "added multi_agent_call spawn_agent /root",
        "done multi_agent_call spawn_agent /root",
        "added agent_message /root/alpha",
        "done agent_message /root/alpha",
        "added multi_agent_call_output spawn_agent /root",
        "done multi_agent_call_output spawn_agent /root",
    ]
    assert outcomes(events[-1]["response"])[0] == {"task_name": ALPHA}
    site.assert_at_rest()


@pytest.mark.agents(21)
async def test_a_child_is_told_of_before_anything_of_its_own():
    """Also where a slow tool of the gateway's stands before the call in its round."""
    done = asyncio.Event()
    tools = ScriptedTools({"look": when(done, "seen")}, known=[tool("look")])
    look = call("mcp__s__look", '{"a": "x"}')
    site = Site(
        {
            "/root": [[spawn("beta"), look, spawn("alpha")], [say("A")]],
            ALPHA: [[say("six")]],
            "/root/beta": [[say("b")]],
        },
        tools=tools,
    )
    async with site.connect() as client:
        client.create(tools=[PROPOSAL, MCP])
        await client.item("message", "/root/beta")
        done.set()
        events = await client.ended()
    assert check_run(events) == []
    lines = told(events)
    call_, mail = lines.index("done multi_agent_call spawn_agent /root", 8), lines.index(f"added agent_message {ALPHA}")
    assert call_ < mail < lines.index(f"added message {ALPHA}")
    assert lines.index("done mcp_call look /root") < mail
    site.assert_at_rest()


@pytest.mark.agents(21, 22)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_what_a_client_reads_of_a_spawn(transport):
    site = Site({"/root": [[spawn("alpha", "Look closely.", fork_turns="none")], [say("done")]], ALPHA: [[say("six")]]})
    response = await site.answer(transport)
    made = items_of(response, "multi_agent_call")[0]
    arguments = json.loads(made["arguments"])
    assert {key: arguments[key] for key in ("task_name", "fork_turns")} == {"task_name": "alpha", "fork_turns": "none"}
    assert list(arguments) == ["task_name", "message", "fork_turns"]
    assert arguments["message"] != "Look closely."
    mail = items_of(response, "agent_message", ALPHA)[0]
    assert (mail["author"], mail["recipient"]) == ("/root", ALPHA)
    (part,) = mail["content"]
    assert part["type"] == "encrypted_content"
    assert part["encrypted_content"] != "Look closely."
    assert "status" not in made
    done = items_of(response, "multi_agent_call_output")[0]
    assert (made["id"][:4], mail["id"][:5], done["id"][:5]) == ("mac_", "amsg_", "maco_")
    site.assert_at_rest()


@pytest.mark.agents(22)
async def test_arguments_that_are_no_json_are_sealed_whole():
    site = Site({"/root": [[call("spawn_agent", '{"message": "secret plan')], [say("done")]]})
    response = await site.post()
    (made,) = items_of(response, "multi_agent_call")
    assert json.loads(made["arguments"])[0] == "sealed"
    assert len(errors(response)) == 1


@pytest.mark.agents(22)
async def test_plain_messages_where_the_operator_says_so():
    site = Site(
        {"/root": [[spawn("alpha", "Look closely.")], [say("done")]], ALPHA: [[say("six")]]},
        multi_agent={"message_visibility": "plain"},
    )
    response = await site.post()
    assert json.loads(items_of(response, "multi_agent_call")[0]["arguments"])["message"] == "Look closely."
    assert items_of(response, "agent_message", ALPHA)[0]["content"] == [{"type": "input_text", "text": "Look closely."}]


@pytest.mark.agents(23)
async def test_a_child_without_a_fork_sees_its_task_alone():
    site = Site({"/root": [[spawn("alpha", "Look.", fork_turns="none")], [say("done")]], ALPHA: [[say("six")]]})
    await site.post(instructions="Be brief.")
    (asked,) = site.upstream.of(ALPHA)
    assert asked.texts == [letter("NEW_TASK", ALPHA, "/root", "Look.")]
    assert asked.body["input"][0]["role"] == "user"
    assert asked.body["instructions"].startswith("Be brief.\n\nYou are agent `/root/alpha`")
    assert [tool["name"] for tool in asked.body["tools"]] == [
        tool["name"] for tool in site.upstream.of("/root")[0].body["tools"]
    ]


@pytest.mark.agents(24)
async def test_a_full_fork_is_what_came_before_the_spawn():
    site = Site(
        {
            "/root": [
                [call("get_proposal", {"proposal": "beta"}, id="call_p1")],
                [think("hm"), say("so far"), spawn("alpha", "Look.")],
                [say("done")],
            ],
            ALPHA: [[say("six")]],
        }
    )
    parent = await site.post(input=[user("first"), user("second")])
    await site.post(previous_response_id=parent["id"], input=[output("call_p1", "eight")])
    (asked,) = site.upstream.of(ALPHA)
    assert asked.texts == [
        "first",
        "second",
        '{"proposal": "beta"}',
        "eight",
        letter("NEW_TASK", ALPHA, "/root", "Look."),
    ]
    site.assert_at_rest()


@pytest.mark.agents(24)
async def test_a_call_without_its_output_is_not_copied():
    ask = call("get_proposal", {"proposal": "x"}, id="call_p1")
    site = Site({"/root": [[ask, spawn("alpha", "Look.")]], ALPHA: [[say("six")]]})
    response = await site.post()
    (asked,) = site.upstream.of(ALPHA)
    assert asked.texts == ["Compare.", letter("NEW_TASK", ALPHA, "/root", "Look.")]
    assert response["status"] == "completed"
    site.assert_at_rest()


@pytest.mark.agents(24)
async def test_nor_is_one_of_a_round_that_was_interrupted_and_no_thought():
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.", fork_turns="none")],
                [gate("root"), interrupt("alpha"), follow("alpha", "Again."), wait()],
                [say("done")],
            ],
            ALPHA: [
                [think("hm"), say("so far"), call("get_proposal", {"proposal": "x"}, id="call_p1")],
                [spawn("sub", "Yours."), wait()],
                [say("six")],
            ],
            "/root/alpha/sub": [[say("s")]],
        }
    )
    async with site.answering() as answer:
        await site.upstream.until_asked(ALPHA, 1)
        await site.upstream.until_closed(ALPHA)
        site.upstream.release("root")
        await answer
    assert site.upstream.of("/root/alpha/sub")[0].texts == [
        letter("NEW_TASK", ALPHA, "/root", "Look."),
        "so far",
        letter("NEW_TASK", ALPHA, "/root", "Again."),
        letter("NEW_TASK", "/root/alpha/sub", ALPHA, "Yours."),
    ]
    site.assert_at_rest()


@pytest.mark.agents(25)
@pytest.mark.parametrize(("turns", "seen"), [("1", ["third"]), ("2", ["second", "b", "third"]), ("9", None)])
async def test_a_fork_of_some_turns(turns, seen):
    site = Site(
        {
            "/root": [[say("a")], [say("b")], [spawn("alpha", "Look.", fork_turns=turns)], [say("d")]],
            ALPHA: [[say("6")]],
        }
    )
    first = await site.post(input="first")
    second = await site.post(input="second", previous_response_id=first["id"])
    await site.post(input="third", previous_response_id=second["id"])
    (asked,) = site.upstream.of(ALPHA)
    assert asked.texts[:-1] == (seen or ["first", "a", "second", "b", "third"])


@pytest.mark.agents(25)
@pytest.mark.parametrize("turns", ["0", "-1", "x", "1.5", "", 1])
async def test_any_other_word_for_a_fork_is_an_error(turns):
    site = Site({"/root": [[spawn("alpha", "Look.", fork_turns=turns)], [listing()], [say("done")]]})
    response = await site.post()
    assert len(errors(response)) == 1
    assert len(outcomes(response)[1]["agents"]) == 1
    site.assert_at_rest()


@pytest.mark.agents(26)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_child_of_a_child_answers_the_child(transport):
    tester = "/root/alpha/tester"
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], [say("done")]],
            ALPHA: [[spawn("tester"), wait()], [say("tested")]],
            tester: [[say("green")]],
        }
    )
    response = await site.answer(transport)
    (mail,) = items_of(response, "agent_message", ALPHA)[1:]
    assert (mail["author"], mail["recipient"]) == (tester, ALPHA)
    assert site.upstream.of(ALPHA)[1].texts[-1] == letter("FINAL_ANSWER", ALPHA, tester, "green")
    assert "`/root/alpha`" in site.upstream.of(tester)[0].body["instructions"]
    site.assert_at_rest()


@pytest.mark.agents(27)
async def test_a_name_is_used_once_finished_or_not():
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("alpha"), wait()], [spawn("alpha")], [say("done")]],
            ALPHA: [[say("six")]],
        }
    )
    response = await site.post()
    assert len(errors(response)) == 2
    site.assert_at_rest()


@pytest.mark.agents(28)
@pytest.mark.parametrize(
    "arguments",
    [
        {"task_name": "Alpha", "message": "x"},
        {"task_name": "a/b", "message": "x"},
        {"task_name": "", "message": "x"},
        {"task_name": "a" * 65, "message": "x"},
        {"task_name": 7, "message": "x"},
        {"message": "x"},
        {"task_name": "alpha"},
        {"task_name": "alpha", "message": 7},
        {"task_name": "alpha", "message": "x", "model": "m"},
        "{not json",
        "[]",
        "",
    ],
)
async def test_a_wrong_spawn_is_an_error_and_the_agent_goes_on(arguments):
    site = Site({"/root": [[call("spawn_agent", arguments)], [say("done")]]})
    response = await site.post()
    assert len(errors(response)) == 1
    assert texts(response) == ["done"]
    # The model reads what was wrong.
    assert json.loads(site.upstream.of("/root")[1].texts[-1])["error"]
    site.assert_at_rest()


@pytest.mark.agents(28)
async def test_all_of_them_in_one_round():
    site = Site(
        {
            "/root": [
                [
                    call("spawn_agent", {"task_name": "B!", "message": "x"}),
                    call("spawn_agent", {"task_name": "b"}),
                    call("spawn_agent", "nonsense"),
                    call("spawn_agent", {"task_name": "b", "message": "x", "more": 1}),
                ],
                [say("done")],
            ]
        }
    )
    response = await site.post()
    assert len(errors(response)) == 4
    assert texts(response) == ["done"]
    site.assert_at_rest()


@pytest.mark.agents(29)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_three_run_at_once_and_a_fourth_is_too_many(transport):
    names = ("alpha", "beta", "gamma")
    site = Site(
        {
            "/root": [[*map(spawn, names), spawn("delta")], [say("done")]],
            **{f"/root/{name}": [[say("on ", gate(name), "it")]] for name in names},
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached(*names)
        assert set(site.upstream.running) >= {f"/root/{name}" for name in names}
        site.upstream.release(*names)
        response = await answer
    assert errors(response) == ["maximum concurrent subagent turns reached"]
    assert sorted(texts(response)) == ["done", "on it", "on it", "on it"]
    site.assert_at_rest()


@pytest.mark.agents(30)
async def test_a_place_is_free_when_its_agent_is_idle():
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta"), wait()], [spawn("beta"), wait()], [say("done")]],
            ALPHA: [[say("six")]],
            "/root/beta": [[say("eight")]],
        }
    )
    response = await site.post(multi_agent={"enabled": True, "max_concurrent_subagents": 1})
    assert errors(response) == ["maximum concurrent subagent turns reached"]
    assert texts(response) == ["six", "eight", "done"]
    site.assert_at_rest()


@pytest.mark.agents(31)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_agent_that_waits_for_the_client_takes_a_place(transport):
    ask = call("get_proposal", {"proposal": "alpha"}, id="call_p1")
    script = {"/root": [[spawn("alpha"), wait()], [spawn("beta")], [say("done")]], ALPHA: [[send("/root", "hi"), ask]]}
    site = Site(script)
    response = await site.answer(transport, multi_agent={"enabled": True, "max_concurrent_subagents": 1})
    assert errors(response) == ["maximum concurrent subagent turns reached"]
    site.assert_at_rest()


@pytest.mark.agents(32)
@pytest.mark.parametrize(
    ("bounds", "made"),
    [({"max_depth": 1}, 2), ({"max_agents_total": 1}, 2), ({"max_depth": 0, "max_agents_total": 0}, 4)],
)
async def test_depth_and_number_are_bounded(bounds, made):
    deep = [[spawn("sub"), spawn("other"), wait()], [say("x")]]
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], [listing()], [say("done")]],
            ALPHA: deep,
            "/root/alpha/sub": [[say("s")]],
            "/root/alpha/other": [[say("o")]],
        },
        multi_agent=bounds,
    )
    response = await site.post()
    listed = next(found for found in outcomes(response) if "agents" in found)
    assert len(listed["agents"]) == made
    assert bool(errors(response)) == (made == 2)
    site.assert_at_rest()


async def test_who_is_asked_for_what():
    """An engine that is asked at the same time for several agents, and the client that reads all of it."""
    site = Site(
        {
            "/root": [[spawn("alpha"), spawn("beta")], [say("done")]],
            ALPHA: [[say("a", gate("a"), "a")]],
            "/root/beta": [[say("b", gate("b"), "b")]],
        }
    )
    async with site.connect() as client:
        client.create()
        await site.upstream.reached("a", "b")
        site.upstream.release("b")
        await client.item("message", "/root/beta")
        site.upstream.release("a")
        events = await client.ended()
    deltas = [agent_of(event) for event in events if event["type"] == "response.output_text.delta"]
    assert deltas.index("/root/beta") < len(deltas) - 1 - deltas[::-1].index(ALPHA)
    site.assert_at_rest()
