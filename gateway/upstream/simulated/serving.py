"""Serving the simulator, in a process of its own or inside a test."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any

import uvicorn
from msgspec import Struct

from gateway.upstream.simulated.agents import AgentScripts
from gateway.upstream.simulated.app import Simulator
from gateway.upstream.simulated.script import ScriptedReply

_GRACE_SECONDS = 1


class Served(Struct, frozen=True):
    """A running simulator and its base address."""

    simulator: Simulator
    url: str


class _EmbeddedServer(uvicorn.Server):
    """A server that leaves the process's signals alone and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def serve_simulator(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    itl: float = 0.0,
    script: Sequence[ScriptedReply] = (),
    agents: AgentScripts = MappingProxyType({}),
) -> AsyncIterator[Served]:
    """Serve a simulator in the running loop until the block ends.

    Args:
        host: address to listen on.
        port: port to listen on, 0 for a free one.
        itl: seconds between tokens.
        script: replies that come before the models' own.
        agents: what agents are told to do, in place of their messages.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    simulator = Simulator(itl=itl, script=script, agents=agents)
    application: Any = simulator
    config = uvicorn.Config(
        application,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    # Accepted sockets inherit it; without, each answer on a kept connection waits 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = _EmbeddedServer(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        await server.listening.wait()
        shown = f"[{host}]" if ":" in host else host
        yield Served(simulator, f"http://{shown}:{listener.getsockname()[1]}")
    finally:
        simulator.stop()
        server.should_exit = True
        await task
        listener.close()
