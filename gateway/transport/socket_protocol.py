"""One WebSocket: uvicorn's protocol within bounds, and with an orderly end whatever the client does."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from http import HTTPStatus
from typing import Any
from weakref import proxy

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.protocol import State

from gateway.config.schema import WebSocketConfig
from gateway.protocol.errors import GatewayError
from gateway.transport.connection import StallWatch
from gateway.transport.conversation import Conversation, frame_texts
from gateway.transport.inbox import Inbox, Take
from gateway.transport.socket import SOCKET_EXTENSION
from gateway.transport.wire_errors import from_exception


class SocketProtocol(WebSocketsSansIOProtocol):
    """Reads all the time, writes within bounds, and ends in an orderly way whatever the client does.

    Reading pauses only while more than one largest message waits, or pings and Close would go unseen, and between the
    slices of what has arrived. After Close nothing is written, and the connection ends when the client has answered or
    has had its time, but not while bytes still leave.

    Args:
        config: uvicorn's configuration.
        server_state: the server's connections and tasks.
        app_state: copied into the scope.
        _loop: the event loop.
        settings: bounds.
        close_grace_seconds: how long a client may take at most to answer Close once the server ends.
        note_refusal: told of each error that answers what never became a WebSocket; returns the answer's id.

    Attributes:
        write_paused: whether the client has to catch up before more is written.
    """

    conn: Conversation

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: WebSocketConfig,
        close_grace_seconds: float,
        note_refusal: Callable[[GatewayError], str] | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = Conversation(settings.max_message_bytes, self.logger, self.default_headers, note_refusal)
        self.ping_interval = settings.ping_interval_seconds
        self.ping_timeout = settings.pong_timeout_seconds
        self.close_timeout = settings.close_timeout_seconds
        self.write_paused = False
        self._settings = settings
        self._close_grace = close_grace_seconds
        self._stall: StallWatch
        self._stalled = False
        self._joined = bytearray()
        self.queue: Inbox = Inbox()
        self._gone = asyncio.Event()
        self._next_slice: asyncio.Handle | None = None
        self._left: Callable[[], object] | None = None
        self._ready: Callable[[], object] | None = None

    # ------------------------------------------------------------ for the endpoint

    @property
    def close_code(self) -> int | None:
        """Why the connection ended, None while it is open."""
        if self.conn.close_sent is not None:
            return self.conn.close_sent.code
        if self._stalled:
            return CloseCode.POLICY_VIOLATION
        return CloseCode.ABNORMAL_CLOSURE if self.disconnected else None

    @property
    def left_first(self) -> bool:
        """Whether it was the client who ended the connection, by its Close or without one."""
        if self.conn.close_sent is None:
            return not self._stalled
        return bool(self.conn.close_rcvd_then_sent)

    async def read(self, take: Take | None = None) -> str | bytes | None:
        """Return the next message that is not taken, or None once the connection is closed or lost."""
        if self._over and self.queue.empty():
            return None
        event = await self.receive(take)
        if event["type"] != "websocket.receive":
            return None
        text = event.get("text")
        return event["bytes"] if text is None else text

    def write(self, payloads: Sequence[bytes]) -> bool:
        """Write each payload as one text frame; False, and nothing written, when all is over."""
        if self._over:
            return False
        self.transport.write(frame_texts(payloads))
        return True

    async def close(self, code: int, reason: str = "") -> None:
        """Send what was written, then Close, and wait until the connection is gone, for a bounded time."""
        self._send_close(code, reason)
        await self._gone.wait()

    def watch(self, left: Callable[[], object] | None, ready: Callable[[], object] | None = None) -> None:
        """Call back when nobody reads any more, and when the client has caught up; None ends the watch."""
        self._left, self._ready = left, ready
        if self._over:
            self._tell_left()

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection over from HTTP."""
        super().connection_made(transport)
        # A client that does not take what is buffered is waited for by its responses, by a ping or by Close.
        # The watch must not keep alive who keeps it: cycles are looked for seldom.
        watched: Any = proxy(self)
        self._stall = StallWatch(watched, self._settings.send_deadline_seconds, lambda: True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything, and tell whoever waits for the client."""
        self._stall.stop()
        self.write_paused = False
        super().connection_lost(exc)
        self.conn.let_go()
        self._joined, self.frames = bytearray(), []
        self._gone.set()
        self._tell_left()

    def eof_received(self) -> None:
        """Take it that the client has gone: half a WebSocket is none. The transport closes when its buffer is empty."""
        self._tell_left()

    def pause_writing(self) -> None:
        """Hold back those who write until the client has read; not for ever."""
        super().pause_writing()
        self.write_paused = True
        self._stall.begin()

    def resume_writing(self) -> None:
        """Answer the ping that came meanwhile, and let them go on."""
        super().resume_writing()
        self.write_paused = False
        self._stall.note_progress()
        self.handle_ping()
        if self._ready is not None:
            self._ready()

    def shutdown(self) -> None:
        """Close, if the app has not, and let no client hold up the end by its silence."""
        if self.conn.state is State.CONNECTING:
            super().shutdown()
            return
        self.close_timeout = min(self.close_timeout, self._close_grace)
        if self.close_timer is not None:
            self.close_timer.cancel()
            self._wait_for_end()
        self._send_close(CloseCode.GOING_AWAY, "The server ends.")
        self._tell_left()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to leave."""
        return self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Leave a client that takes nothing; Close could not overtake what waits."""
        self._stalled = True
        self.transport.abort()

    # ------------------------------------------------------------ reading

    def data_received(self, data: bytes) -> None:
        """Read a slice of the frames, and before them the head that HTTP has read already."""
        whole = self.conn.read_whole(data)
        if whole is not None:
            self._hear(whole)
            return
        self.conn.read_slice(data)
        if self.conn.parser_exc is not None:
            self.handle_parser_exception()
        elif self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse_upgrade()
        else:
            self.handle_events()
        self._pace_reading()

    def handle_connect(self, event: Request) -> None:
        """Hand the upgrade to the app, and the socket with it."""
        # uvicorn starts the app's task here; what the server's own task knows of is not for it.
        Context().run(super().handle_connect, event)
        if not self.handshake_complete:
            self.scope["extensions"][SOCKET_EXTENSION] = self  # type: ignore[assignment]

    def handle_cont(self, event: Frame) -> None:
        """Add to a message; joined at once, for a list of empty frames would pass every limit."""
        if not self._joined:
            self._joined += self.frames[0]
        self._joined += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """Let a message wait to be read; one that comes behind Close is nobody's."""
        data = self._joined or self.frames[0]
        self._joined, self.frames = bytearray(), []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": bytes(data)})
        elif (text := self._decode(data)) is not None:
            self.queue.put_nowait({"type": "websocket.receive", "text": text})

    def _hear(self, data: bytes) -> None:
        """Offer a text message to whoever waits for it, or let it wait."""
        text = self._decode(data)
        try:
            if text is None or self.queue.offer(text):
                return
        except Exception as error:  # noqa: BLE001  # it ends here, as it would in the app
            from_exception(error)
            self._send_close(CloseCode.INTERNAL_ERROR)
        else:
            self.queue.put_nowait({"type": "websocket.receive", "text": text})
            self._pace_reading()

    def _decode(self, data: bytes | bytearray) -> str | None:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._fail(CloseCode.INVALID_DATA, "A text message must be UTF-8.")
            return None

    async def receive(self, take: Take | None = None) -> ASGIReceiveEvent:
        """Return the next event that is not taken, as ASGI has it."""
        event = await self.queue.read(take)
        if self.read_paused:
            self._pace_reading()
        return event

    def handle_ping(self) -> None:
        """Answer the last ping, unless the client has to catch up first."""
        pong = self.conn.pong
        if pong is not None and not self.write_paused:
            self.conn.pong = None
            if not self._over:
                self.transport.write(pong.serialize(mask=False))

    def handle_close(self, event: Frame) -> None:  # noqa: ARG002
        """End the connection: the client has said its Close, and what it gets back is said here."""
        if not self.close_sent and self.handshake_complete:
            self._end()
        self.transport.close()
        self._tell_left()

    def handle_parser_exception(self) -> None:
        """End a connection whose client breaks the rules; a message that is too large is answered first."""
        if self.close_sent:
            return
        if self.conn.state is State.CONNECTING:
            self.transport.close()
            return
        too_large = isinstance(self.conn.parser_exc, PayloadTooBig)
        self._end(frame_texts([self.conn.refuse_message()]) if too_large else b"")
        # The library hears nothing more, so the client shows by the end of its stream that it has read Close.
        self.transport.write_eof()
        self._tell_left()

    # ------------------------------------------------------------ pings

    def send_keepalive_ping(self) -> None:
        """Ping, unless bytes still leave: those show as well that the client lives, and a ping would wait behind."""
        if self.transport.get_write_buffer_size():
            self._stall.begin()
            self.schedule_ping()
        else:
            super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """End a connection whose client is dead; not while its answer may lie unread."""
        if self.read_paused:
            self.pong_timer = self.loop.call_later(self._settings.pong_timeout_seconds, self.keepalive_timeout)
        elif not self._over:
            self._fail(CloseCode.INTERNAL_ERROR, "No answer to a ping.")

    # ------------------------------------------------------------ the app

    async def run_asgi(self) -> None:
        """Run the app; what it leaves open is closed."""
        code = CloseCode.INTERNAL_ERROR
        try:
            await self.app(self.scope, self.receive, self.send)
            code = CloseCode.NORMAL_CLOSURE
        except ClientDisconnected:
            pass
        except Exception as error:  # noqa: BLE001  # it ends here
            from_exception(error)
        finally:
            if not self.transport.is_closing():
                self.send_500_response()
                self._send_close(code)
            self.scope["extensions"].pop(SOCKET_EXTENSION, None)

    async def send(self, message: ASGISendEvent) -> None:
        """Take the app's answer to the upgrade, or its Close."""
        if message["type"] == "websocket.close" and self.conn.state is not State.CONNECTING:
            self._send_close(message.get("code", CloseCode.NORMAL_CLOSURE), message.get("reason") or "")
        elif self.transport.is_closing():
            raise ClientDisconnected
        else:
            await super().send(message)

    # ------------------------------------------------------------ inside

    @property
    def _over(self) -> bool:
        return self.conn.state is not State.OPEN or self.transport.is_closing()

    def _tell_left(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left()

    def _pace_reading(self) -> None:
        """Read, unless too much waits for the app, or a rest of what has arrived for its turn."""
        is_full = self.queue.weight > self._settings.max_message_bytes and not self.close_sent
        has_rest = self.conn.has_rest
        if has_rest and not is_full and self._next_slice is None:
            self._next_slice = self.loop.call_soon(self._read_rest)
        pauses = is_full or has_rest
        if pauses != self.read_paused:
            self.read_paused = pauses
            if pauses:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _read_rest(self) -> None:
        self._next_slice = None
        # Of a connection that is closed already nothing more is wanted.
        if not self.transport.is_closing():
            self.data_received(b"")

    def _refuse_upgrade(self) -> None:
        answer = b"".join(self.conn.data_to_send())
        if not answer:
            answer = self.conn.reject(HTTPStatus.BAD_REQUEST, f"{self.conn.handshake_exc}.").serialize()
        self.transport.write(answer)
        self.transport.close()

    def _send_close(self, code: int, reason: str = "") -> None:
        if self.conn.state is State.CONNECTING:
            self.transport.close()
        elif not self._over:
            self.conn.send_close(code, reason)
            self._end()

    def _fail(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def _end(self, last_words: bytes = b"") -> None:
        """Write Close, the last frame, and give the client its time."""
        self.close_sent = True
        self.stop_keepalive()
        self.transport.write(last_words + b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": self.close_code or 1006})
        self.writable.set()
        self._pace_reading()
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        self._stall.begin()
        self.close_timer = self.loop.call_later(self.close_timeout, self._give_up)

    def _give_up(self) -> None:
        if self.transport.get_write_buffer_size():
            self._wait_for_end()
        else:
            self.transport.close()
