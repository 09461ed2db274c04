"""The benchmark of chains: one tiny run of it, and what it makes of numbers.

It is a script outside of the tests' folders, so the tests find its modules as Python does when it is run.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from harness.processes import clean_environment

ROOT = Path(__file__).parents[2]
TURNS = 4
CALLERS = 2
MARK = "measured at a pace of 0"
PAGE = f"before\n<!-- {MARK}: begin -->\nold\n<!-- {MARK}: end -->\nafter\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chains")


@pytest.fixture(scope="module")
def cells(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The numbers of a run, by store and transport."""
    page = folder / "page.md"
    page.write_text(PAGE)
    sizes = ["--turns", str(TURNS), "--concurrency", str(CALLERS), "--stores", "memory", "sqlite"]
    bounds = ["--repeat", "1", "--seconds", "0.1", "--json", str(folder / "out.json"), "--markdown", str(page)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "loadtests/chains.py"), *sizes, *bounds],
        env=clean_environment({"PYTHONPATH": str(ROOT / "tests")}),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = json.loads((folder / "out.json").read_text())["cells"]
    return {(cell["store"], cell["transport"]): cell for cell in listed}


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "loadtests")
    import chain_report

    return chain_report


@pytest.fixture
def chains(report: ModuleType) -> ModuleType:
    import chains

    return chains


def test_every_cell_runs_whole_chains(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    through = [(store, transport) for store in ("memory", "sqlite") for transport in ("sse", "websocket")]
    assert list(cells) == [("none", "direct"), *through]
    for cell in cells.values():
        assert (cell["turns"], cell["callers"], cell["errors"]) == (TURNS, CALLERS, 0)
        assert cell["n"] >= TURNS * CALLERS
        assert cell["n"] % TURNS == 0
        assert 0 < cell["ttft_p50"] <= cell["e2e_p50"] <= cell["e2e_p99"]
        assert cell["tokens_per_second"] > cell["turns_per_second"] > 0
        assert cell["slope"] is not None


def test_a_socket_asks_nobody_for_a_history(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    for store in ("memory", "sqlite"):
        assert (cells[store, "websocket"]["reads"], cells[store, "websocket"]["lookups"]) == (0, 0)
    # Over HTTP every turn but the first asks the cache of the process.
    assert cells["sqlite", "sse"]["lookups"] == (TURNS - 1) / TURNS
    assert cells["memory", "sse"]["lookups"] == 0


def test_a_socket_is_compared_with_http(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    websocket, sse = cells["sqlite", "websocket"], cells["sqlite", "sse"]
    assert websocket["to_sse"]["ttft_p50"] == pytest.approx(websocket["ttft_p50"] / sse["ttft_p50"])
    assert "to_sse" not in sse


@pytest.mark.usefixtures("cells")
def test_the_tables_go_between_the_marks(folder: Path) -> None:
    page = (folder / "page.md").read_text()
    assert page.startswith(f"before\n<!-- {MARK}: begin -->\n\n1 round of 0.1 s for each cell, Python ")
    assert page.endswith(f"|\n\n<!-- {MARK}: end -->\nafter\n")
    assert "old" not in page
    assert page.count(f"\n| {TURNS} | {CALLERS} | ") == 6


def test_a_slope_and_its_error(report: ModuleType) -> None:
    rise, error = report.fit_slope({2: 10.0, 3: 13.0, 4: 16.0, 5: 19.0})
    assert (rise, error) == (pytest.approx(3), pytest.approx(0, abs=1e-9))
    # By hand: residues 1, -2, 1, so an error of sqrt(6 / 1 / 2).
    assert report.fit_slope({1: 2.0, 2: 0.0, 3: 4.0}) == (pytest.approx(1), pytest.approx(3**0.5))
    assert report.fit_slope({1: 2.0, 2: 0.0}) is None


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles(report: ModuleType, share: float, value: int) -> None:
    assert report.find_percentile(range(100, 0, -1), share) == value


@pytest.mark.parametrize(
    ("transport", "asked", "faults", "code"),
    [
        ("websocket", {"reads": 0}, [], 0),
        ("sse", {"reads": 3}, [], 0),
        ("websocket", {"reads": 1}, [], 1),
        ("sse", {}, ["a turn failed"], 1),
    ],
)
def test_what_is_a_failure(
    chains: ModuleType, report: ModuleType, transport: str, asked: dict[str, int], faults: list[str], code: int
) -> None:
    tally = report.Tally(faults=faults)
    tally.asked.update(asked)
    assert chains.report_faults({report.Cell("sqlite", transport, 8, 1): tally}) == code
