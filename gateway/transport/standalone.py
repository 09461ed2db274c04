"""Questions about a conversation, each answered with one JSON body: how it goes on shorter, and how long it is."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from litestar import asgi
from litestar.enums import ScopeType
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import ASGIRouteHandler
from litestar.types import HTTPScope, Receive, Scope, Send

from gateway.config.schema import GatewayConfig
from gateway.engine.failures import log_failure
from gateway.engine.service import Engine
from gateway.engine.standalone import Standalone
from gateway.protocol.errors import GatewayError
from gateway.telemetry.metrics import Metrics
from gateway.transport.connection import ClientLeft, ClientWatch, RequestTimeout, find_connection
from gateway.transport.edge import STATE_CLIENT_LEFT, STATE_IDENTITY
from gateway.transport.http import list_headers, read_body, send_json
from gateway.transport.paths import COMPACT_PATH, INPUT_TOKENS_PATH
from gateway.transport.wire_errors import STATE_FAILURE, Failure, name_code, send_error

Answer = Callable[[str, bytes, Iterable[tuple[bytes, bytes]]], Awaitable[bytes]]


class StandaloneEndpoint:
    """The ASGI handlers of these questions. Each takes a place beside the responses that are being made.

    Args:
        standalone: answers them.
        engine: admits them.
        config: bounds of bodies.
        metrics: counts errors and clients that leave.
    """

    def __init__(self, standalone: Standalone, engine: Engine, config: GatewayConfig, metrics: Metrics) -> None:
        self._standalone = standalone
        self._engine = engine
        self._server = config.server
        self._metrics = metrics
        self._answers: Final[dict[str, Answer]] = {
            COMPACT_PATH: standalone.compact,
            INPUT_TOKENS_PATH: standalone.count_tokens,
        }

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds for every request that begins from now on."""
        self._server = config.server
        self._standalone.reconfigure(config)

    def cut_off(self) -> int:
        """End every question that is being answered, at once; returns how many there were."""
        return self._standalone.cut_off()

    def build_routes(self) -> list[ASGIRouteHandler]:
        """Build the routes, each of which gets every method."""
        return [self._build_route(path, answer) for path, answer in self._answers.items()]

    def _build_route(self, path: str, answer: Answer) -> ASGIRouteHandler:
        @asgi(path, copy_scope=False)
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != ScopeType.HTTP or scope["method"] != "POST":
                raise MethodNotAllowedException(headers={"Allow": "POST"})
            await self._serve(path, answer, scope, receive, send)

        return serve

    async def _serve(self, path: str, answer: Answer, scope: HTTPScope, receive: Receive, send: Send) -> None:
        connection = find_connection(scope)
        principal = scope["state"][STATE_IDENTITY].principal
        try:
            with self._engine.admit(principal) as place:
                body = await read_body(scope, receive, self._server, connection)
                async with ClientWatch(connection):
                    told = await answer(principal, body, scope["headers"])
                await send_json(told, send, list_headers(place))
        except ClientLeft:
            scope["state"][STATE_CLIENT_LEFT] = True
            self._metrics.client_disconnects_total.inc()
        except GatewayError as error:
            scope["state"][STATE_FAILURE] = Failure.of(error)
            self._metrics.response_errors_total.labels(code=name_code(error)).inc()
            log_failure(error, path)
            await send_error(send, error, close=isinstance(error, RequestTimeout))
