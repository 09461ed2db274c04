"""A client's WebSocket whose every frame is recorded, control frames and fragments too."""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final, Literal

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import Event, State
from websockets.uri import parse_uri

from gateway.cassette.bounds import Bounds
from gateway.cassette.recorder import BoundReached, Recorder
from gateway.cassette.redact import fold_headers

_READ_BYTES: Final = 64 * 1024
_SHOWN_BODY_BYTES: Final = 64 * 1024


class TransportFailed(Exception):
    """The connection could not be made or broke; the text says why."""


class _Protocol(ClientProtocol):
    """The protocol without extensions, so that frames are what they seem; tells which frames it writes."""

    def __init__(self, url: str, max_size: int) -> None:
        super().__init__(parse_uri(url), max_size=max_size)
        self.sent: list[Frame] = []

    def send_frame(self, frame: Frame) -> None:
        self.sent.append(frame)
        super().send_frame(frame)


class Socket:
    """One recorded WebSocket.

    Args:
        url: `ws://` or `wss://`.
        recorder: is told of every frame.
        bounds: of time and size.
    """

    def __init__(self, url: str, recorder: Recorder, bounds: Bounds) -> None:
        self._url = url
        self._recorder = recorder
        self._bounds = bounds
        self._session = recorder.start_session()
        self._protocol = _Protocol(url, bounds.max_frame_bytes)
        self._pieces: list[bytes] = []
        self._is_text = True
        self._messages: deque[str] = deque()
        self._said_goodbye: Literal["client", "server"] | None = None
        self._is_noted = False
        # What arrived together with the handshake.
        self._early: list[Event] = []

    @property
    def session(self) -> int:
        """The number of the session in the recording."""
        return self._session

    async def connect(self, headers: Mapping[str, str], tls: ssl.SSLContext | None = None) -> None:
        """Connect and shake hands.

        Args:
            headers: of the upgrade request.
            tls: how the certificate of `wss://` is checked; None for the authorities that the system trusts.

        Raises:
            TransportFailed: no connection, or no WebSocket behind it; the handshake is recorded all the same.
        """
        uri = self._protocol.uri
        context = (tls or ssl.create_default_context()) if uri.secure else None
        request = self._protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        try:
            async with asyncio.timeout(self._bounds.connect_seconds):
                self._reader, self._writer = await asyncio.open_connection(uri.host, uri.port, ssl=context)
                self._protocol.send_request(request)
                self._writer.write(b"".join(self._protocol.data_to_send()))
                answer = await self._read_answer()
        except TimeoutError as error:
            self._recorder.note_open(self._session, self._url, fold_headers(request.headers.raw_items()), None, None)
            raise TransportFailed(f"no WebSocket within {self._bounds.connect_seconds:g} seconds") from error
        except (OSError, InvalidHandshake) as error:
            self._recorder.note_open(self._session, self._url, fold_headers(request.headers.raw_items()), None, None)
            raise TransportFailed(f"no WebSocket at {uri.host}:{uri.port}: {_explain(error)}") from error
        body = (answer.body or b"")[:_SHOWN_BODY_BYTES].decode(errors="replace")
        self._recorder.note_open(
            self._session,
            self._url,
            fold_headers(request.headers.raw_items()),
            answer.status_code,
            fold_headers(answer.headers.raw_items()),
            subprotocol=self._protocol.subprotocol,
            extra={"body": body} if body else None,
        )
        if self._protocol.handshake_exc is not None:
            self.abort(by="server" if answer.status_code != 101 else "transport")
            raise TransportFailed(f"the upgrade was answered with status {answer.status_code}")
        await self._process()

    async def _read_answer(self) -> Response:
        while True:
            events = self._protocol.events_received()
            if events:
                answer, *self._early = events
                assert isinstance(answer, Response)
                return answer
            if self._protocol.handshake_exc is not None:
                raise self._protocol.handshake_exc
            data = await self._reader.read(_READ_BYTES)
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()

    async def send_text(self, text: str, note: str | None = None) -> None:
        """Send one message in one frame.

        Raises:
            TransportFailed: the connection has ended or breaks.
        """
        try:
            self._protocol.send_text(text.encode())
        except InvalidState as error:
            raise TransportFailed("the connection has ended") from error
        await self._flush(note)

    async def receive(self) -> str | None:
        """Return the next message; None once the connection has ended.

        Raises:
            TransportFailed: the connection breaks.
            BoundReached: a message is larger than it may be.
        """
        while not self._messages:
            self._check()
            if self._protocol.close_rcvd is not None or self._protocol.state is State.CLOSED:
                return None
            await self._read()
        return self._messages.popleft()

    async def close(self, code: int = 1000) -> None:
        """Say goodbye, and record what comes until the other side has answered, or its time is over."""
        try:
            async with asyncio.timeout(self._bounds.close_seconds):
                if self._protocol.state is State.OPEN:
                    self._said_goodbye = self._said_goodbye or "client"
                    self._protocol.send_close(code)
                    await self._flush(None)
                while self._protocol.state is not State.CLOSED:
                    await self._read()
        except (TimeoutError, TransportFailed, BoundReached):
            pass
        finally:
            self.abort()

    def abort(self, by: Literal["client", "server", "transport"] | None = None) -> None:
        """End the connection at once, without a goodbye if there was none."""
        if hasattr(self, "_writer"):
            self._writer.transport.abort()
        if not self._is_noted:
            self._is_noted = True
            protocol = self._protocol
            first = protocol.close_rcvd or protocol.close_sent
            if self._said_goodbye == "client":
                first = protocol.close_sent
            ended = by or self._said_goodbye or ("client" if protocol.state is State.OPEN else "transport")
            self._recorder.note_close(
                self._session,
                ended,
                first.code if first else None,
                (first.reason or None) if first else None,
                clean=protocol.close_rcvd is not None and protocol.close_sent is not None,
            )

    async def _read(self) -> None:
        try:
            data = await self._reader.read(_READ_BYTES)
        except OSError as error:
            raise TransportFailed(_explain(error)) from error
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        await self._process()

    async def _process(self) -> None:
        """Take in what was read and write what it makes necessary."""
        self._take_events()
        await self._flush(None)

    def _check(self) -> None:
        problem = self._protocol.parser_exc
        if problem is not None and not isinstance(problem, EOFError):
            if self._protocol.close_sent is not None and self._protocol.close_sent.code == 1009:
                bound = self._bounds.max_frame_bytes
                raise BoundReached(f"a message is larger than {bound} bytes; raise --max-frame-bytes")
            raise TransportFailed(f"the other side broke the protocol: {problem}")

    def _take_events(self) -> None:
        events = [*self._early, *self._protocol.events_received()]
        self._early.clear()
        for event in events:
            assert isinstance(event, Frame)
            payload = bytes(event.data)
            self._recorder.note_frame(self._session, "s2c", int(event.opcode), payload, fin=event.fin)
            if event.opcode is Opcode.CLOSE:
                self._said_goodbye = self._said_goodbye or "server"
            elif event.opcode in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
                self._take_piece(event, payload)

    def _take_piece(self, frame: Frame, payload: bytes) -> None:
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        self._pieces.append(payload)
        if frame.fin:
            if self._is_text:
                self._messages.append(b"".join(self._pieces).decode(errors="replace"))
            self._pieces.clear()

    async def _flush(self, note: str | None) -> None:
        """Write what the protocol has to say, then record it."""
        data = b"".join(piece for piece in self._protocol.data_to_send() if piece)
        sent, self._protocol.sent = self._protocol.sent, []
        try:
            if data:
                self._writer.write(data)
            for frame in sent:
                payload = bytes(frame.data)
                self._recorder.note_frame(self._session, "c2s", int(frame.opcode), payload, fin=frame.fin, note=note)
            if data:
                await self._writer.drain()
        except OSError as error:
            raise TransportFailed(_explain(error)) from error


def _explain(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return f"what answers there does not speak WebSocket ({type(error).__name__}: {error})"
