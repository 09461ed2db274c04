"""uvicorn within our bounds: without signals of its own, and with an end that leaves clients their last bytes."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn
from litestar.types import ASGIApp

from gateway.config.schema import GatewayConfig, ServerConfig
from gateway.protocol.errors import GatewayError
from gateway.transport.protocol import ConnectionProtocol
from gateway.transport.socket_protocol import SocketProtocol
from gateway.transport.tls import TlsConnection

_BACKLOG = 2048
_LOOP = "auto"
_CLOSING_INTERVAL_SECONDS = 0.05
# How long handlers of aborted connections get to end by themselves.
_ABORT_GRACE_SECONDS = 1.0


class LeavingServer(uvicorn.Server):
    """A uvicorn server without signals of its own, which ends by leaving its clients, not by cancelling handlers.

    Args:
        app: what is served.
        config: returns the configuration in effect, with the bounds of connections; a connection keeps those it began
            with.
        note_refusal: told of every error that answers what is no request, as `ConnectionProtocol` tells it.
        upgrades: whether a request may become a WebSocket.
        tls: returns what new connections are encrypted with, None for plain ones.

    Attributes:
        listening: set once connections are accepted.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: Callable[[], GatewayConfig],
        note_refusal: Callable[[GatewayError], str] | None = None,
        *,
        upgrades: bool = False,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self._running_config = config
        self._tls = tls
        self._note_refusal = note_refusal
        super().__init__(_uvicorn_config(app, self._build_protocol, self._build_socket if upgrades else "none"))
        self._close_at: float | None = None
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    @property
    def settings(self) -> ServerConfig:
        """The bounds in effect."""
        return self._running_config().server

    def _build_protocol(self, *args: Any, **kwargs: Any) -> asyncio.Protocol:
        served = ConnectionProtocol(*args, **kwargs, settings=self.settings, note_refusal=self._note_refusal)
        context = self._tls()
        return served if context is None else TlsConnection(context, served)

    def _build_socket(self, *args: Any, **kwargs: Any) -> SocketProtocol:
        return SocketProtocol(
            *args,
            **kwargs,
            settings=self._running_config().websocket,
            close_grace_seconds=self.settings.close_grace_seconds,
            note_refusal=self._note_refusal,
        )

    def exit(self, close_at: float | None = None) -> None:
        """Stop accepting connections and end.

        Args:
            close_at: loop time at which connections that are still open are aborted; None grants the usual grace.
        """
        self._close_at = close_at
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, then say so."""
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener, let the last bytes leave, then abort the connections and with them their handlers."""
        now = asyncio.get_running_loop().time
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        connections = self.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        if self._close_at is None:
            self._close_at = now() + self.settings.close_grace_seconds
        while connections and now() < self._close_at:  # noqa: ASYNC110  # nobody tells when the last one is gone
            await asyncio.sleep(_CLOSING_INTERVAL_SECONDS)
        for connection in list(connections):
            connection.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_ABORT_GRACE_SECONDS)
            left = list(self.server_state.tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def choose_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop that servers run on."""
    return uvicorn.Config("", loop=_LOOP, log_config=None).get_loop_factory()


def _uvicorn_config(
    app: ASGIApp,
    build_protocol: Callable[..., asyncio.Protocol],
    build_socket: Callable[..., SocketProtocol] | Literal["none"],
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=build_protocol,  # type: ignore[arg-type]  # uvicorn only calls it
        loop=_LOOP,
        ws=build_socket,  # type: ignore[arg-type]  # likewise
        lifespan="off",  # the gateway is opened around the server, so that its errors arrive here as they are
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        reset_contextvars=True,
        backlog=_BACKLOG,
    )
