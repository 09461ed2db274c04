"""A worker process: it serves on the socket it was given and obeys its parent."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from gateway import __version__
from gateway.app import Gateway, StartError, build_app
from gateway.config import load_config
from gateway.config.handover import unpack
from gateway.reload import Reloader
from gateway.server.draining import GatewayServer
from gateway.server.exits import EXIT_FAILED
from gateway.server.listeners import Listeners
from gateway.server.messages import (
    MESSAGE_LIMIT,
    Answer,
    Ask,
    Failed,
    Order,
    ReadAgain,
    Serving,
    Stop,
    Task,
    Topic,
    Word,
)
from gateway.server.process import reloader_of, run_loop
from gateway.telemetry.logs import configure_logging
from gateway.telemetry.sharing import share_metrics

_ORDERS = msgspec.json.Decoder(Order)


def main() -> NoReturn:
    """Work as the task on stdin says, and exit: 0 after an orderly end, 1 otherwise."""
    # Whoever sends one directly means the gateway, not its end; it is taken as soon as there is somebody to take it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    with socket.socket(fileno=task.control) as control, socket.socket(fileno=task.listener) as listener:
        try:
            sys.exit(_work(task, control, listener))
        except StartError as error:
            _say_last(control, Failed(str(error)))
            sys.exit(EXIT_FAILED)


def _work(task: Task, control: socket.socket, listener: socket.socket) -> int:
    if task.version != __version__:
        raise StartError(
            f"version {__version__} was installed while {task.version} is running; restart the gateway to change over."
        )
    share_metrics(Path(task.folder), task.number)
    config = unpack(bytes(task.config))
    load = partial(load_config, Path(task.file) if task.file else None, dict(os.environ), task.overrides)
    telemetry = config.telemetry
    configure_logging(
        telemetry.log_level, telemetry.log_format, sys.stderr, task.number, audit_file=telemetry.audit_file
    )
    gateway = build_app(config)
    link = _Link(control, gateway)
    server = GatewayServer(gateway, link.say_serving)
    reloader = reloader_of(gateway, load)
    return run_loop(
        server,
        reloader,
        Listeners(listener, None),
        wait_upstream=task.wait_upstream,
        report=_report,
        beside=link.obeying(server, reloader),
    )


def _say_last(control: socket.socket, word: Word) -> None:
    """Say something when there is no loop any more; a parent that has gone need not hear it."""
    control.setblocking(True)
    with suppress(OSError):
        control.sendall(msgspec.json.encode(word) + b"\n")


class _Link:
    """The connection to the parent.

    Args:
        control: the socket; stays open.
        gateway: what questions are about.
    """

    def __init__(self, control: socket.socket, gateway: Gateway) -> None:
        self._control = control
        self._gateway = gateway
        self._writer: asyncio.StreamWriter | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def obeying(self, server: GatewayServer, reloader: Reloader) -> AsyncIterator[None]:
        """Do what the parent says until the block ends; stop as at a signal when the parent has gone."""
        own = self._control.dup()
        own.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=own, limit=MESSAGE_LIMIT)
        obeying = asyncio.create_task(self._obey(reader, server, reloader), name="orders")
        try:
            yield
        finally:
            obeying.cancel()
            await asyncio.wait({obeying, *self._answering})
            self._writer.close()

    def say_serving(self) -> None:
        """Tell the parent that connections are accepted."""
        self._say(Serving())

    async def _obey(self, reader: asyncio.StreamReader, server: GatewayServer, reloader: Reloader) -> None:
        while line := await reader.readline():
            match _ORDERS.decode(line):
                case Stop(urgency, reason):
                    # It may have had a signal of its own, as when a whole group was told to end.
                    while server.stops < urgency:
                        server.stop(reason)
                case ReadAgain():
                    reloader.request()
                case Ask(number, about):
                    answering = asyncio.create_task(self._answer(number, about))
                    self._answering.add(answering)
                    answering.add_done_callback(self._answering.discard)
        if not server.stops:
            server.stop("the parent process has ended")

    async def _answer(self, number: int, about: Topic) -> None:
        body: Any = None
        match about:
            case "metrics":
                self._gateway.parts.metrics.refresh()
            case "readiness":
                body = await self._gateway.parts.readiness.check()
            case "status":
                body = await self._gateway.read_status()
        self._say(Answer(number, msgspec.Raw(msgspec.json.encode(body))))

    def _say(self, word: Word) -> None:
        assert self._writer is not None
        self._writer.write(msgspec.json.encode(word) + b"\n")


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
