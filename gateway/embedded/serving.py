"""A uvicorn server that is a guest in a loop and process of somebody else."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

_GRACE_SECONDS = 1


class _Server(uvicorn.Server):
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
async def serve_application(
    application: Any, *, host: str = "127.0.0.1", port: int = 0, websockets: bool = False
) -> AsyncIterator[str]:
    """Serve in the running loop until the block ends, and give the URL.

    What is still being answered then has a second to end.

    Args:
        application: an ASGI application without a lifespan.
        host: address to listen on.
        port: port to listen on, 0 for a free one.
        websockets: whether upgrades are taken.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    config = uvicorn.Config(
        application,
        lifespan="off",
        ws="websockets-sansio" if websockets else "none",
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    # Accepted sockets inherit it; without, each answer on a kept connection waits 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        await server.listening.wait()
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()
