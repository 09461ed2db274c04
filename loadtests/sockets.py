"""Load a gateway by WebSockets, in ways that have gone wrong elsewhere.

    PYTHONPATH=tests .venv/bin/python loadtests/sockets.py handoffs --count 5000
    PYTHONPATH=tests .venv/bin/python loadtests/sockets.py stopped-reader --runs 5
    PYTHONPATH=tests .venv/bin/python loadtests/sockets.py fuzz --frames 100000
    PYTHONPATH=tests .venv/bin/python loadtests/sockets.py connections --count 10000

Exits with 1 when something is broken: a create that waits for a lane that is free, a connection that is slowed by
another, a fault of any answer, anything held that an idle gateway does not hold.
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from handoffs import IDLE, ON_SIGHT, Handoffs, report, undisturbed
from harness.upstream import Upstream
from integration import fuzzing, visits
from integration.watched import WatchedGateway
from stopped_reader import HEADING, SETTINGS, UpstreamProcess, judge, measure

SHARES = (0.1, 0.5, 1)
SHOWN_FAULTS = 20


def hand_off(chosen: argparse.Namespace, folder: Path) -> int:
    with Upstream() as upstream, WatchedGateway(folder, upstream, {"telemetry.log_level": "warning"}) as gateway:
        gc.disable()  # a pass would be measured as a wait of the gateway
        handoffs = Handoffs(gateway, upstream)
        handoffs.run(chosen.count)
    print(report(handoffs.waits))
    idle, sight = (max(wait.to_created for wait in undisturbed(handoffs.waits[kind])) for kind in (IDLE, ON_SIGHT))
    return int(sight > idle + chosen.limit_ms)


def stop_reading(chosen: argparse.Namespace, folder: Path) -> int:
    runs = []
    gc.disable()  # a pass would be measured as lateness
    print(HEADING)
    with UpstreamProcess() as upstream, WatchedGateway(folder, upstream, SETTINGS) as gateway:
        measure(gateway, 1.0, beside=True)
        for number in range(chosen.runs):
            # By turns, and each kind first by turns too, so that whatever drifts favours neither.
            for beside in (False, True) if number % 2 == 0 else (True, False):
                runs.append(measure(gateway, chosen.seconds, beside=beside))
                print(runs[-1], flush=True)
    words, broken = judge(runs)
    print(words)
    return int(broken)


def fuzz(chosen: argparse.Namespace, folder: Path) -> int:
    return campaign(fuzzing, chosen.frames, chosen.seed, folder)


def connect(chosen: argparse.Namespace, folder: Path) -> int:
    return campaign(visits, chosen.count, chosen.seed, folder)


def campaign(kind, number: int, seed: int, folder: Path) -> int:
    marks = [round(number * share) for share in SHARES]
    with Upstream() as upstream, WatchedGateway(folder, upstream, kind.SETTINGS) as gateway:
        found = kind.Campaign(gateway, upstream, marks, seed).run()
    print(found)
    for fault in found.broken[:SHOWN_FAULTS]:
        print(fault, file=sys.stderr)
    return int(bool(found.broken))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Callable[[argparse.Namespace, Path], int], help: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help)
        added.set_defaults(act=act)
        return added

    added = command("handoffs", hand_off, "Measure how long a create waits for a lane that has just become free.")
    added.add_argument("--count", type=int, default=5000, help="creates of each of three kinds")
    added.add_argument(
        "--limit-ms", type=float, default=5.0, help="how much longer than on an idle lane the longest wait may be"
    )
    added = command("stopped-reader", stop_reading, "Measure what a client that does not read does to another.")
    added.add_argument("--runs", type=int, default=5, help="runs of each of two kinds")
    added.add_argument("--seconds", type=float, default=10.0, help="length of a run")
    added = command("fuzz", fuzz, "Send random and mutated frames and judge every answer.")
    added.add_argument("--frames", type=int, default=100_000)
    added.add_argument("--seed", type=int, default=1, help="chooses the frames")
    added = command("connections", connect, "End connections at random moments and count what is left.")
    added.add_argument("--count", type=int, default=10_000)
    added.add_argument("--seed", type=int, default=1, help="chooses the moments")
    chosen = parser.parse_args()

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gateway-sockets-") as name:
        code = chosen.act(chosen, Path(name))
    print(f"{'seconds':<48}{time.monotonic() - began:>8.0f}")
    return code


if __name__ == "__main__":
    sys.exit(main())
