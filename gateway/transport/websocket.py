"""`/v1/responses` as a WebSocket: who may connect, and what has to end when the gateway does."""

import asyncio
from collections import Counter
from functools import partial
from urllib.parse import parse_qs

from litestar.types import Receive, Send, WebSocketScope

from gateway.config.schema import GatewayConfig
from gateway.engine.service import Engine
from gateway.ports import Authenticator, Identity
from gateway.protocol.errors import RateLimitExceeded, RequestTooLarge, Unavailable
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing
from gateway.transport.auth import require_standing
from gateway.transport.edge import STATE_IDENTITY
from gateway.transport.lanes import LaneConnection
from gateway.transport.socket import ClientSocket, find_socket

_LOST = 1006
_TOO_BIG = 1009
# Clients choose codes too, of which there are thousands.
_NAMED_CODES = frozenset({*range(1000, 1004), *range(1005, 1016)})


class WebSocketEndpoint:
    """The ASGI handler of upgrades.

    Args:
        engine: makes the responses.
        config: bounds of connections.
        metrics: counts connections, creates and errors.
        tracing: starts the spans of creates.
        authenticator: tells at every create whether its caller may still make one.
    """

    def __init__(
        self,
        engine: Engine,
        config: GatewayConfig,
        metrics: Metrics,
        tracing: Tracing,
        authenticator: Authenticator,
    ) -> None:
        self._engine = engine
        self._config = config
        self._metrics = metrics
        self._tracing = tracing
        self._authenticator = authenticator
        self._connections: set[LaneConnection] = set()
        self._owners: Counter[str] = Counter()
        self._draining = False

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds for every connection that begins from now on."""
        self._config = config

    def begin_drain(self) -> None:
        """Accept no connections any more; those that are open close when what runs on them has ended."""
        self._draining = True
        for connection in list(self._connections):
            connection.begin_drain()

    async def drained(self, timeout: float) -> bool:
        """Wait until everything has been told on every connection, and Close; tell whether that came true in time.

        Args:
            timeout: longest wait in seconds.
        """
        telling = [asyncio.ensure_future(connection.told.wait()) for connection in self._connections]
        if not telling:
            return True
        _, pending = await asyncio.wait(telling, timeout=max(0.0, timeout))
        for wait in pending:
            wait.cancel()
        return not pending

    async def __call__(self, scope: WebSocketScope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket from its upgrade to its end.

        Raises:
            Unavailable: draining, or too many are open; nothing was accepted.
            RateLimitExceeded: the principal has too many open; nothing was accepted.
        """
        await receive()
        identity: Identity = scope["state"][STATE_IDENTITY]
        principal = identity.principal
        self._check_room(principal)
        socket = find_socket(scope)
        self._owners[principal] += 1
        connection = LaneConnection(
            socket,
            self._engine,
            self._config,
            self._metrics,
            self._tracing,
            principal=principal,
            check_caller=partial(require_standing, self._authenticator, identity),
            headers=scope["headers"],
            default_model=_read_default_model(scope["query_string"]),
        )
        self._connections.add(connection)
        accepted = False
        try:
            await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
            accepted = True
            await connection.serve()
        finally:
            connection.told.set()
            self._connections.discard(connection)
            self._owners[principal] -= 1
            if not self._owners[principal]:
                del self._owners[principal]
            if accepted:
                self._count_end(socket)

    def _count_end(self, socket: ClientSocket) -> None:
        code = socket.close_code or _LOST
        named = code if code in _NAMED_CODES else "other"
        self._metrics.websocket_closes_total.labels(code=named, by="client" if socket.left_first else "gateway").inc()
        if code == _TOO_BIG and not socket.left_first:
            # The socket itself has told the client.
            self._metrics.websocket_errors_total.labels(code=RequestTooLarge.code).inc()
            bound = "websocket.max_message_bytes"
            self._metrics.note_failure("websocket", RequestTooLarge.status, RequestTooLarge.code, bound)

    def _check_room(self, principal: str) -> None:
        bounds = self._config.websocket
        if self._draining:
            raise Unavailable("The gateway is shutting down; connect again.")
        if len(self._connections) >= bounds.max_connections:
            raise Unavailable(
                f"{bounds.max_connections} WebSockets are open, the most there may be ([websocket] max_connections); "
                "connect again later.",
                bound="websocket.max_connections",
            )
        if self._owners[principal] >= bounds.max_connections_per_principal:
            raise RateLimitExceeded(
                f"You have {bounds.max_connections_per_principal} WebSockets open, the most you may have "
                "([websocket] max_connections_per_principal); close one first.",
                bound="websocket.max_connections_per_principal",
            )


def _read_default_model(query: bytes) -> str | None:
    """Return `?model=`, which some clients send with the upgrade."""
    values = parse_qs(query.decode("latin-1")).get("model")
    return values[0] if values else None
