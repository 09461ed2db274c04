"""A program that speaks MCP over its standard input and output, started by the gateway.

It runs in a process group of its own, gets few variables, and is ended with everything it started. Lines are counted
while they are read. What it writes to its standard error goes into the log, as far as that is bearable.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from gateway.telemetry import names
from gateway.tools.mcp.exchange import ServerFault, hide
from gateway.tools.mcp.session import Streams
from gateway.tools.mcp.targets import Program

_logger = logging.getLogger(names.LOGGER_MCP)

_KEPT: Final = ("PATH", "HOME", "LANG", "TMPDIR")
_GRACE_SECONDS: Final = 1.0
_DRAINED_BYTES: Final = 65_536
_LOGGED_CHARACTERS: Final = 500
_LOGGED_LINES: Final = 100
_LOGGED_SECONDS: Final = 60.0


@asynccontextmanager
async def connect_stdio(program: Program, max_message_bytes: int, ended: asyncio.Event) -> AsyncIterator[Streams]:
    """Start a program and yield its streams; it is ended with the block.

    Args:
        program: how it is started.
        max_message_bytes: longest line.
        ended: set when it says no more.

    Raises:
        ServerFault: it cannot be started.
    """
    process = await _start(program, max_message_bytes)
    incoming, reader = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writer, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    receiving = asyncio.create_task(_receive(process, incoming, max_message_bytes))
    receiving.add_done_callback(lambda _: ended.set())
    others = [asyncio.create_task(_send(process, outgoing)), asyncio.create_task(_log(process, program))]
    try:
        async with incoming, reader, writer, outgoing:
            yield Streams(reader, writer, lambda: None, lambda: _read_fault(receiving))
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            for task in (receiving, *others):
                task.cancel()
            await asyncio.wait([receiving, *others])
            await _drain(process)


async def _start(program: Program, max_message_bytes: int) -> Process:
    kept = {name: os.environ[name] for name in (*_KEPT, *program.env_pass) if name in os.environ}
    try:
        return await asyncio.create_subprocess_exec(
            *program.command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**kept, **program.env},
            cwd=program.cwd,
            start_new_session=True,
            limit=max_message_bytes,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its arguments are not such"
        raise ServerFault(f"could not be started: {reason}") from None


async def _receive(
    process: Process, incoming: MemoryObjectSendStream[SessionMessage | Exception], limit: int
) -> ServerFault:
    """Hand on messages until there are no more, and return why.

    Whatever is no message is left out, as programs print all sorts of things.
    """
    assert process.stdout is not None
    async with incoming:
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                return ServerFault(f"sent a message above {limit} bytes", bound="mcp.max_message_bytes")
            if not line:
                return ServerFault("ended by itself")
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                continue
            try:
                await incoming.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return ServerFault("was ended")


async def _send(process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError):
        async for sent in outgoing:
            process.stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _log(process: Process, program: Program) -> None:
    """Log what it complains of, cut and counted, without the values it was given to keep."""
    assert process.stderr is not None
    now = asyncio.get_running_loop().time
    since, count, begun = now(), 0, b""
    while part := await process.stderr.read(_DRAINED_BYTES):
        if now() - since > _LOGGED_SECONDS:
            since, count = now(), 0
        # Whole lines, as half a secret would not be found; one without end is nothing to be read.
        *lines, begun = (begun + part).split(b"\n")
        begun = begun[:_DRAINED_BYTES]
        for line in lines:
            count += 1
            if count <= _LOGGED_LINES:
                told = hide(line.decode(errors="replace").rstrip(), program.secrets)[:_LOGGED_CHARACTERS]
                _logger.info("MCP server says: %s", told, extra={names.FIELD_SERVER: program.label})


def _read_fault(receiving: asyncio.Task[ServerFault]) -> ServerFault | None:
    if not receiving.done() or receiving.cancelled() or receiving.exception() is not None:
        return None
    return receiving.result()


async def _end(process: Process) -> None:
    """End a program as the protocol wants it: close its input, then ask, then insist; and all that it started."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        _signal(process, number)
        with anyio.move_on_after(_GRACE_SECONDS) as limit:
            await process.wait()
        if not limit.cancelled_caught:
            break
    _signal(process, signal.SIGKILL)


def _signal(process: Process, number: signal.Signals | None) -> None:
    """Send a signal to the whole group, which may outlive the program."""
    if number is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


async def _drain(process: Process) -> None:
    """Read what an ended program has left in its pipes, which close only at their end."""
    with anyio.move_on_after(_GRACE_SECONDS):
        for pipe in (process.stdout, process.stderr):
            while pipe is not None and await pipe.read(_DRAINED_BYTES):
                pass
