"""Background responses over HTTP: cancelling them, and reading their events as a stream."""

from collections.abc import Mapping, Sequence
from typing import Any

from litestar import MediaType, Request, Response, post
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.params import FromPath, SkipValidation
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send
from msgspec import structs

from gateway.config.schema import GatewayConfig
from gateway.config.units import KIB
from gateway.engine.background import Background
from gateway.ports import Identity
from gateway.protocol.errors import GatewayError, InvalidRequest
from gateway.telemetry.metrics import Metrics
from gateway.transport.connection import ClientLeft, ClientWatch, find_connection
from gateway.transport.edge import STATE_CLIENT_LEFT, STATE_IDENTITY
from gateway.transport.paths import RESPONSE_PATH
from gateway.transport.sse import EventStream
from gateway.transport.wire_errors import STATE_FAILURE, Failure, name_code

FROM_THE_START = -1
"""The number behind which all events are."""

_LONGEST_NUMBER = 18
_READ_AHEAD = 256 * KIB


class EventReader:
    """Streams the events of background responses; a client that leaves ends nothing but its own stream.

    Args:
        background: has the events.
        config: bounds of the streams.
        metrics: counts clients that leave.
    """

    def __init__(self, background: Background, config: GatewayConfig, metrics: Metrics) -> None:
        self._replay = background.replay
        self._metrics = metrics
        self.reconfigure(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds for every stream that begins from now on."""
        # What a reader does not take stays in the database, so that little of it has to wait here.
        bytes_ahead = min(config.server.delivery_max_bytes, _READ_AHEAD)
        self._server = structs.replace(config.server, delivery_max_bytes=bytes_ahead)

    async def check(self, principal: str, response_id: str) -> bool:
        """Tell whether the events of a response can be read; as `Replay.check`."""
        return await self._replay.check(principal, response_id)

    async def serve(
        self,
        scope: HTTPScope,
        send: Send,
        response_id: str,
        after: int = FROM_THE_START,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Answer a request with the events of a response behind a sequence number.

        Args:
            scope: of the request.
            send: to its client.
            response_id: a response that `check` has found.
            after: the sequence number.
            headers: further headers of the answer.
        """
        connection = find_connection(scope)
        identity: Identity = scope["state"][STATE_IDENTITY]
        stream = EventStream(connection, send, list(headers), self._server, self._metrics)
        try:
            async with ClientWatch(connection, stream.queue.resume):
                await stream.open()
                await self._replay.follow(identity.principal, response_id, after, stream)
        except ClientLeft:
            scope["state"][STATE_CLIENT_LEFT] = True
            self._metrics.client_disconnects_total.inc()
        except GatewayError as error:
            # It may be read on from where it broke off.
            scope["state"][STATE_FAILURE] = Failure.of(error)
            self._metrics.response_errors_total.labels(code=name_code(error)).inc()
            connection.break_off()
        finally:
            stream.close()


BackgroundDependency = NamedDependency[SkipValidation[Background]]
EventsDependency = NamedDependency[SkipValidation[EventReader]]


class EventAnswer(Response[bytes]):
    """An answer of the framework's that is the event stream of a response.

    Args:
        events: streams them.
        response_id: the response.
        after: the sequence number behind which they begin.
    """

    def __init__(self, events: EventReader, response_id: str, after: int) -> None:
        super().__init__(b"")
        self._events = events
        self._response_id = response_id
        self._after = after

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIApp:  # type: ignore[override]  # the framework only calls it
        """Return what answers."""
        return self._serve

    async def _serve(self, scope: Scope, _: Receive, send: Send) -> None:
        assert scope["type"] == ScopeType.HTTP
        await self._events.serve(scope, send, self._response_id, self._after)


@post(RESPONSE_PATH + "/cancel", status_code=200)
async def cancel_response(
    request: Request[Any, Any, Any], background: BackgroundDependency, response_id: FromPath[str]
) -> Response[bytes]:
    """End one of the caller's background responses and return it; one that has ended is returned as it is."""
    identity: Identity = request.scope["state"][STATE_IDENTITY]
    return Response(await background.cancel(identity.principal, response_id), media_type=MediaType.JSON)


def read_start(query: Mapping[str, str]) -> int:
    """Return the sequence number behind which a stream begins.

    Raises:
        InvalidRequest: `starting_after` is no sequence number.
    """
    text = query.get("starting_after")
    if text is None:
        return FROM_THE_START
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    raise InvalidRequest(
        "'starting_after' must be the sequence_number of an event.", code="invalid_value", param="starting_after"
    )
