"""What agents write to each other: when it is delivered, told and shown, and what cannot be sent."""

import json

import pytest
from agents.site import TRANSPORTS, Site, errors, items_of, letter, outcomes, texts, told
from harness.agents import call, follow, gate, listing, say, send, spawn, wait

ALPHA, BETA = "/root/alpha", "/root/beta"


@pytest.mark.agents(33)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_childs_answer_reaches_its_parent(transport):
    site = Site({"/root": [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("six ", "weeks")]]})
    response = await site.answer(transport)
    (mail,) = items_of(response, "agent_message", "/root")
    assert (mail["author"], mail["recipient"]) == (ALPHA, "/root")
    assert site.upstream.of("/root")[1].texts[-1] == letter("FINAL_ANSWER", "/root", ALPHA, "six weeks")
    assert site.upstream.of("/root")[1].body["input"][-1]["role"] == "user"
    assert texts(response, ALPHA) == ["six weeks"]
    site.assert_at_rest()


@pytest.mark.agents(34)
async def test_mail_to_a_running_agent_waits_for_its_boundary():
    site = Site(
        {
            "/root": [[spawn("alpha")], [gate("root"), send("alpha", "Hurry.")], [say("done")]],
            ALPHA: [[gate("alpha"), listing()], [say("ok")]],
        }
    )
    async with site.connect() as client:
        client.create()
        await site.upstream.reached("alpha", "root")
        site.upstream.release("root")
        await client.item("message", "/root")
        sent = [item for item in client.items("agent_message") if item["recipient"] == ALPHA]
        assert len(sent) == 1, "the task alone"
        site.upstream.release("alpha")
        events = await client.ended()
    lines = told(events)
    output = lines.index("done multi_agent_call_output send_message /root")
    assert lines.index(f"added agent_message {ALPHA}", output) > output
    assert outcomes(events[-1]["response"])[1] == {}
    assert site.upstream.of(ALPHA)[1].texts[-1] == letter("MESSAGE", ALPHA, "/root", "Hurry.")
    site.assert_at_rest()


@pytest.mark.agents(35)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_mail_to_an_idle_agent_waits_for_its_next_work(transport):
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.", fork_turns="none"), wait()],
                [send("alpha", "By the way.")],
                [gate("look"), follow("alpha", "More."), wait()],
                [say("done")],
            ],
            ALPHA: [[say("six")], [say("seven")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("look")
        assert len(site.upstream.of(ALPHA)) == 1
        site.upstream.release("look")
        response = await answer
    assert site.upstream.of(ALPHA)[1].texts == [
        letter("NEW_TASK", ALPHA, "/root", "Look."),
        "six",
        letter("MESSAGE", ALPHA, "/root", "By the way."),
        letter("NEW_TASK", ALPHA, "/root", "More."),
    ]
    assert texts(response) == ["six", "seven", "done"]
    site.assert_at_rest()


@pytest.mark.agents(36)
async def test_paths_are_absolute_or_of_a_child():
    site = Site(
        {
            "/root": [
                [
                    spawn("alpha"),
                    send("alpha", "relative"),
                    send(ALPHA, "absolute"),
                    send("nobody", "x"),
                    send("/root/nobody", "x"),
                    send("/root", "x"),
                    send("../alpha", "x"),
                ],
                [say("done")],
            ],
            ALPHA: [[say("ok")]],
        }
    )
    response = await site.post()
    assert len(errors(response)) == 4
    last = site.upstream.of(ALPHA)[0].texts[-2:]
    assert last == [letter("MESSAGE", ALPHA, "/root", text) for text in ("relative", "absolute")]
    site.assert_at_rest()


@pytest.mark.agents(36)
async def test_a_path_of_several_names_goes_on_from_the_caller():
    tester = "/root/alpha/tester"
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], [follow("alpha/tester", "Again."), wait(10_000)], [say("done")]],
            ALPHA: [[spawn("tester"), wait()], [say("six")]],
            tester: [[say("green")], [say("red")]],
        }
    )
    response = await site.post()
    assert errors(response) == []
    # The answer goes to the parent, not to who gave the work.
    assert [mail["recipient"] for mail in items_of(response, "agent_message") if mail["author"] == tester] == [
        ALPHA
    ] * 2
    site.assert_at_rest()


@pytest.mark.agents(37)
@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_new_work_for_an_idle_agent_starts_it(transport):
    site = Site(
        {
            "/root": [[spawn("alpha"), wait()], [follow("alpha", "More."), wait()], [say("done")]],
            ALPHA: [[say("six")], [say("seven")]],
        }
    )
    events = await site.events(transport)
    lines = told(events)
    call_ = lines.index("done multi_agent_call followup_task /root")
    assert lines[call_ + 1 : call_ + 4] == [
        f"added agent_message {ALPHA}",
        f"done agent_message {ALPHA}",
        "added multi_agent_call_output followup_task /root",
    ]
    assert texts(events[-1]["response"], ALPHA) == ["six", "seven"]
    site.assert_at_rest()


@pytest.mark.agents(38)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_new_work_for_a_busy_agent_comes_after_its_present_work(transport):
    site = Site(
        {
            "/root": [
                [spawn("alpha", "One.")],
                [gate("root"), follow("alpha", "Two.")],
                [wait()],
                [wait()],
                [say("done")],
            ],
            ALPHA: [[gate("alpha"), listing()], [say("first")], [say("second")]],
        }
    )
    async with site.answering(transport) as answer:
        await site.upstream.reached("alpha", "root")
        site.upstream.release("root")
        await site.upstream.until_asked("/root", 3)
        site.upstream.release("alpha")
        response = await answer
    second, third = site.upstream.of(ALPHA)[1:]
    assert not any("Two." in text for text in second.texts)
    assert third.texts[-2:] == ["first", letter("NEW_TASK", ALPHA, "/root", "Two.")]
    assert texts(response, ALPHA) == ["first", "second"]
    answers = [mail for mail in items_of(response, "agent_message", "/root") if mail["author"] == ALPHA]
    assert len(answers) == 2
    site.assert_at_rest()


