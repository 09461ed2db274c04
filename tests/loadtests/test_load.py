"""Whole load runs, as `make load` and `make capacity` do them, short ones.

Locust changes the sockets of its process, so it runs in processes of its own.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.engine import frame, says
from harness.processes import Gateway, Simulator, clean_environment, free_port
from harness.upstream import Reply, Request, Upstream
from measure import FAILED, Turn, read_turns

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
KEY = "sk-load-never-shown"
KINDS = {"json", "sse", "websocket", "lanes", "chain", "websocket_chain"}


def load(command: str, out: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    options = ["--set", "run.warmup_seconds=0.2", "--set", "run.progress_seconds=1", "--out", str(out)]
    return subprocess.run(
        [sys.executable, str(ROOT / "loadtests/load.py"), command, *options, *arguments],
        env=clean_environment({"PYTHONPATH": "", **environ}),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def read(folder: Path) -> list[Turn]:
    return list(read_turns(folder / "turns.jsonl"))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with Simulator(tmp_path_factory.mktemp("simulator")) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, simulator: Simulator) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("gateway"), simulator.url) as running:
        yield running


def test_a_run_against_a_rig_of_its_own(tmp_path: Path) -> None:
    short = ["--users", "6", "--seconds", "2", "--set", "control.seconds=1", "--set", "mix.sse=1"]
    done = load("run", tmp_path, *short, PYTHONPATH=str(ROOT / "tests"))
    assert done.returncode == 0, done.stderr
    turns = read(tmp_path)
    assert {turn.kind for turn in turns} == KINDS
    assert {turn.outcome for turn in turns} == {"ok"}
    assert all(turn.ack and turn.ttft and turn.gaps for turn in turns if turn.kind != "json")
    assert {turn.kind for turn in read(tmp_path / "control")} == {"json", "sse"}
    assert " users " in done.stdout
    assert "TTFT p50" in done.stdout
    report = (tmp_path / "report.md").read_text()
    assert "gateway simulate on the same machine: no model and no GPU" in report
    assert "| database reads per turn | 0.000 |" in report
    assert "| asked directly: sse |" in report
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "<script" not in page


@contextmanager
def working_elsewhere(folder: Path) -> Iterator[int]:
    """Run a worker that somebody else started, and yield the port where it looks for the one that reports."""
    port = free_port()
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests/locustfile.py"), "--worker"]
    with (
        (folder / "worker.log").open("wb") as log,
        subprocess.Popen(
            [*command, "--master-port", str(port)], env=clean_environment(), stdout=log, stderr=log
        ) as worker,
    ):
        try:
            yield port
        finally:
            worker.terminate()


def test_workers_from_here_and_from_elsewhere_send_every_sample(tmp_path: Path, gateway: Gateway) -> None:
    model = "sim-slow-0.0021"
    target = ["--target", gateway.url, "--model", model, "--users", "6", "--seconds", "2", "--set", "mix.sse=1"]
    with working_elsewhere(tmp_path) as port:
        workers = ["--workers", "1", "--remote-workers", "1", "--bind", f"127.0.0.1:{port}"]
        done = load("run", tmp_path, *target, *workers, LOAD_REQUEST__ECHO="1")
    assert done.returncode == 0, done.stderr
    turns = read(tmp_path)
    by_process = Counter(turn.process for turn in turns)
    assert len(by_process) == 2
    report = (tmp_path / "report.md").read_text()
    assert all(f"| CPU of the users' process {process} |" in report for process in by_process)
    assert f"{len(turns):,} turns, 0 failed" in report
    # What the gateway stored: everything but the chains of WebSockets.
    assert gateway.rows(model) == sum(turn.kind != "websocket_chain" for turn in turns)
    assert "| gateway CPU per turn | not measured |" in report


def test_bad_answers_fail_the_run_and_no_key_is_shown(tmp_path: Path) -> None:
    async def answer_badly(request: Request, reply: Reply) -> None:
        if request.body["stream"]:
            events = list(says("All is well.").events())
            await reply.stream(*map(frame, [*events[:2], *events[3:]]))
        else:
            await reply.json({"error": {"message": f"{request.headers['authorization']} is no key"}}, 401)

    with Upstream() as server:
        server.otherwise(answer_badly)
        mix = [f"--set=mix.{kind}={int(kind in {'json', 'sse'})}" for kind in KINDS]
        target = ["--target", server.url, "--users", "2", "--seconds", "1"]
        done = load("run", tmp_path, *target, *mix, LOAD_API_KEY=KEY, UPSTREAM_DESCRIPTION="a script")
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert done.returncode == 1
    turns = read(tmp_path)
    faults = Counter(turn.fault for turn in turns)
    assert {turn.outcome for turn in turns} == {FAILED}
    assert set(faults) == {"sequence gap", "wrong status"}
    report = (tmp_path / "report.md").read_text()
    assert f"| sequence gap | {faults['sequence gap']} |" in report
    assert "Bearer *** is no key" in report
    assert "| inference server | a script |" in report
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in (*written, done.stdout, done.stderr) if KEY in text]


def test_capacity_ends_at_the_step_that_misses_the_objectives(tmp_path: Path, gateway: Gateway) -> None:
    steps = {"first_users": 1, "factor": 2, "max_users": 2, "settle_seconds": 0.2, "hold_seconds": 2, "attempts": 1}
    chosen = [f"--set=steps.{key}={value}" for key, value in steps.items()]
    # Far beyond what any machine needs, so that only what is below decides.
    chosen += [f"--set=slo.{time}=30000" for time in ("ttft_ms", "itl_ms", "e2e_ms")]
    target = ["--target", gateway.url, "--model", "sim-slow-0.002", *chosen]
    done = load("capacity", tmp_path, *target)
    assert done.returncode == 0, done.stderr
    course = json.loads((tmp_path / "course.json").read_text())
    assert [(step["users"], step["met"]) for step in course["steps"]] == [(1, True), (2, True)]
    assert "2 users is the highest step that met the objectives." in (tmp_path / "report.md").read_text()
    assert "2 users met the objectives" in done.stderr
    # The same with an objective that nobody can meet.
    missed = load("capacity", tmp_path, *target, "--set", "slo.e2e_ms=0.1")
    assert missed.returncode == 1
    assert "No step met the objectives" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "run.user=3"], "error: --set: unknown key run.user (did you mean users?)"),
        (["--set", "run.shape=manual"], "error: run.shape: manual is for Locust alone"),
        (["--target", "127.0.0.1:9000"], "expected http://HOST:PORT without a path"),
        (["--target", "http://127.0.0.1:1"], "error: http://127.0.0.1:1 does not answer: [Errno 111]"),
        (["--target", "http://me:secret@127.0.0.1:9000"], "credentials do not belong into it"),
    ],
)
def test_what_cannot_begin_says_why(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = load("run", tmp_path / "none", *arguments)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
    assert "secret" not in done.stderr
    assert not (tmp_path / "none").exists()
