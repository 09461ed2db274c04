"""`gateway` commands that run beside this one, each with a log of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05
_TAIL_LINES = 20
_TAIL_BYTES = 16 * 1024
_OWN_PREFIXES = ("GATEWAY_", "AGENTIC_", "OTEL_")
_COMMAND = (sys.executable, "-c", "from gateway.cli.main import main; main()")


class ChildFailed(Exception):
    """A child did not start, or ended by itself; `log` is the end of what it wrote."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class Child:
    """One `gateway` command as a process, in a session of its own so that Ctrl-C does not reach it.

    Variables that configure a gateway are not handed down: what it does is told by its arguments alone.

    Args:
        name: what people call it.
        arguments: the command line behind `gateway`.
        folder: where it runs and writes its log.
    """

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._folder = folder
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, ready_url: str) -> None:
        """Start it and wait until `ready_url` answers 200.

        Raises:
            ChildFailed: it ended, or was not ready in time.
        """
        environment = {key: value for key, value in os.environ.items() if not key.upper().startswith(_OWN_PREFIXES)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this package's own commands
                [*_COMMAND, *self._arguments],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(ready_url):
            self.check()
            if time.monotonic() > deadline:
                raise ChildFailed(f"The {self.name} was not ready within {_START_SECONDS:g} seconds.", self.tail())
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            ChildFailed: it has ended.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            raise ChildFailed(f"The {self.name} ended with exit code {code}.", self.tail())

    def stop(self) -> None:
        """Ask it to end, and kill its whole group when it does not. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def tail(self) -> str:
        """Return the last lines of its log."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


def choose_ports(*preferred: int) -> list[int]:
    """Return a different loopback port for each preferred one: itself when nobody listens there, else a free one."""
    with contextlib.ExitStack() as bound:
        # All are held until the last is chosen, so that none is chosen twice.
        return [_hold_port(bound.enter_context(socket.socket()), port) for port in preferred]


def _hold_port(probe: socket.socket, port: int) -> int:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.bind(("127.0.0.1", 0))
    return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - a loopback URL of our own
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False
