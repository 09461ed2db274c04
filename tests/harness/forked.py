"""Processes of the product that need not import it: each is forked from one that has done so already.

To start the interpreter and import the product takes a second of processor time; a fork takes some hundredths.
Like a process started by its name, it has an environment, outputs and an exit code of its own, and shares nothing
that changes.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from multiprocessing.connection import Connection

_IMPORTED_BEFORE = [
    "gateway.cli.db",
    "gateway.cli.serve",
    "gateway.app.parts",
    "gateway.app.gateway",
    "gateway.server",
    "uvicorn.loops.auto",
]


class ForkedProcess:
    """One running process, with as much of `subprocess.Popen` as tests use.

    Args:
        act: what it does, a function of a module; it ends by returning or as `sys.exit` says.
        arguments: of the program, as `sys.argv` holds them behind its name.
        env: its whole environment.
        stdout: descriptor of its standard output, which stays the caller's.
        stderr: the same of its errors.
    """

    def __init__(
        self, act: Callable[[], None], arguments: Sequence[str], env: Mapping[str, str], stdout: int, stderr: int
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_IMPORTED_BEFORE)
        # Connections are what can be handed to another process; these carry what is printed.
        outputs = [Connection(os.dup(descriptor), readable=False) for descriptor in (stdout, stderr)]
        run = (act, list(arguments), dict(env), *outputs)
        self._process = context.Process(target=_run, args=run, daemon=True)
        self._process.start()
        for output in outputs:
            output.close()
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
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(act: Callable[[], None], arguments: list[str], env: dict[str, str], out: Connection, err: Connection) -> None:
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = arguments
    for output, stream in ((out, sys.stdout), (err, sys.stderr)):
        os.dup2(output.fileno(), stream.fileno())
        output.close()
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    try:
        act()
    finally:
        # A fork leaves without them; coverage is written by one.
        atexit._run_exitfuncs()


def run_gateway() -> None:
    """Be the command `gateway`."""
    from gateway.cli.main import main

    main()
