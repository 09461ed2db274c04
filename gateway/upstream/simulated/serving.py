"""Serving the simulator, in a process of its own or inside a test."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType

from msgspec import Struct

from gateway.embedded.serving import serve_application
from gateway.upstream.simulated.agents import AgentScripts
from gateway.upstream.simulated.app import Simulator
from gateway.upstream.simulated.script import ScriptedReply


class Served(Struct, frozen=True):
    """A running simulator and its base address."""

    simulator: Simulator
    url: str


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
    async with serve_application(simulator, host=host, port=port) as url:
        try:
            yield Served(simulator, url)
        finally:
            simulator.stop()
