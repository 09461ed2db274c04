import io
import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from rich.console import Console

from gateway.cli import agents_tour, demo, stage
from gateway.cli.agents_tour import AgentsTour, Narrator, build_agents_stage
from gateway.cli.children import ChildFailed, choose_ports
from gateway.cli.voices import Voices

ROOT, ALPHA, BETA = "/root", "/root/alpha", "/root/beta"


@pytest.fixture
def untouched_signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("untouched_signals")
def test_the_tour_shows_every_step_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(agents_tour, "_PACE", "0.01")
    # Where a demo likes to be, that of another test may be about to listen.
    monkeypatch.setattr(stage, "choose_ports", lambda *preferred: choose_ports(*[0] * len(preferred)))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = CliRunner().invoke(demo.command, ["--agents", "--once"])
    assert result.exit_code == 0, result.output
    agents, continued, steered = re.split(r"^━━ .*\n", result.output, flags=re.MULTILINE)[1:]
    said = [tuple(line.split(None, 1)) for line in agents.splitlines() if line.startswith("  /root")]
    told = [
        said.index((who, what))
        for who, what in (
            (ROOT, "starts alpha: Look at proposal alpha."),
            (ALPHA, "reads from /root: Look at proposal alpha."),
            (ROOT, "starts beta: Look at proposal beta."),
            (ROOT, "waits for news"),
            (ALPHA, 'calls get_proposal {"proposal": "alpha"}'),
            (ALPHA, 'you, by response.inject: {"estimated_weeks": 6, "risk": "medium"}'),
            (ALPHA, "writes to /root/beta: Mine takes six weeks."),
            (ALPHA, "Alpha takes six weeks, at medium risk."),
            (ROOT, "reads from /root/alpha: Alpha takes six weeks, at medium risk."),
            (ROOT, "looks who is there"),
            (ROOT, "sees /root running, /root/alpha completed, /root/beta completed"),
            (ROOT, "Alpha is quicker, beta is safer. I would take beta."),
        )
    ]
    assert told == sorted(told)
    (changes,) = re.findall(r"^  (\d+) times another agent spoke", agents, re.MULTILINE)
    assert int(changes) > 2
    for line in (
        "gives beta a further task: Write the plan.",
        "stops beta",
        "sees /root running, /root/alpha completed, /root/beta interrupted",
        "Beta has put down the pen. Alpha it is.",
    ):
        assert f"  /root        {line}\n" in continued
    assert "you, by response.steer: Only places that are open on Sundays." in steered
    first, _, second = steered.partition("ends as incomplete, steered")
    assert "the next one" not in first
    assert "begins by itself" in second
    assert "You said “Only places that are open on Sundays.”" in " ".join(re.split(r"\n  the next one ", second))
    assert "That was the tour." in result.output.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def tell(*items: dict) -> str:
    used = Console(file=io.StringIO(), width=200)
    with Voices(used, {ROOT: "white", ALPHA: "yellow"}) as voices:
        narrator = Narrator(voices)
        for item in items:
            event = {"type": "response.output_item.done", "agent": {"agent_name": ROOT}, "item": item}
            narrator.hear(event)
    return used.file.getvalue()


@pytest.mark.parametrize(
    ("action", "arguments", "words"),
    [
        ("spawn_agent", '{"task_name": "a", "message": "Do it."}', "starts a: Do it."),
        ("send_message", '{"target": "/root/a", "message": "Six."}', "writes to /root/a: Six."),
        ("followup_task", '{"target": "a", "message": "Again."}', "gives a a further task: Again."),
        ("wait_agent", "", "waits for news"),
        ("interrupt_agent", '{"target": "a"}', "stops a"),
        ("list_agents", "{}", "looks who is there"),
    ],
)
def test_every_action_has_words(action, arguments, words):
    assert tell({"type": "multi_agent_call", "action": action, "arguments": arguments}) == f"  /root        {words}\n"


def test_of_outputs_only_a_list_is_told():
    statuses = {"/root": "running", "/root/a": {"completed": "x"}}
    agents = [{"agent_name": name, "agent_status": status} for name, status in statuses.items()]
    listed = json.dumps({"agents": agents})
    output = {"type": "multi_agent_call_output", "action": "list_agents", "output": [{"text": listed}]}
    assert tell(output, {**output, "action": "wait_agent"}) == "  /root        sees /root running, /root/a completed\n"


class Frames:
    """A client that has every frame ready."""

    def __init__(self, frames, streamed=()) -> None:
        self._frames = list(frames)
        self._streamed = streamed

    @contextmanager
    def open_lanes(self):
        yield self

    def create(self, lane, request):
        pass

    def send(self, frame):
        pass

    def read(self):
        return self._frames.pop(0)

    def stream(self, request):
        yield from self._streamed


def ended(status: str, **fields) -> dict:
    response = {"id": "resp_1", "status": status, "incomplete_details": None, "output": [], **fields}
    return {"type": f"response.{status}", "response": response}


CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
TAKEN = {"type": "response.inject.created"}
CALL = {
    "type": "response.output_item.done",
    "agent": {"agent_name": ALPHA},
    "item": {"type": "function_call", "name": "get_proposal", "arguments": "{}", "call_id": "c"},
}
AGENTS = [CREATED, CALL, TAKEN, ended("completed")]
STOPPED = [ended("completed", output=[{"action": "interrupt_agent"}])]
STEERED = ended("incomplete", incomplete_details={"reason": "steered"})


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (Frames([{"type": "error", "error": {"message": "why"}}]), "ended with error: .*why"),
        (Frames([CREATED, ended("failed", error="why")]), "ended with response.failed: why"),
        (Frames([CREATED, CALL, ended("completed")]), "what the tool returned was not taken"),
        (Frames(AGENTS, []), "ended with nothing"),
        (Frames(AGENTS, [ended("completed")]), "nobody was interrupted"),
        (Frames([*AGENTS, CREATED, ended("completed")], STOPPED), "ended with response.completed"),
        (Frames([*AGENTS, ended("incomplete")], STOPPED), "was not steered: None"),
        (
            Frames([*AGENTS, STEERED, CREATED, ended("completed", previous_response_id="resp_1")], STOPPED),
            "did not arrive",
        ),
    ],
)
def test_a_wrong_answer_fails_the_tour(tmp_path, client, reason):
    tour = AgentsTour(Console(file=io.StringIO()), build_agents_stage(tmp_path))
    tour._client = client
    with pytest.raises(ChildFailed, match=reason):
        tour.run()
