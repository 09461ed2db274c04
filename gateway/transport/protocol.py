"""One client connection: uvicorn's HTTP within bounds, and with the gateway's words for what is not HTTP."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway.config.schema import ServerConfig
from gateway.protocol.errors import GatewayError, InvalidRequest, Unavailable
from gateway.transport.connection import CONNECTION_EXTENSION, SURPLUS_EXTENSION, RequestTimeout, StallWatch
from gateway.transport.cycle import Cycle
from gateway.transport.framing import CHUNK, LAST_CHUNK, HeadKeeper, UnframedKeeper
from gateway.transport.wire_errors import http_error

# Connections above the limit whose request is read, so that a probe of /livez finds a process that lives.
_SPARE_CONNECTIONS = 256
_FIRST_WITH_CHUNKS = "1.1"


class InvalidHttp(InvalidRequest):
    """What the client sent is no HTTP request."""

    code = "invalid_http"


class HeadTooLarge(InvalidRequest):
    """The head of the request is above `[server] max_header_bytes`."""

    status = 431
    code = "request_header_too_large"
    bound = "server.max_header_bytes"


class ConnectionProtocol(HttpToolsProtocol):
    """Reads one request at a time and watches the client meanwhile.

    Reading goes on while a response is made, or a client that leaves would go unnoticed. What arrives behind the
    request, be it another one or rubbish, is thrown away, and the connection closes after the response.

    Args:
        config: uvicorn's configuration.
        server_state: the server's connections and tasks.
        app_state: copied into the scope of each request.
        _loop: the event loop; uvicorn passes it under this name.
        settings: bounds of heads, connections and sends.
        note_refusal: told of each error that answers what never became a request; returns the answer's id.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: ServerConfig,
        note_refusal: Callable[[GatewayError], str] | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings = settings
        self._note_refusal = note_refusal
        self._stall: StallWatch
        self._surplus = False
        self._deaf = False
        self._left: Callable[[], object] | None = None
        self._ready: Callable[[], object] | None = None
        self._head: HeadKeeper
        self._in_head = False
        self._head_timed = False
        self._serving = False
        # Bytes since the parser last made anything of them: the length of a head, a trailer or a chunk's extension.
        self._unyielding = 0

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; refuse at once when there are far too many connections."""
        super().connection_made(transport)
        self._stall = StallWatch(transport, self._settings.send_deadline_seconds, self._owes)
        surplus = len(self.connections) - self._settings.max_connections
        self._surplus = surplus > 0
        if surplus > _SPARE_CONNECTIONS:
            self._refuse(
                Unavailable(
                    "Far more client connections are open than [server] max_connections allows.",
                    bound="server.max_connections",
                )
            )
            return
        self.timeout_keep_alive = self._settings.idle_connection_seconds  # type: ignore[assignment]
        self._set_timer(self._settings.header_timeout_seconds, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the handler that its client is gone."""
        self._stall.end()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self._tell_left()
        if not self._serving:
            self._let_go()

    def pause_writing(self) -> None:
        """Hold back the handler until the client has read; not for ever."""
        super().pause_writing()
        self._stall.begin()

    def resume_writing(self) -> None:
        """Let the handler go on."""
        super().resume_writing()
        self._stall.note_progress()
        if self._ready is not None:
            self._ready()

    def write_body(self, body: bytes, *, last: bool = False) -> bool:
        """Write a part of the running response's body at once; False, and nothing written, if the client must catch up.

        The way around the app's layers for the hot path; what is written to a client that has gone is dropped.
        """
        cycle = self.cycle
        if cycle.disconnected:
            return True
        if self.flow.write_paused:
            return False
        if not self.transport.is_closing():
            self._head.write((LAST_CHUNK if last else CHUNK) % (len(body), body))
        if last:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                self._head.close()
            cycle.on_response()
        return True

    def take_body(self) -> bytes | None:
        """Return the body of the request, once, or None while it has not arrived whole."""
        cycle = self.cycle
        if cycle.more_body or cycle.disconnected:
            return None
        body, cycle.body = cycle.body, bytearray()
        cycle.message_event.clear()
        self.flow.resume_reading()
        return bytes(body)

    def break_off(self) -> bool:
        """Close the connection in the middle of an answer; False, and nothing done, where none has begun."""
        cycle = self.cycle
        if not cycle.response_started or cycle.response_complete:
            return False
        cycle.disconnected = True
        self._head.close()
        return True

    def watch(self, left: Callable[[], object] | None, ready: Callable[[], object] | None = None) -> None:
        """Call back when the connection is lost, and when the client has caught up; None ends the watch."""
        self._left, self._ready = left, ready
        if self.cycle.disconnected:
            self._tell_left()

    def shutdown(self) -> None:
        """Close after the running response, at once if there is none."""
        if self._deaf and not self._answering:
            self.transport.close()
        else:
            super().shutdown()

    # ------------------------------------------------------------ reading

    def data_received(self, data: bytes) -> None:
        """Read requests; what follows a request that is being answered is dropped."""
        if self._deaf:
            return
        self._unyielding += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._hand_over(data[upgrade.args[0] :])
            else:
                self._read_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            ours = error.__context__
            self._stop_reading(ours if isinstance(ours, GatewayError) else InvalidHttp(f"This is not HTTP: {error}."))
            return
        if self._unyielding > self._settings.max_header_bytes:
            self._stop_reading(self._head_too_large())
        elif self._in_head and not self._head_timed:
            self._head_timed = True
            self._set_timer(self._settings.header_timeout_seconds, self._give_up_on_head)

    def on_message_begin(self) -> None:
        """Begin a request, unless one is being answered."""
        if self._answering:
            raise InvalidHttp("The next request came before the answer to this one.")
        super().on_message_begin()
        self._in_head, self._head_timed = True, False
        extensions: dict[str, Any] = {CONNECTION_EXTENSION: self}
        if self._surplus:
            extensions[SURPLUS_EXTENSION] = True
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        """Hand the request to the app."""
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > self._settings.max_header_bytes:
            raise self._head_too_large()
        method = self.parser.get_method()
        self.scope["method"] = method.decode()
        if not self.parser.should_upgrade():
            self._begin_cycle()
        elif not self._should_upgrade():
            if method == b"CONNECT":
                raise InvalidHttp("CONNECT is a matter of proxies, and this is none.")
            return
        self._unset_keepalive_if_required()
        self._in_head, self._unyielding = False, 0

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        self._unyielding = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body; a head with an upgrade that is ignored has none yet."""
        if not self._in_head:
            self._unyielding = 0
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the connection when an answer is through."""
        self._head.flush()
        super().on_response_complete()

    # ------------------------------------------------------------ inside

    def _tell_left(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left()

    @property
    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.disconnected)

    def _owes(self) -> bool:
        return self.flow.write_paused or self.transport.is_closing() or not self._answering

    def _begin_cycle(self) -> None:
        scope, version = self.scope, self.parser.get_http_version()
        try:
            target = httptools.parse_url(self.url)
            path = target.path.decode("ascii")
        except (httptools.HttpParserError, ValueError, AttributeError) as error:
            raise InvalidHttp("The URL of the request cannot be read.") from error
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query or b""
        # What comes behind a body is nobody's.
        self.headers = []
        keeper = UnframedKeeper if version < _FIRST_WITH_CHUNKS else HeadKeeper
        self._head = keeper(self.transport)
        self.cycle = cycle = Cycle(
            scope=scope,
            transport=self._head,  # type: ignore[arg-type]  # it has what a cycle needs
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and not self._surplus and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._serving = True
        task = self.loop.create_task(cycle.run_asgi(self.app), context=Context())
        self.tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        self._serving = False
        if self in self.connections:
            self._stall.begin()
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Cut what leads back to an ended connection, or all of it would wait for the garbage collector."""
        self.scope = {}  # type: ignore[typeddict-item]
        if self.cycle is not None:
            self.cycle.scope = self.scope

    def _should_upgrade(self) -> bool:
        # One connection too many is told so by the app, as for any GET.
        return self.parser.get_method() == b"GET" and not self._surplus and super()._should_upgrade()

    def _hand_over(self, rest: bytes) -> None:
        """Let the protocol of WebSockets go on with the connection."""
        self._stall.end()
        self.handle_websocket_upgrade()
        self._let_go()
        socket = cast("asyncio.Protocol", self.transport.get_protocol())
        if self.flow.write_paused:
            # The client has not yet taken the answer to its last request, of which the transport told only this one.
            socket.pause_writing()
        if rest and not self.transport.is_closing():
            socket.data_received(rest)

    def _read_without_upgrade(self, rest: bytes) -> None:
        # The parser takes no body behind an upgrade, so it gets the head again without one.
        lines = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        version = self.parser.get_http_version().encode()
        start = self.parser.get_method() + b" " + self.url + b" HTTP/" + version
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([start, *lines, b"", rest]))

    def _stop_reading(self, error: GatewayError) -> None:
        """Read no more, and say why where an answer is due."""
        if self._answering and (self.cycle.response_started or not self.cycle.more_body):
            self._deaf = True
            self.cycle.keep_alive = False
        elif self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._refuse(error)
        elif self._in_head:
            self._refuse(error)
        else:
            self.transport.close()

    def _refuse(self, error: GatewayError) -> None:
        answer = http_error(error)
        headers = [*self.server_state.default_headers, *answer.headers, (b"connection", b"close")]
        if self._note_refusal is not None:
            headers.append((b"x-request-id", self._note_refusal(error).encode()))
        lines = [name + b": " + value for name, value in headers]
        self.transport.write(STATUS_LINE[answer.status] + b"\r\n".join([*lines, b"", answer.body]))
        # A client that still sends would see its connection reset instead of the answer, so it is heard out.
        self._deaf = True
        self.transport.write_eof()
        self._set_timer(self._settings.header_timeout_seconds, self.transport.abort)

    def _give_up_on_head(self) -> None:
        seconds = self._settings.header_timeout_seconds
        self._refuse(
            RequestTimeout(
                f"The request head did not arrive within {seconds:g} seconds ([server] header_timeout_seconds).",
                bound="server.header_timeout_seconds",
            )
        )

    def _head_too_large(self) -> HeadTooLarge:
        limit = self._settings.max_header_bytes
        return HeadTooLarge(f"The request head is larger than {limit} bytes ([server] max_header_bytes).")

    def _set_timer(self, seconds: float, act: Callable[[], None]) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(seconds, act)
