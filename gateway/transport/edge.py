"""The outermost layer of the public app: what happens once to every request, whatever its route."""

import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send, WebSocketAcceptEvent
from litestar.types.asgi_types import HeaderScope
from uvicorn.protocols.utils import ClientDisconnected

from gateway.ports import LOCAL, Authenticator, Clock, Identity, Ids
from gateway.protocol.errors import GatewayError, Unauthorized, Unavailable
from gateway.protocol.ids import prefix_of
from gateway.telemetry import names
from gateway.telemetry.logs import log_access, request_id_var, response_id_var
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Span, Tracing
from gateway.transport.connection import SURPLUS_EXTENSION
from gateway.transport.hosts import HostPolicy
from gateway.transport.paths import LIVEZ_PATH, OPEN_PATHS
from gateway.transport.proxies import TrustedProxies
from gateway.transport.wire_errors import NO_ROUTE, STATE_FAILURE, Failure, from_exception, send_error

STATE_REQUEST_ID = "request_id"
STATE_IDENTITY = "identity"
"""Keys of `scope["state"]` that every handler finds set, the identity where callers are asked for it."""

STATE_CLIENT_LEFT = "client_left"
"""Key of `scope["state"]` a handler sets when the client left before it had its whole answer."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}\Z")
_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate", b"baggage"})
_READ_HEADERS = _TRACE_HEADERS | {b"host", b"origin", b"authorization", b"x-request-id"}
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
# Whoever tries all paths there could be, or all keys, would drive out everything else.
_OF_STRANGERS = frozenset({NO_ROUTE, Unauthorized.code})
_OTHER = "other"
_PREFIX = prefix_of("request")
_CLIENT_LEFT = 499
_ACCEPTED = 101


class _Headers:
    """The few request headers this layer reads, found in one pass; the first Host counts, as it does in routing."""

    __slots__ = ("credential", "host", "origin", "request_id", "trace")

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self.host: bytes | None = None
        self.origin: bytes | None = None
        self.request_id: bytes | None = None
        self.credential: bytes | None = None
        self.trace: dict[str, str] = {}
        for name, value in raw:
            if name not in _READ_HEADERS:
                continue
            if name == b"host" and self.host is None:
                self.host = value
            elif name == b"origin":
                self.origin = value
            elif name == b"authorization":
                # Which of two is meant, somebody in front may see otherwise: none is.
                self.credential = value if self.credential is None else b""
            elif name == b"x-request-id":
                self.request_id = value
            elif name in _TRACE_HEADERS:
                self.trace[name.decode()] = value.decode("latin-1")


class _Answer:
    """Stamps the request id on the answer and remembers its status, 0 until there is one.

    Args:
        send: sends to the client.
        request_id: the id.
        accepted: called when a WebSocket has been accepted.
    """

    __slots__ = ("_accepted", "_request_id", "_send", "status")

    def __init__(self, send: Send, request_id: bytes, accepted: Callable[[], None]) -> None:
        self._send = send
        self._request_id = request_id
        self._accepted = accepted
        self.status = 0

    def send(self, message: Message) -> Awaitable[None]:
        # Not a coroutine of its own: this runs once for every batch of a stream.
        if message["type"] == "http.response.start" or message["type"] == "websocket.http.response.start":
            self.status = message["status"]
            self._stamp(message)
        elif message["type"] == "websocket.accept":
            return self._accept(message)
        return self._send(message)

    async def _accept(self, message: WebSocketAcceptEvent) -> None:
        self._stamp(message)
        await self._send(message)
        self.status = _ACCEPTED
        self._accepted()

    def _stamp(self, message: HeaderScope) -> None:
        message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._request_id)]

    def conclude(self, client_left: bool) -> int:
        """Return the status to record; a client that leaves a WebSocket has had its answer."""
        if client_left and self.status != _ACCEPTED:
            return _CLIENT_LEFT
        return self.status or _CLIENT_LEFT


class Edge:
    """Gives every request an id, an owner, a span, a metric and an access line, and keeps strangers out.

    A WebSocket is a GET, answered 101 when it is accepted and over when its connection is.

    Handlers find the id and the identity in `scope["state"]`; log records carry the id by themselves.

    Args:
        app: the app behind.
        policy: which Host and Origin headers pass.
        authenticator: tells who calls.
        proxies: tells for whom a proxy calls; None where none is believed.
        metrics: where requests are counted.
        tracing: starts the request's span.
        clock: measures.
        ids: mints request ids.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        policy: HostPolicy,
        authenticator: Authenticator,
        proxies: TrustedProxies | None = None,
        metrics: Metrics,
        tracing: Tracing,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._app = app
        self._policy = policy
        self._authenticator = authenticator
        self._proxies = proxies
        self._metrics = metrics
        self._tracing = tracing
        self._clock = clock
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one WebSocket from its upgrade to its end."""
        started = self._clock.monotonic()
        headers = _Headers(scope["headers"])
        request_id = self._request_id(headers.request_id)
        state = scope.setdefault("state", {})
        state[STATE_REQUEST_ID] = request_id
        request_id_var.set(request_id)
        response_id_var.set(None)
        method = scope["method"] if scope["type"] == ScopeType.HTTP else "GET"
        open_path = scope["path"] in OPEN_PATHS
        # Probes come all the time and tell nothing.
        with self._tracing.start_request(method, headers.trace, recorded=not open_path) as span:
            # The trace of a WebSocket is of its upgrade alone; what comes over it has traces of its own.
            answer = _Answer(send, request_id.encode(), lambda: _end_upgrade(scope, span))
            try:
                self._admit(scope, headers)
                if not open_path and method != "OPTIONS":
                    identity = None if self._proxies is None else self._proxies.identify(scope)
                    if identity is None:
                        identity = self._authenticator.recall(headers.credential)
                    if identity is None:
                        identity = await self._authenticator.authenticate(headers.credential)
                    state[STATE_IDENTITY] = identity
                await self._app(scope, receive, answer.send)
            except (CancelledError, ClientDisconnected):
                # The server cancels what is left when it ends. The client is gone by then, so nobody has to be told.
                state[STATE_CLIENT_LEFT] = True
            except Exception as error:
                if answer.status:
                    raise
                denial = scope["type"] == ScopeType.WEBSOCKET
                shown = from_exception(error)
                state[STATE_FAILURE] = Failure.of(shown)
                readable = self._policy.cors_headers(headers.origin)
                await send_error(answer.send, shown, denial=denial, headers=readable)
            finally:
                status = answer.conclude(state.get(STATE_CLIENT_LEFT, False))
                self._record(scope, method, status, self._clock.monotonic() - started, span)

    def note_refusal(self, error: GatewayError) -> str:
        """Count and log an error that answers what never became a request; returns the id of that answer."""
        request_id = self._request_id(None)
        token = request_id_var.set(request_id)
        self._metrics.requests_total.labels(_OTHER, _OTHER, error.status).inc()
        self._metrics.note_rejection(error.bound)
        log_access(_OTHER, "", error.status, 0.0)
        request_id_var.reset(token)
        return request_id

    def _note_error(self, scope: Scope, route: str, status: int) -> None:
        failure: Failure | None = scope["state"].get(STATE_FAILURE)
        if failure is not None and failure.code not in _OF_STRANGERS:
            self._metrics.note_failure(route, status, failure.code, failure.bound)

    def _request_id(self, sent: bytes | None) -> str:
        if sent is not None and _REQUEST_ID.match(sent):
            return sent.decode()
        return self._ids.mint(_PREFIX)

    def _admit(self, scope: Scope, headers: _Headers) -> None:
        # A probe that cannot get in would have a busy process killed.
        if SURPLUS_EXTENSION in (scope.get("extensions") or ()) and scope["path"] != LIVEZ_PATH:
            raise Unavailable(
                "More client connections are open than [server] max_connections allows; try again later.",
                bound="server.max_connections",
            )
        self._policy.check(headers.host, headers.origin)

    def _record(self, scope: Scope, method: str, status: int, seconds: float, span: Span) -> None:
        route = scope.get("path_template", _OTHER)
        method = method if method in _METHODS else _OTHER
        metrics = self._metrics
        metrics.defer(metrics.requests_total.labels(route, method, status))
        # How long a WebSocket lives says nothing about how soon requests are answered.
        if status != _ACCEPTED:
            metrics.defer(metrics.request_seconds.labels(route), seconds)
        if status >= 400:
            self._note_error(scope, route, status)
        identity: Identity | None = scope["state"].get(STATE_IDENTITY)
        caller = None if identity is LOCAL else identity
        log_access(method, scope["raw_path"].decode("latin-1"), status, seconds, caller)
        if span.recording:
            _describe(span, scope, method, status)


def _end_upgrade(scope: Scope, span: Span) -> None:
    if span.recording:
        _describe(span, scope, "GET", _ACCEPTED)
        span.end()


def _describe(span: Span, scope: Scope, method: str, status: int) -> None:
    """Say what a request was and how it was answered; not what stands behind `?`, which may be a secret."""
    route = scope.get("path_template", _OTHER)
    span.rename(f"{method} {route}")
    span.annotate(
        {
            names.ATTR_HTTP_METHOD: method,
            names.ATTR_HTTP_ROUTE: route,
            names.ATTR_HTTP_STATUS: status,
            names.ATTR_URL_SCHEME: scope.get("scheme", "http"),
            names.ATTR_URL_PATH: scope["raw_path"].decode("latin-1"),
            names.ATTR_REQUEST_ID: scope["state"][STATE_REQUEST_ID],
            names.ATTR_RESPONSE_ID: response_id_var.get(),
        }
    )
    if status >= 500:
        span.fail(str(status))