@pytest.mark.agents(38)
async def test_two_pieces_of_new_work_are_done_one_after_the_other():
    site = Site(
        {
            "/root": [
                [spawn("alpha", "One.")],
                [gate("root"), follow("alpha", "Two."), send("alpha", "A note."), follow("alpha", "Three.")],
                *[[wait()]] * 3,
                [say("done")],
            ],
            ALPHA: [[gate("alpha"), say("first")], [say("second")], [say("third")]],
        }
    )
    async with site.answering() as answer:
        await site.upstream.reached("alpha", "root")
        site.upstream.release("root")
        await site.upstream.until_asked("/root", 3)
        site.upstream.release("alpha")
        response = await answer
    seen = [asked.texts for asked in site.upstream.of(ALPHA)]
    two, three = (letter("NEW_TASK", ALPHA, "/root", text) for text in ("Two.", "Three."))
    assert (two in seen[1], three in seen[1]) == (True, False)
    assert seen[2][-1] == three
    assert texts(response, ALPHA) == ["first", "second", "third"]
    site.assert_at_rest()


@pytest.mark.agents(39)
async def test_the_root_gets_no_new_work():
    site = Site({"/root": [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[follow("/root", "x")], [say("six")]]})
    response = await site.post()
    assert len(errors(response)) == 1
    site.assert_at_rest()


@pytest.mark.agents(40)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_new_work_with_no_place_free_changes_nothing(transport):
    site = Site(
        {
            "/root": [
                [spawn("alpha", fork_turns="none"), wait()],
                [spawn("beta"), follow("alpha", "Refused.")],
                [wait()],
                [follow("alpha", "Taken."), wait()],
                [say("done")],
            ],
            ALPHA: [[say("six")], [say("seven")]],
            BETA: [[gate("beta"), say("eight")]],
        }
    )
    async with site.answering(transport, multi_agent={"enabled": True, "max_concurrent_subagents": 1}) as answer:
        await site.upstream.reached("beta")
        await site.upstream.until_asked("/root", 3)
        site.upstream.release("beta")
        response = await answer
    assert errors(response) == ["maximum concurrent subagent turns reached"]
    assert site.upstream.of(ALPHA)[1].texts[1:] == ["six", letter("NEW_TASK", ALPHA, "/root", "Taken.")]
    site.assert_at_rest()


@pytest.mark.agents(41)
@pytest.mark.parametrize(
    ("bounds", "letters"),
    [
        ({"max_mailbox_entries": 2}, ["one", "two", "three"]),
        ({"max_mail_bytes": 8}, ["one", "two", "t" * 9, "é" * 5]),
    ],
)
async def test_a_full_mailbox_and_a_large_message_are_errors(bounds, letters):
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.")],
                [gate("root"), *(send("alpha", text) for text in letters)],
                [say("done")],
            ],
            ALPHA: [[gate("alpha"), listing()], [say("ok")]],
        },
        multi_agent=bounds,
    )
    async with site.answering() as answer:
        await site.upstream.reached("alpha", "root")
        site.upstream.release("root")
        await site.upstream.until_asked("/root", 3)
        site.upstream.release("alpha")
        response = await answer
    assert len(errors(response)) == len(letters) - 2
    seen = [text for text in site.upstream.of(ALPHA)[1].texts if "MESSAGE" in text.partition("\n")[0]]
    assert seen == [letter("MESSAGE", ALPHA, "/root", text) for text in letters[:2]]
    site.assert_at_rest()


@pytest.mark.agents(41)
async def test_work_for_a_full_mailbox_is_an_error_too():
    site = Site(
        {
            "/root": [
                [spawn("alpha", "Look.")],
                [gate("root"), send("alpha", "one"), follow("alpha", "two")],
                [say("done")],
            ],
            ALPHA: [[gate("alpha"), listing()], [say("ok")]],
        },
        multi_agent={"max_mailbox_entries": 1},
    )
    async with site.answering() as answer:
        await site.upstream.reached("alpha", "root")
        site.upstream.release("root")
        await site.upstream.until_asked("/root", 3)
        site.upstream.release("alpha")
        response = await answer
    assert len(errors(response)) == 1
    assert len(site.upstream.of(ALPHA)) == 2
    site.assert_at_rest()


@pytest.mark.parametrize(
    "step",
    [
        call("send_message", {"target": "alpha"}),
        call("send_message", {"message": "x"}),
        call("send_message", {"target": 1, "message": "x"}),
        call("send_message", {"target": "alpha", "message": "x", "more": 1}),
        call("followup_task", "nonsense"),
        call("interrupt_agent", {}),
        call("wait_agent", {"timeout_ms": "soon"}),
        call("list_agents", {"path_prefix": 3}),
    ],
)
async def test_wrong_arguments_of_every_action_are_errors(step):
    site = Site({"/root": [[spawn("alpha"), step], [say("done")]], ALPHA: [[say("six")]]})
    response = await site.post()
    assert len(errors(response)) == 1
    assert any("error" in json.loads(text) for text in site.upstream.of("/root")[1].texts if text.startswith("{"))
    site.assert_at_rest()
