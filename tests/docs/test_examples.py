"""The examples run against a gateway, and show what they are there to show."""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from docs.pages import ROOT
from harness.processes import Gateway, Simulator

EXAMPLES = ROOT / "docs/examples"
COMMANDS = {
    "websocket_forks.py": [sys.executable],
    "websocket_steer.py": [sys.executable],
    "websocket_inject.py": [sys.executable],
    "websocket_forks.mjs": ["node", "--experimental-websocket", "--no-warnings"],
}
PARENT = "There are infinitely many primes."


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("examples")
    with Simulator(folder) as simulator, Gateway(folder, simulator.url) as running:
        yield running


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMANDS[name], str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)


def lanes_of(output: str, kind: str) -> list[str]:
    """Return the tags of the events of one type, in the order in which they arrived."""
    return re.findall(rf"^(\S+) +{re.escape(kind)}\b", output, re.MULTILINE)


def expect_forks(name: str, gateway: Gateway) -> None:
    done = run(name, gateway.url + "/v1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(lanes_of(done.stdout, "response.completed")) == ["-", "left", "right"]
    deltas = [lane for lane in lanes_of(done.stdout, "response.output_text.delta") if lane != "-"]
    changes = sum(one != other for one, other in pairwise(deltas))
    assert changes > 2, "the forks came one after the other"
    for lane, words in (("left", "Say it to a child."), ("right", "Say it to a mathematician.")):
        (answer,) = re.findall(rf"^{lane}: (.*)$", done.stdout, re.MULTILINE)
        assert words in answer
        assert PARENT in answer


def test_the_python_example_shows_two_forks(gateway: Gateway) -> None:
    expect_forks("websocket_forks.py", gateway)


@pytest.mark.full
def test_the_javascript_example_shows_two_forks(gateway: Gateway) -> None:
    expect_forks("websocket_forks.mjs", gateway)


def test_a_failure_ends_the_python_example(gateway: Gateway) -> None:
    done = run("websocket_forks.py", gateway.url + "/v1", "sim-error-400")
    assert done.returncode == 1
    assert "failed: {" in done.stderr


@pytest.mark.agents(96)
def test_the_example_of_steering_shows_a_successor(gateway: Gateway) -> None:
    done = run("websocket_steer.py", gateway.url + "/v1")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = re.findall(r"^(resp_\w+) continues (\S+): (.*)$", done.stdout, re.MULTILINE)
    assert (first[1], second[1]) == ("None", first[0])
    assert "Tell me about cats." in first[2]
    assert "No, about dogs." in second[2]
    kinds = re.findall(r"^(response\.\S+)", done.stdout, re.MULTILINE)
    assert kinds.index("response.steer.accepted") < kinds.index("response.completed")


@pytest.mark.agents(66)
def test_the_example_of_injecting_answers_while_the_other_works(gateway: Gateway) -> None:
    done = run("websocket_inject.py", gateway.url + "/v1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nTake alpha.\n")
    told = re.findall(r"^ *(\d+) (response\.\S+) +(\S*)", done.stdout, re.MULTILINE)
    assert [int(number) for number, _, _ in told] == list(range(len(told)))
    taken = [kind for _, kind, _ in told].index("response.inject.created")
    assert "/root/beta" in {agent for _, kind, agent in told[taken:] if kind == "response.output_text.delta"}


@pytest.mark.full
def test_a_failure_ends_the_javascript_example(gateway: Gateway) -> None:
    done = run("websocket_forks.mjs", gateway.url + "/v1", "sim-error-400")
    assert done.returncode == 1
    assert '"type":"error"' in done.stderr


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == set(COMMANDS)
