"""The measurement of trees of agents: one tiny run of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import clean_environment

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_a_tiny_run_counts_every_event(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    size = ["--divide", "50", "--words", "5", "--pace", "0", "--repeat", "1"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "loadtests/trees.py"), *size, "--markdown", str(page)],
        env=clean_environment({"PYTHONPATH": str(ROOT / "tests")}),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in page.read_text().splitlines() if "|" in line]
    # Three events are told of each response, ten of each message. What starts an agent, and its answer, are four items.
    message, start = 5 + 5, 4 * 2
    assert rows[2:] == [
        ["4 plain streams", "4", str(4 * (3 + message))],
        ["4 trees of 1 agent", "4", str(4 * (3 + message))],
        ["1 trees of 4 agents", "4", str(3 + 4 * message + 3 * start)],
    ]
