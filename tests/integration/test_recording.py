"""The gateway is recorded, and does again what it did when the recordings of the project were made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.processes import Gateway, Process, free_port

from gateway.cli import record, replay

RECORDINGS = Path(__file__).parents[1] / "cassette/recordings"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway before a simulator whose agents call `get_proposal`."""
    folder = tmp_path_factory.mktemp("recording")
    port = free_port()
    agents = str(RECORDINGS / "agents.toml")
    simulator = Process(["simulate", "--port", str(port), "--itl", "0.02", "--agents", agents], port, folder / "log")
    simulator.start("/health")
    try:
        with Gateway(folder, simulator.url) as gateway:
            yield gateway.url
    finally:
        simulator.stop()


@pytest.mark.agents(135, 140)
@pytest.mark.parametrize(
    ("name", "model"), [("R1", "sim"), ("R3", "sim"), ("R12", "sim"), ("R14", "sim"), ("R15", "sim-tool")]
)
def test_a_scenario_is_recorded_and_sound(name, model, url, tmp_path):
    path = tmp_path / "recording.jsonl"
    told = CliRunner().invoke(
        record.command, ["--scenario", name, "--url", url, "--model", model, "--out", str(path), "--timeout", "20s"]
    )
    assert told.exit_code == 0, told.output
    checked = CliRunner().invoke(replay.command, [str(path), "--check"])
    assert checked.exit_code == 0, checked.output


@pytest.mark.agents(135)
@pytest.mark.parametrize("name", ["R1", "R15"])
def test_the_gateway_does_what_it_did(name, url):
    told = CliRunner().invoke(replay.command, [str(RECORDINGS / f"{name}.jsonl"), "--url", url, "--timeout", "20s"])
    assert told.exit_code == 0, told.output
