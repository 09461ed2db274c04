"""Further paths of the inference servers: request and answer pass through as they are."""

import re
from collections.abc import Iterable
from typing import Final

from litestar import asgi
from litestar.enums import ScopeType
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.handlers import ASGIRouteHandler
from litestar.types import HTTPResponseStartEvent, HTTPScope, Receive, Scope, Send

from gateway.config.schema import GatewayConfig
from gateway.engine.failures import log_failure
from gateway.engine.relay import Relay
from gateway.engine.service import Engine
from gateway.ports import RelayedAnswer
from gateway.protocol.errors import GatewayError
from gateway.telemetry.metrics import Metrics
from gateway.transport.connection import ClientLeft, ClientWatch, RequestTimeout, find_connection
from gateway.transport.edge import STATE_CLIENT_LEFT, STATE_IDENTITY
from gateway.transport.http import RawHeaders, read_body
from gateway.transport.wire_errors import STATE_FAILURE, Failure, name_code, send_error

# They belong to one connection, or are said by whoever holds it; `x-request-id` is the gateway's own.
_DROPPED: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"server", b"date", b"x-request-id"),
    }
)
_NO_CONTENT = 204
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class RelayEndpoint:
    """The ASGI handler of every path that is passed on.

    Args:
        relay: passes calls on.
        engine: admits them beside responses.
        config: bounds of bodies.
        metrics: counts errors and clients that leave.
    """

    def __init__(self, relay: Relay, engine: Engine, config: GatewayConfig, metrics: Metrics) -> None:
        self._relay = relay
        self._engine = engine
        self._server = config.server
        self._metrics = metrics

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds for every request that begins from now on."""
        self._server = config.server
        self._relay.reconfigure(config)

    def cut_off(self) -> int:
        """End every call that is being passed on, at once; returns how many there were."""
        return self._relay.cut_off()

    def build_route(self, path: str) -> ASGIRouteHandler:
        """Build the route of one path, which gets every method."""
        exact = path.encode()

        @asgi(path, copy_scope=False)
        async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
            # The framework takes a slash behind it, and other spellings, for the same.
            if scope["raw_path"] != exact:
                raise NotFoundException
            if scope["type"] != ScopeType.HTTP or scope["method"] != "POST":
                raise MethodNotAllowedException(headers={"Allow": "POST"})
            await self._serve(path, scope, receive, send)

        return pass_on

    async def _serve(self, path: str, scope: HTTPScope, receive: Receive, send: Send) -> None:
        connection = find_connection(scope)
        try:
            with self._engine.admit(scope["state"][STATE_IDENTITY].principal):
                body = await read_body(scope, receive, self._server, connection)
                query, headers = scope["query_string"].decode("latin-1"), scope["headers"]
                async with ClientWatch(connection), self._relay.open(path, query, body, headers) as answer:
                    await _pass_back(answer, send)
        except ClientLeft:
            scope["state"][STATE_CLIENT_LEFT] = True
            self._metrics.client_disconnects_total.inc()
        except GatewayError as error:
            scope["state"][STATE_FAILURE] = Failure.of(error)
            self._metrics.response_errors_total.labels(code=name_code(error)).inc()
            log_failure(error, path)
            # The status of an answer that has begun is out. That it ends too early is all that can still be told.
            if not connection.break_off():
                await send_error(send, error, close=isinstance(error, RequestTimeout))


async def _pass_back(answer: RelayedAnswer, send: Send) -> None:
    start: HTTPResponseStartEvent = {
        "type": "http.response.start",
        "status": answer.status,
        "headers": _keep(answer.headers, bodiless=answer.status == _NO_CONTENT),
    }
    await send(start)
    # The head waits for the first part of a body, which may be long in coming.
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    while piece := await answer.read():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _keep(headers: Iterable[tuple[bytes, bytes]], *, bodiless: bool) -> RawHeaders:
    """Return the headers of an answer that are for the client, names in lower case."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = {*_DROPPED, b"content-length"} if bodiless else set(_DROPPED)
    for name, value in lowered:
        if name == b"connection":
            dropped.update(token.strip() for token in value.lower().split(b","))
    return [
        (name, value)
        for name, value in lowered
        # Which web pages may read an answer, the gateway says.
        if name not in dropped and not name.startswith(b"access-control-") and not _CONTROL.search(value)
    ]
