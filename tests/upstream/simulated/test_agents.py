from pathlib import Path

import aiohttp
import pytest

from gateway.protocol.agents.mail import Mail, MailKind
from gateway.protocol.agents.prompts import build_guidance
from gateway.upstream.simulated import load_agents, serve_simulator
from gateway.upstream.simulated.agents import Letter, find_agent, read_letter
from gateway.upstream.simulated.personas import find_persona
from gateway.upstream.simulated.requests import read_request

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
    for name in ("get_proposal", "spawn_agent", "wait_agent")
]
ROOT_SCRIPT = """
@tool spawn_agent {"task_name": "alpha"}
@then
@tool wait_agent {}
@say The first.
"""
SCRIPTS = {"/root": [ROOT_SCRIPT, "@say The second."], "/root/alpha": ["@tool get_proposal {}\n@say Six weeks."]}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "{}"}


def user(text):
    return {"type": "message", "role": "user", "content": text}


def mail(kind, text, recipient="/root"):
    return user(Mail(kind=MailKind(kind), author="/root/x", recipient=recipient, payload=text).show())


def answer(agent, *items, scripts=SCRIPTS, **fields):
    """What the model says for an agent: the names it calls, or its words."""
    guidance = build_guidance(agent, None if agent == "/root" else "/root", 3)
    body = {"model": "sim", "instructions": f"Be brief.\n\n{guidance}", "input": list(items), "tools": TOOLS, **fields}
    steps = find_persona("sim").behave(read_request(body, scripts)).plan.steps
    return [getattr(step, "name", step.text) for step in steps]


def test_the_guidance_tells_whom_it_is_for():
    assert find_agent(build_guidance("/root/alpha", "/root", 3)) == "/root/alpha"
    assert find_agent("You are an agent.") is None


def test_letters_are_what_a_model_is_shown_of_mail():
    assert read_letter(mail("NEW_TASK", "Do it.\nNow.", "/root/x")["content"]) == Letter(
        True, "/root/x", "Do it.\nNow."
    )
    assert read_letter(mail("MESSAGE", "")["content"]) == Letter(False, "/root", "")
    assert read_letter("Message Type: a funny one") is None


def test_an_agent_does_what_its_script_says_round_by_round():
    assert answer("/root", user("Compare.")) == ["spawn_agent"]
    assert answer("/root", user("Compare."), OUTPUT) == ["wait_agent"]
    assert answer("/root", user("Compare."), OUTPUT, OUTPUT) == ["The first."]


def test_notes_and_results_leave_it_where_it_is():
    assert answer("/root", user("Compare."), OUTPUT, mail("FINAL_ANSWER", "six"), mail("MESSAGE", "x")) == [
        "wait_agent"
    ]


def test_each_piece_of_work_has_its_script_and_the_last_is_used_ever_after():
    first = (user("Compare."), OUTPUT, OUTPUT)
    assert answer("/root", *first, user("And now?")) == ["The second."]
    assert answer("/root", *first, user("And now?"), user("And now?")) == ["The second."]


def test_what_a_fork_copied_is_no_work_of_the_childs():
    copied = (user("Compare."), user("Again."), mail("NEW_TASK", "Go on.", "/root"))
    scripts = {"/root/alpha": ["@say One.", "@say Two."]}
    assert answer("/root/alpha", *copied, mail("NEW_TASK", "Do.", "/root/alpha"), scripts=scripts) == ["One."]
    assert answer("/root/alpha", *copied, scripts=scripts) == ["One."]


def test_without_a_script_it_does_what_its_message_says():
    assert answer("/root/b", mail("NEW_TASK", "@tool get_proposal {}", "/root/b")) == ["get_proposal"]
    assert answer("/root/b", mail("NEW_TASK", "Look.", "/root/b"))[0].startswith("You said “Look.”")


def test_what_others_wrote_is_quoted():
    assert answer("/root", user("x"), mail("MESSAGE", "six"), mail("FINAL_ANSWER", "risk"), scripts={}) == [
        "Other agents wrote: “six”; “risk”."
    ]
    assert answer("/root", user("x"), OUTPUT, mail("MESSAGE", "six"), scripts={}) == [
        "The tool answered: “{}”. Other agents wrote: “six”."
    ]


def test_a_note_is_written_in_words_of_its_own():
    assert answer("/root", user("Write a note."), tools=[])[0].startswith("You said “Write a note.”")


def test_a_system_message_is_as_good_as_instructions():
    system = {"role": "system", "content": build_guidance("/root/alpha", "/root", 3)}
    asked = read_request({"model": "sim", "input": [system, user("x")], "tools": TOOLS}, SCRIPTS)
    assert asked.script == SCRIPTS["/root/alpha"][0]


async def test_the_server_has_the_scripts(tmp_path):
    path = tmp_path / "agents.toml"
    path.write_text("'/root' = '@say From the file.'")
    async with serve_simulator(agents=load_agents(path)) as served:
        response = await ask(served.url)
    assert response["output"][0]["content"][0]["text"] == "From the file."


async def ask(url):
    body = {"model": "sim", "input": "hi", "tools": TOOLS, "instructions": build_guidance("/root", None, 3)}
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/responses", json=body) as response:
        return await response.json()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("'/root' = 3", "Expected"),
        ("'/root' = []", "nothing for /root"),
        ("= x", "Invalid"),
        ("'/root' = [1]", "Expected"),
    ],
)
def test_a_faulty_file_is_told(tmp_path, text, told):
    path = tmp_path / "agents.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        load_agents(path)


def test_the_example_of_the_page_is_one(tmp_path):
    page = Path(__file__).parents[3] / "docs/reference/simulator.md"
    path = tmp_path / "agents.toml"
    path.write_text(page.read_text().split("```toml\n")[1].split("```")[0])
    assert {agent: len(scripts) for agent, scripts in load_agents(path).items()} == {
        "/root": 1,
        "/root/alpha": 1,
        "/root/beta": 2,
    }
