import io
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from gateway.cli import children, demo, stage
from gateway.cli.children import Child, ChildFailed, choose_ports

CODE = "from gateway.cli.main import main; main()"
PATIENCE = 40


@pytest.fixture(autouse=True)
def untouched_signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def start_demo(tmp_path):
    """Start the command with its temporary files below `tmp_path`; killed when the test leaves it running."""
    running = []

    def start(*options: str) -> subprocess.Popen[str]:
        environment = os.environ | {"TMPDIR": str(tmp_path), "GATEWAY_SERVER__PORT": "not for the demo"}
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, "demo", *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status == 200
    except urllib.error.URLError:
        return False


def test_the_tour_shows_every_step_and_leaves_nothing(start_demo, tmp_path):
    process = start_demo("--once")
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    first, second, call, answer = re.findall(r"^  model  (.*)$", output, re.MULTILINE)
    assert first.startswith("You said “Hello, I am Ada")
    assert "Before that you wrote once, first “Hello, I am Ada and I like prime numbers.”" in second
    assert (call, answer) == ('{"a": 19, "b": 23}', "The tool answered: “42”.")
    stored = re.search(r"GET /v1/responses/(resp_[0-9a-f]{32})$", output, re.MULTILINE)
    assert stored
    assert f'"id": "{stored[1]}"' in output
    (arrived,) = re.findall(r"^  arrives  (.*) …$", output, re.MULTILINE)
    lanes = [piece.partition(":")[0] for piece in arrived.split()]
    assert len(lanes) == demo._SHOWN_PIECES
    (changes,) = re.findall(r"the lane changed (\d+) times$", output, re.MULTILINE)
    assert int(changes) > 2
    forks = re.findall(r"^ {11}You said .*$", output, re.MULTILINE)
    assert len(forks) == 2
    for fork, (words, _) in zip(forks, demo._FORKS.values(), strict=True):
        assert f"You said “{words}”. Before that you wrote 2 times, first “{demo._FIRST_WORDS}”." in fork
    assert "curl" not in output
    assert "That was the tour." in output.splitlines()[-1]
    assert "\x1b" not in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stays_up_until_it_is_told_to_stop(start_demo, tmp_path, number):
    process = start_demo()
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "stays up" in line:
            break
    assert len([line for line in seen if line.startswith("  curl ")]) == 4
    urls = re.findall(r"http://127\.0\.0\.1:\d+", "".join(seen))
    gateway, admin, simulator = urls[:3]
    assert answers(f"{gateway}/readyz")
    assert answers(f"{admin}/metrics")
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert not any(answers(url) for url in (f"{gateway}/livez", f"{admin}/metrics", f"{simulator}/health"))
    assert list(tmp_path.iterdir()) == []


def test_a_busy_port_is_replaced_and_no_port_is_used_twice():
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        ports = choose_ports(taken, taken, taken)
    assert taken not in ports
    assert len(set(ports)) == 3


def test_a_free_port_is_kept():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert choose_ports(port) == [port]


def test_a_child_that_cannot_start_says_why(tmp_path):
    child = Child("gateway", ["serve", "--set", "server.prot=1"], tmp_path)
    with pytest.raises(ChildFailed, match=r"The gateway ended with exit code 2\.") as failure:
        child.start("http://127.0.0.1:1/")
    assert "server.prot" in failure.value.log


def test_a_child_that_is_never_ready_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(children, "_START_SECONDS", 0)
    child = Child("simulator", ["simulate", "--port", "0"], tmp_path)
    with pytest.raises(ChildFailed, match="not ready within 0 seconds"):
        child.start("http://127.0.0.1:1/")
    child.stop()
    child.check()


def test_a_child_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(children, "_STOP_SECONDS", 0.1)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    monkeypatch.setattr(children, "_COMMAND", (sys.executable, "-c", stubborn))
    monkeypatch.setattr(children, "_answers", lambda _url: "up" in child.tail())
    child = Child("stubborn", [], tmp_path)
    child.start("http://127.0.0.1:1/")
    process = child._process
    child.stop()
    assert process is not None
    assert process.returncode == -signal.SIGKILL


def test_the_tail_of_a_long_log_is_its_end(tmp_path):
    child = Child("gateway", [], tmp_path)
    assert child.tail() == ""
    (tmp_path / "gateway.log").write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert child.tail().splitlines() == [f"line {number}" for number in range(9_980, 10_000)]


def test_a_failed_start_ends_with_1_and_the_log(monkeypatch):
    class Broken(stage.Stage):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.gateway = Child("gateway", ["serve", "--set", "server.prot=1"], folder)

    monkeypatch.setattr(demo, "Stage", Broken)
    # Where the demo likes to be, another one may answer by now.
    monkeypatch.setattr(stage, "choose_ports", lambda *preferred: choose_ports(*[0] * len(preferred)))
    result = CliRunner().invoke(demo.command, ["--once"])
    assert result.exit_code == 1
    assert "The gateway ended with exit code 2." in result.output
    assert "server.prot" in result.output


def test_a_failed_step_is_named(tmp_path):
    played = stage.Stage(tmp_path)
    (tmp_path / "gateway.log").write_text("the reason\n")
    with pytest.raises(ChildFailed, match=r"The tour failed: POST /v1/responses broke off: .*refused") as failure:
        demo.Tour(Console(file=io.StringIO()), played).run()
    assert failure.value.log == "the reason"


class Answers:
    """A client that has every answer ready."""

    def __init__(self, events, stored=None, frames=()) -> None:
        self._events = events
        self._stored = stored
        self._frames = list(frames)

    def stream(self, request):
        yield from self._events

    def retrieve(self, path):
        return self._stored

    @contextmanager
    def open_lanes(self):
        yield self

    def create(self, lane, request):
        pass

    def read(self):
        return self._frames.pop(0)


def completed(text: str) -> dict:
    response = {"id": "resp_1", "output": [{"content": [{"text": text}]}]}
    return {"type": "response.completed", "response": response}


KNOWN = completed(demo._FIRST_WORDS)
LOST = [{**completed("Who are you?"), "stream_id": lane} for lane in demo._FORKS]
FOUND = [{**KNOWN, "stream_id": lane} for lane in demo._FORKS]
CALLED = completed(demo._FIRST_WORDS)
CALLED["response"]["output"].append(
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 9999}'}
)
REFUSED = [{"type": "error", "stream_id": "left", "error": {"message": "why"}}]


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (Answers([]), "the stream ended with nothing"),
        (Answers([{"type": "response.failed", "response": {"error": "why"}}]), "ended with response.failed: .*why"),
        (Answers([completed("Who are you?")]), "the history did not arrive"),
        (Answers([KNOWN], {"id": "resp_2"}), "not the one that was streamed"),
        (Answers([KNOWN], KNOWN["response"], REFUSED), "the fork on lane 'left' failed: .*why"),
        (Answers([KNOWN], KNOWN["response"], LOST), "a fork does not know the first message"),
        (Answers([KNOWN], KNOWN["response"], FOUND), "the model did not call the tool"),
        (Answers([CALLED], CALLED["response"], FOUND), "does not know what the tool returned"),
    ],
)
def test_a_wrong_answer_fails_the_tour(tmp_path, client, reason):
    tour = demo.Tour(Console(file=io.StringIO()), stage.Stage(tmp_path))
    tour._client = client
    with pytest.raises(ChildFailed, match=reason):
        tour.run()


def test_long_strings_are_cut_at_any_depth():
    long = "x" * 100
    assert demo._shorten({"a": [long, 1, None]}) == {"a": ["x" * demo._SHOWN_CHARACTERS + "…", 1, None]}
