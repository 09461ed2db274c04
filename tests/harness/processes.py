"""Starts the product's own commands as processes: free ports, a clean environment, stopped by pid, log at hand."""

import os
import random
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from harness.forked import ForkedProcess, run_gateway

START_SECONDS = 30.0
STOP_SECONDS = 25.0
# Systems give ports from above these to outgoing connections.
_UNASSIGNED_PORTS = range(15_000, 32_000)
# Each process of a test run has some of them for itself: between the choice of a port and its use lie seconds.
_SHARES = 8
PROGRAM = str(Path(sys.executable).with_name("gateway"))
_FOREIGN_PREFIXES = ("GATEWAY_", "AGENTIC_", "OTEL_")


def free_port() -> int:
    """Return a loopback port nobody listens on now, and that no outgoing connection or other test gets meanwhile."""
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    # Not from the source that property tests seed alike in every process.
    numbers = random.SystemRandom()
    while True:
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", numbers.choice(_UNASSIGNED_PORTS[share::_SHARES])))
            return probe.getsockname()[1]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this environment without any variable that could configure the product."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(_FOREIGN_PREFIXES)}
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


def run_command(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of the product to its end, with these extra variables, and return what it wrote."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = ForkedProcess(run_gateway, arguments, clean_environment(env), out.fileno(), err.fileno())
        try:
            code = process.wait(START_SECONDS)
        finally:
            process.kill()
        for output in (out, err):
            output.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def _read_early(variable: str) -> bool:
    return variable.startswith(("OTEL_", "PROMETHEUS_"))


class Process:
    """One `gateway` command that serves HTTP on a loopback port.

    Attributes:
        tls: how its certificate is checked, None when it has none.
    """

    def __init__(self, arguments: Sequence[str], port: int, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.log_file = log
        self.tls: ssl.SSLContext | None = None
        self._arguments = [PROGRAM, *arguments]
        self._env = clean_environment(env)
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self, ready_path: str) -> None:
        """Start and wait until `ready_path` answers 200."""
        self._process = self._spawn()
        deadline = time.monotonic() + START_SECONDS
        while not self._answers(ready_path):
            if (code := self._process.poll()) is not None:
                raise AssertionError(f"{' '.join(self._arguments)} ended with {code}:\n{self.log}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{' '.join(self._arguments)} was not ready in {START_SECONDS} s:\n{self.log}")
            time.sleep(0.02)

    def stop(self) -> int:
        """Ask the process to end and return its exit code; a process that does not end in time is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM did not end the process in {STOP_SECONDS} s:\n{self.log}") from None

    def wait(self) -> int:
        """Wait for the end of a process that was told to end, and return its exit code."""
        assert self._process is not None
        return self._process.wait(STOP_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process without any chance to clean up."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def await_log(self, *needles: str, timeout: float = 20.0) -> str:
        """Return the first log line that holds all needles, waiting for it."""
        deadline = time.monotonic() + timeout
        while True:
            for line in self.log.splitlines():
                if all(needle in line for needle in needles):
                    return line
            if time.monotonic() > deadline:
                raise AssertionError(f"no log line with {needles} within {timeout} s:\n{self.log}")
            time.sleep(0.02)

    def _spawn(self) -> subprocess.Popen[bytes] | ForkedProcess:
        program, *arguments = self._arguments
        # Some variables are read while modules are imported, as they are before several workers start.
        early = any("workers" in argument for argument in arguments) or any(map(_read_early, self._env))
        with self.log_file.open("ab") as log:
            if program == PROGRAM and not early:
                return ForkedProcess(run_gateway, arguments, self._env, log.fileno(), log.fileno())
            return subprocess.Popen(self._arguments, env=self._env, stdout=log, stderr=log)

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5, context=self.tls) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


class Gateway(Process):
    """`gateway serve` on its own SQLite file.

    Args:
        folder: where the database and the log live.
        upstream: base URL of the inference server.
        settings: `section.key` to TOML value, passed with `--set`.
        env: extra environment variables.
    """

    def __init__(
        self,
        folder: Path,
        upstream: str,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.database = folder / "responses.db"
        port = free_port()
        chosen = {"admin.enabled": "false", "telemetry.log_format": "json", **(settings or {})}
        flags = [flag for key, value in chosen.items() for flag in ("--set", f"{key}={value}")]
        serve = ["serve", "--port", str(port), "--upstream", upstream, "--database", f"sqlite:///{self.database}"]
        super().__init__([*serve, *flags], port, folder / "gateway.log", env)

    def __enter__(self) -> Self:
        self.start("/livez")
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()

    def rows(self, model: str | None = None) -> int:
        """Return how many responses the database holds, of one model if named."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=20)) as connection:
            models = [str(value) for (value,) in connection.execute("SELECT model FROM responses")]
        return len(models) if model is None else models.count(model)


class Simulator(Process):
    """`gateway simulate` on a free port, with these options."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        port = free_port()
        super().__init__(["simulate", "--port", str(port), *options], port, folder / "simulator.log")

    def __enter__(self) -> Self:
        self.start("/health")
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()
