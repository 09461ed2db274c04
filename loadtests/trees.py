"""Measure trees of agents beside plain streams: CPU of the gateway for each event, and its memory.

    PYTHONPATH=tests .venv/bin/python loadtests/trees.py --markdown docs/explanation/performance.md

Everything is on this machine: a simulated inference server, and for each cell a gateway of its own in one process, on a
CPU of its own if there are two. All responses of a cell begin at once, and every agent says a text of so many words at
the same pace. Exits with 1 when any response did not complete as it should have.
"""

import argparse
import asyncio
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import uvloop
from chain_report import write_tables
from chain_rig import Rig
from harness.client import RESPONSES

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.1
STORE = "sqlite"
ON = {"multi_agent": {"enabled": True}}
NAMES = ("alpha", "beta", "gamma")
_EVENT = re.compile(rb"^event: (\S+)", re.MULTILINE)
_MARK = "agents beside plain streams"


class Cell(NamedTuple):
    """What is measured at once.

    Attributes:
        responses: how many.
        agents: of each; 0 for a response without agents.
    """

    responses: int
    agents: int

    @property
    def streams(self) -> int:
        """Inferences that go on at once."""
        return self.responses * max(self.agents, 1)

    def __str__(self) -> str:
        if not self.agents:
            return f"{self.responses} plain streams"
        return f"{self.responses} trees of {self.agents} agent{'s' if self.agents > 1 else ''}"


CELLS = (Cell(200, 0), Cell(200, 1), Cell(50, 4))


@dataclass
class Measured:
    """One run of a cell.

    Attributes:
        events: that all clients were told.
        cpu: seconds of CPU that the gateway used.
        seconds: from the first request to the last end.
        idle: MiB resident before.
        peak: MiB resident, the most that was seen.
        faults: what should not be.
    """

    events: int = 0
    cpu: float = 0.0
    seconds: float = 0.0
    idle: float = 0.0
    peak: float = 0.0
    faults: list[str] = field(default_factory=list)


def write_texts(folder: Path, words: int) -> tuple[str, list[str]]:
    """Return what is said, and the options that have the inference server say it for the agents that others start."""
    text = "@say " + " ".join(f"word{number}" for number in range(words))
    file = folder / "agents.toml"
    file.write_text("".join(f'"/root/{name}" = "{text}"\n' for name in NAMES))
    return text, ["--agents", str(file)]


def build_body(cell: Cell, text: str, pace: float) -> bytes:
    """Return the request, which says what the model is to do."""
    names = NAMES[: max(cell.agents - 1, 0)]
    spawns = [f'@tool spawn_agent {{"task_name":"{name}","message":"Say it.","fork_turns":"none"}}' for name in names]
    body = {"model": f"sim-slow-{pace:.6f}", "input": "\n".join([*spawns, text]), "stream": True, "store": True}
    return msgspec.json.encode({**body, **(ON if cell.agents else {})})


async def read_one(port: int, body: bytes, measured: Measured) -> None:
    """Make one response and count what is told of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = [f"POST {RESPONSES} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
    head += [f"Content-Length: {len(body)}", "OpenAI-Beta: responses_multi_agent=v1", "", ""]
    writer.write("\r\n".join(head).encode() + body)
    seen, end = b"", b""
    while piece := await reader.read(1 << 16):
        seen += piece
        whole, _, seen = seen.rpartition(b"\n")
        kinds = _EVENT.findall(whole)
        measured.events += len(kinds)
        end = kinds[-1] if kinds else end
    writer.close()
    if end != b"response.completed":
        measured.faults.append(f"a response ended with {end!r}: {seen[-200:]!r}")


async def watch(rig: Rig, measured: Measured) -> None:
    """Look at the gateway's memory from time to time."""
    while True:
        measured.peak = max(measured.peak, rig.read_memory(STORE))
        await asyncio.sleep(LOOK_SECONDS)


async def run_cell(rig: Rig, cell: Cell, text: str, pace: float) -> Measured:
    """Have all responses of a cell made at once."""
    body, measured = build_body(cell, text, pace), Measured()
    used, began = rig.read_cpu(STORE)["gateway"], time.perf_counter()
    watching = asyncio.create_task(watch(rig, measured))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(read_one(rig.port(STORE), body, measured) for _ in range(cell.responses)))
    measured.seconds = time.perf_counter() - began
    measured.cpu = rig.read_cpu(STORE)["gateway"] - used
    watching.cancel()
    return measured


def measure(cell: Cell, chosen: argparse.Namespace) -> Measured:
    """Run a cell once, in front of a gateway that has just been warmed up."""
    with tempfile.TemporaryDirectory(prefix="gateway-agents-") as name:
        text, options = write_texts(Path(name), chosen.words)
        with Rig(Path(name), [STORE], options) as rig:
            uvloop.run(run_cell(rig, cell._replace(responses=4), text, 0.0))
            idle = rig.read_memory(STORE)
            measured = uvloop.run(run_cell(rig, cell, text, chosen.pace))
            measured.idle = idle
            return measured


def draw_table(runs: dict[Cell, list[Measured]]) -> str:
    """Return the table; each figure is the median of the runs."""
    rows = [
        "| at once | inferences at once | events | CPU, µs an event | RSS idle | RSS peak | KiB an inference |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell, measured in runs.items():
        cost = median(run.cpu / run.events * 1e6 for run in measured)
        idle, peak = (median(getattr(run, name) for run in measured) for name in ("idle", "peak"))
        rows.append(
            f"| {cell} | {cell.streams} | {median(run.events for run in measured):,.0f} | {cost:.1f} | {idle:.0f} MiB "
            f"| {peak:.0f} MiB | {(peak - idle) * 1024 / cell.streams:.0f} |"
        )
    return "\n".join(rows) + "\n"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--words", type=int, default=200, help="words that each agent says")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds before each word")
    parser.add_argument("--repeat", type=int, default=3, help="rounds over all cells")
    parser.add_argument("--divide", type=int, default=1, help="as many responses fewer, for a quick look")
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="page with marks; else the table is printed")
    chosen = parser.parse_args(given)
    cells = [cell._replace(responses=max(cell.responses // chosen.divide, 1)) for cell in CELLS]
    runs: dict[Cell, list[Measured]] = {cell: [] for cell in cells}
    for number in range(chosen.repeat):
        for cell in cells if number % 2 == 0 else cells[::-1]:
            runs[cell].append(measured := measure(cell, chosen))
            print(f"{cell}: {measured}", file=sys.stderr)
    place = f"Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} CPUs"
    asked = f"{chosen.words} words of each agent at one per {chosen.pace * 1000:g} ms, median of {chosen.repeat} rounds"
    table = f"{asked}, {place}.\n\n{draw_table(runs)}"
    if chosen.markdown is None:
        print(table)
    else:
        write_tables(chosen.markdown, table, _MARK)
    return 1 if any(run.faults for measured in runs.values() for run in measured) else 0


if __name__ == "__main__":
    sys.exit(main())
