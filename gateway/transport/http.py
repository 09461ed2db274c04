"""`POST /v1/responses`: reads the body, asks the engine, answers as JSON or hands over to the event stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar.enums import ScopeType
from litestar.types import HTTPResponseStartEvent, HTTPScope, Receive, Scope, Send

from gateway.config.schema import GatewayConfig, ServerConfig
from gateway.engine.admission import Place
from gateway.engine.background import Background
from gateway.engine.plan import Caller, Plan
from gateway.engine.service import Engine
from gateway.protocol.errors import GatewayError, RequestTooLarge
from gateway.telemetry.logs import response_id_var
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import TRANSPORT_BACKGROUND
from gateway.transport.background import EventReader
from gateway.transport.connection import (
    ClientConnection,
    ClientLeft,
    ClientWatch,
    RequestTimeout,
    find_connection,
)
from gateway.transport.edge import STATE_CLIENT_LEFT, STATE_IDENTITY
from gateway.transport.sse import EventStream
from gateway.transport.wire_errors import STATE_FAILURE, Failure, name_code, send_error

RawHeaders = list[tuple[bytes, bytes]]

# How much of a body that is too large is read and thrown away, in limits, so that its sender gets to read the answer.
_DISCARD_FACTOR = 4


class ResponsesEndpoint:
    """The ASGI handler of the hot path.

    Args:
        engine: makes the responses.
        background: makes those that nobody waits for.
        events: streams the events of these.
        config: bounds of bodies, keep-alives and sends.
        metrics: counts bodies, errors and clients that leave.
    """

    def __init__(
        self, engine: Engine, background: Background, events: EventReader, config: GatewayConfig, metrics: Metrics
    ) -> None:
        self._engine = engine
        self._background = background
        self._events = events
        self._server = config.server
        self._metrics = metrics

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds for every request that begins from now on."""
        self._server = config.server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; errors before the first byte are answered, a client that left is noted."""
        assert scope["type"] == ScopeType.HTTP
        try:
            await self._serve(scope, receive, send)
        except ClientLeft:
            scope["state"][STATE_CLIENT_LEFT] = True
            self._metrics.client_disconnects_total.inc()
        except GatewayError as error:
            scope["state"][STATE_FAILURE] = Failure.of(error)
            self._metrics.response_errors_total.labels(code=name_code(error)).inc()
            # The rest of a body that was given up would be all that may come on its connection.
            await send_error(send, error, close=isinstance(error, RequestTimeout))

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        server = self._server
        connection = find_connection(scope)
        principal = scope["state"][STATE_IDENTITY].principal
        with self._engine.admit(principal) as place:
            body = await read_body(scope, receive, server, connection)
            self._metrics.defer(self._metrics.request_body_bytes, len(body))
            request, route = self._engine.read(body, scope["headers"])
            waits = not request.background
            caller = Caller(
                principal=principal,
                transport=("sse" if request.stream else "json") if waits else TRANSPORT_BACKGROUND,
                headers=route.pick_headers(scope["headers"]),
            )
            if not waits:
                self._background.check()
                if request.stream:
                    self._background.replay.admit()
            plan = await self._engine.prepare(caller, request, route)
            response_id_var.set(plan.response_id)
            headers = _extra_headers(plan, place)
            if not waits:
                queued = await self._background.submit(plan, body)
            elif request.stream:
                await self._stream(plan, EventStream(connection, send, headers, server, self._metrics), connection)
            else:
                async with ClientWatch(connection):
                    answer = await self._engine.answer(plan)
                await send_json(answer, send, headers)
        # Whoever reads on takes no place of those whose responses end with their requests.
        if not waits:
            await self._answer_queued(scope, send, plan, queued, headers)

    async def _answer_queued(
        self, scope: HTTPScope, send: Send, plan: Plan, queued: bytes, headers: RawHeaders
    ) -> None:
        if plan.request.stream:
            await self._events.serve(scope, send, plan.response_id, headers=headers)
        else:
            await send_json(queued, send, headers)

    async def _stream(self, plan: Plan, stream: EventStream, connection: ClientConnection) -> None:
        try:
            async with ClientWatch(connection, stream.queue.resume):
                await self._engine.stream(plan, stream)
        finally:
            stream.close()


async def send_json(body: bytes, send: Send, headers: RawHeaders) -> None:
    """Send a whole answer."""
    start: HTTPResponseStartEvent = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def read_body(scope: HTTPScope, receive: Receive, server: ServerConfig, connection: ClientConnection) -> bytes:
    """Return the body of a request.

    Raises:
        RequestTooLarge: it is above `[server] max_request_body_bytes`.
        RequestTimeout: it took longer to arrive than `[server] request_body_timeout_seconds`.
        ClientLeft: the client left before it had sent it.
    """
    limit = server.max_request_body_bytes
    whole = connection.take_body()
    if whole is not None:
        if len(whole) > limit:
            raise _too_large(limit)
        return whole
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    chunks: list[bytes] = []
    size = int(length) if length.isdigit() and int(length) > limit else 0
    try:
        async with asyncio.timeout(server.request_body_timeout_seconds):
            async for chunk in _body_chunks(receive):
                size += len(chunk)
                if size <= limit:
                    chunks.append(chunk)
                    continue
                # A client that still sends would see its connection reset instead of the answer.
                chunks.clear()
                if size > limit * _DISCARD_FACTOR:
                    break
    except TimeoutError:
        if size <= limit:
            raise RequestTimeout(
                "The request body did not arrive within "
                f"{server.request_body_timeout_seconds:g} seconds ([server] request_body_timeout_seconds).",
                bound="server.request_body_timeout_seconds",
            ) from None
    if size > limit:
        raise _too_large(limit)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"The request body is larger than {limit} bytes ([server] max_request_body_bytes).")


async def _body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


def list_headers(place: Place) -> RawHeaders:
    """Return what is left for the holder of a place."""
    return [(name.encode(), value.encode()) for name, value in place.headers.items()]


def _extra_headers(plan: Plan, place: Place) -> RawHeaders:
    toolset = plan.request.toolset
    headers = list_headers(place)
    if toolset.unsupported:
        headers.append((b"x-gateway-unsupported-tools", toolset.name_unsupported().encode("ascii")))
    return headers
