"""Measure chains of turns over HTTP and over WebSockets: times, throughput, CPU, and what the database is asked.

    PYTHONPATH=tests .venv/bin/python loadtests/chains.py --seconds 2 --markdown docs/explanation/chains.md

Everything is on this machine: a simulated inference server that answers as fast as it can, or at a pace, a gateway for
each database, and callers that each send the next turn as soon as the last one has ended. Exits with 1 when any turn
failed, or when a WebSocket made the gateway read from its database.
"""

import argparse
import gc
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop
from chain_client import CALLERS, Turn, run_callers
from chain_report import Cell, Summary, Tally, draw_tables, list_cells, summarize, write_tables
from chain_rig import Rig

TURNS = (8, 20, 40)
CONCURRENCY = (1, 8, 16, 32, 64)
TRANSPORTS = tuple(CALLERS)
STORES = ("memory", "sqlite", "postgres")
WARM_UP = {"turns": 4, "callers": 4}


def main() -> int:
    chosen = read_options()
    cells = choose_cells(chosen)
    tallies = {cell: Tally() for cell in cells}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gateway-chains-") as name, Rig(Path(name), chosen.stores) as rig:
        for cell in dict.fromkeys(cell._replace(**WARM_UP) for cell in cells):
            measure_cell(rig, cell, Tally(), chosen.pace, min(chosen.seconds, 0.3))
        for number in range(chosen.repeat):
            # Every other round runs backwards, so that no transport always comes first.
            for cell in cells if number % 2 == 0 else cells[::-1]:
                measure_cell(rig, cell, tallies[cell], chosen.pace, chosen.seconds)
                print(f"{time.monotonic() - began:6.0f} s  {tell(cell, summarize(tallies[cell]))}", file=sys.stderr)
    summaries = {cell: summarize(tally) for cell, tally in tallies.items()}
    publish(summaries, chosen)
    return report_faults(tallies)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, nargs="+", default=TURNS, help="lengths of chains")
    parser.add_argument("--concurrency", type=int, nargs="+", default=CONCURRENCY, help="numbers of callers at once")
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--repeat", type=int, default=2, help="rounds over all cells")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="length of a cell; only whole chains run, and one for each caller"
    )
    parser.add_argument("--pace", type=float, default=0.0, help="seconds before each token of the inference server")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for all numbers")
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="file for the tables; a page with marks is kept")
    return parser.parse_args()


def choose_cells(chosen: argparse.Namespace) -> list[Cell]:
    """Return the cells in the order of a round, those to be compared next to each other."""
    sizes = [(turns, callers) for turns in chosen.turns for callers in chosen.concurrency]
    relayed = [transport for transport in TRANSPORTS if transport in chosen.transports and transport != "direct"]
    rows = {"none": ["direct"] if "direct" in chosen.transports else []}
    rows |= {store: relayed for store in STORES if store in chosen.stores}
    return [
        Cell(store, transport, *size)
        for store, transports in rows.items()
        for size in sizes
        for transport in transports
    ]


def measure_cell(rig: Rig, cell: Cell, tally: Tally, pace: float, seconds: float) -> None:
    """Run one cell and add what was seen to its tally."""
    gc.collect()
    uvloop.run(run_cell(rig, cell, tally, pace, seconds))


async def run_cell(rig: Rig, cell: Cell, tally: Tally, pace: float, seconds: float) -> None:
    stored = cell.store in {"sqlite", "postgres"}
    # Over HTTP only what is stored can be continued.
    linked = stored or cell.transport == "websocket"
    fields = {"model": f"sim-slow-{pace:.6f}", "store": stored}
    callers = [await CALLERS[cell.transport].open(rig.port(cell.store), fields) for _ in range(cell.callers)]

    def note(number: int, turn: Turn) -> None:
        tally.add(number, turn.began, turn.tokens, turn.ended)

    # Asking for the counts costs the gateway CPU, so that is read inside of it.
    asked, used, began = rig.count_questions(cell.store), rig.read_cpu(cell.store), time.perf_counter()
    tally.faults += await run_callers(callers, cell.turns, seconds, linked=linked, report=note)
    tally.wall += time.perf_counter() - began
    tally.used += rig.read_cpu(cell.store) - used
    tally.asked += rig.count_questions(cell.store) - asked
    for caller in callers:
        caller.close()


def tell(cell: Cell, summary: Summary) -> str:
    return (
        f"{cell!s:<36}n {summary.n:<7,}TTFT {summary.ttft_p50:.2f} / {summary.ttft_p99:.1f} ms   "
        f"{summary.turns_per_second:,.0f} turns/s   gateway {summary.gateway_cpu:,.0f} µs   "
        f"busy {' '.join(f'{name} {share:.0%}' for name, share in summary.busy.items())}   errors {summary.errors}"
    )


def publish(summaries: dict[Cell, Summary], chosen: argparse.Namespace) -> None:
    """Write what was asked for; the tables go to standard output when no file was named for them."""
    rounds = f"{chosen.repeat} round{'s' if chosen.repeat > 1 else ''} of {chosen.seconds:g} s for each cell"
    place = f"Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} CPUs"
    tables = f"{rounds.capitalize()}, {place}.\n\n{draw_tables(summaries)}"
    if chosen.markdown is None:
        print(tables)
    else:
        write_tables(chosen.markdown, tables, f"measured at a pace of {chosen.pace:g}")
    if chosen.json is not None:
        options = {name: value for name, value in vars(chosen).items() if name not in {"json", "markdown"}}
        report = {"machine": place, "options": options, "cells": list_cells(summaries)}
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def report_faults(tallies: dict[Cell, Tally]) -> int:
    """Print what must not be, and return the exit code."""
    faults = [f"{cell}: {fault}" for cell, tally in tallies.items() for fault in tally.faults]
    faults += [
        f"{cell}: the database was read {tally.asked['reads']:.0f} times"
        for cell, tally in tallies.items()
        if cell.transport == "websocket" and tally.asked["reads"]
    ]
    for fault in faults[:20]:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
