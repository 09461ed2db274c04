"""Check an installed gateway away from its checkout: it is run by the Python it is installed for, in an empty folder.

    cd "$(mktemp -d)" && /path/to/venv/bin/python /path/to/checkout/tests/packaging/installed.py

It serves on SQLite in front of its own simulator, and brings a database of the first migration up to date.
"""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

TESTS = Path(__file__).parents[1]
# Here and not in PYTHONPATH: the commands must find nothing but what is installed.
sys.path.insert(0, str(TESTS))

from harness.client import client  # noqa: E402
from harness.processes import Gateway, Simulator, clean_environment  # noqa: E402

MODEL = "fixture-64-8"
TEXT = "x" * 64


def main() -> int:
    here = Path.cwd()
    require(not list(here.iterdir()), f"{here} is empty")
    where = run(sys.executable, "-c", "import gateway; print(gateway.__file__)")
    require(where.startswith(sys.prefix), f"the installed gateway is used, not {where.strip()}")
    check_commands(here)
    check_old_database(here / "old.db")
    check_serving(here)
    print("The installed gateway serves, continues, migrates and checks its configuration.")
    return 0


def check_commands(here: Path) -> None:
    """Make a configuration and a database by commands, and check both."""
    require(gateway("version").startswith("Responses Gateway "), "it has a version")
    gateway("config", "init", "gateway.toml")
    require("ok" in gateway("config", "check", "--strict", "gateway.toml"), "the configuration it writes is sound")
    gateway("db", "upgrade")
    gateway("db", "check")
    require((here / "responses.db").exists(), "the database is where the defaults put it")
    said = gateway("db", "check", "--database", "postgresql://127.0.0.1/none", code=1)
    require("responses-gateway[postgres]" in said, "a missing driver is named")


def check_old_database(path: Path) -> None:
    """Bring a database of the first migration up to date."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((TESTS / "storage/fixtures/first_migration.sqlite.sql").read_text())
    gateway("db", "upgrade", "--database", f"sqlite:///{path}")
    gateway("db", "check", "--database", f"sqlite:///{path}")


def check_serving(here: Path) -> None:
    """Create, continue, stream, retrieve and delete."""
    folder = here / "serving"
    folder.mkdir()
    with Simulator(folder) as simulator, Gateway(folder, simulator.url) as serving, client(serving.port) as caller:
        first = caller.create({"model": MODEL, "input": "hi"})
        require(first.status == 200, f"it answers: {first.body!r}")
        require(first.json["output"][-1]["content"][0]["text"] == TEXT, "it answers with the text")
        body = {"model": MODEL, "input": "go on", "previous_response_id": first.json["id"], "stream": True}
        second = caller.create(body)
        require(second.deltas() == TEXT, "it streams a continuation")
        read = caller.get(f"/v1/responses/{second.final['id']}")
        require(read.json == second.final, "it returns what it stored")
        require(caller.get("/readyz").status == 200, "it is ready")
        require(caller.call("DELETE", f"/v1/responses/{first.json['id']}").status == 200, "it deletes")
        require(caller.get(f"/v1/responses/{first.json['id']}").status == 404, "what was deleted is gone")
        require(serving.stop() == 0, "it ends in order")
    require("Traceback" not in serving.log, f"its log is clean: {serving.log}")


def gateway(*arguments: str, code: int = 0) -> str:
    """Run one command and return what it says."""
    return run(str(Path(sys.executable).with_name("gateway")), *arguments, code=code)


def run(*command: str, code: int = 0) -> str:
    """Run a program in a clean environment, which must end with this code, and return what it says."""
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    require(done.returncode == code, f"{' '.join(command)} ends with {code}, not {done.returncode}:\n{said}")
    return said


def require(true: bool, what: str) -> None:
    """Stop at the first thing that does not hold."""
    if not true:
        sys.exit(f"does not hold: {what}")


if __name__ == "__main__":
    sys.exit(main())
