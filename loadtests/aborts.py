"""Leave a gateway at random moments of a request, thousands of times, and report what it still holds afterwards.

    PYTHONPATH=tests .venv/bin/python loadtests/aborts.py --aborts 10000

Exits with 1 when anything is held that an idle gateway does not hold.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from harness.upstream import Upstream
from integration.aborts import SETTINGS, Campaign
from integration.watched import WatchedGateway

SHARES = (0.1, 0.5, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--aborts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1, help="chooses the moments")
    chosen = parser.parse_args()
    began = time.monotonic()
    marks = [round(chosen.aborts * share) for share in SHARES]
    with (
        tempfile.TemporaryDirectory(prefix="gateway-aborts-") as name,
        Upstream() as upstream,
        WatchedGateway(Path(name), upstream, SETTINGS) as gateway,
    ):
        report = Campaign(gateway, upstream, marks, chosen.seed).run()
    print(report)
    print(f"{'seconds':<48}{time.monotonic() - began:>8.0f}")
    for fault in report.broken[:20]:
        print(fault, file=sys.stderr)
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
