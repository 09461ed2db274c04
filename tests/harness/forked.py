"""`gateway` commands as processes that need not import anything: each is forked from one that has done so already.

To start the interpreter and import the product takes a second of processor time; a fork takes some hundredths. Like a
process started by its name, it has an environment, a log and an exit code of its own, and shares nothing that changes.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

_IMPORTED_BEFORE = [
    "gateway.cli.serve",
    "gateway.app.parts",
    "gateway.app.gateway",
    "gateway.server",
    "uvicorn.loops.auto",
]


class ForkedCommand:
    """One running command, with as much of `subprocess.Popen` as the harness uses.

    Args:
        arguments: of the command `gateway`.
        env: its whole environment.
        log: where its output is appended.
    """

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_IMPORTED_BEFORE)
        self._process = context.Process(target=_run_command, args=(list(arguments), dict(env), str(log)), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Return the exit code once there is one.

        Raises:
            subprocess.TimeoutExpired: it still runs after so many seconds.
        """
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("gateway", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run_command(arguments: list[str], env: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(descriptor, stream.fileno())
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    os.close(descriptor)

    from gateway.cli.main import main

    try:
        main(arguments)
    finally:
        # A fork leaves without them; coverage is written by one.
        atexit._run_exitfuncs()
