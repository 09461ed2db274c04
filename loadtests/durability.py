"""Kill a gateway under load at random moments and report what became of the responses clients saw completed.

    PYTHONPATH=tests .venv/bin/python loadtests/durability.py --kills 200
    PYTHONPATH=tests .venv/bin/python loadtests/durability.py --kills 100 --database postgresql://user@127.0.0.1:5432/empty

Without `--database` it takes a new SQLite file. Exits with 1 when a promise was broken.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.kills import Campaign, answer_by_model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--database", metavar="URL", help="an empty database; default: a new SQLite file")
    parser.add_argument("--seed", type=int, default=1, help="chooses the moments")
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gateway-durability-") as name, Upstream() as upstream:
        upstream.otherwise(answer_by_model)
        database = chosen.database or f"sqlite:///{name}/responses.db"
        gateway = DatabaseGateway(Path(name), upstream.url, database)
        report = Campaign(gateway, chosen.kills, chosen.seed).run()
    print(report)
    print(f"{'seconds':<34}{time.monotonic() - began:>8.0f}")
    for fault in report.broken[:20]:
        print(fault, file=sys.stderr)
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
