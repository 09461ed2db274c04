"""The frames and the handshake of a WebSocket: the library's state machine, with the gateway's words and bounds."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from struct import Struct

from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode, apply_mask  # type: ignore[attr-defined]  # in C where there is a compiler
from websockets.http11 import Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import LoggerLike

from gateway.protocol.errors import GatewayError, InvalidRequest, RequestTooLarge
from gateway.protocol.frames import build_error_frame
from gateway.transport.wire_errors import http_error

SLICE_FRAMES = 256
"""Frames that are read in one turn of the loop, about a millisecond's worth; one read may hold 170 times as many."""

# FIN and the opcode of a text frame.
_TEXT = 0x80 | Opcode.TEXT
# The second byte of a client's frame, by the size of its payload: the size itself, or that two bytes follow with it.
_MASKED_SHORT = range(0x80, 0x80 + 126)
_MASKED_MEDIUM = 0x80 + 126
_pack_medium_head = Struct(">BBH").pack
_pack_long_head = Struct(">BBQ").pack


def _build_head(size: int) -> bytes:
    if size < 126:
        return bytes((_TEXT, size))
    return _pack_medium_head(_TEXT, 126, size) if size < 65_536 else _pack_long_head(_TEXT, 127, size)


_LONGEST_KNOWN = 2048
# Of frames as most events take them.
_HEADS = tuple(map(_build_head, range(_LONGEST_KNOWN)))


class InvalidUpgrade(InvalidRequest):
    """The request asks for a WebSocket, but not in the way it is done."""

    code = "invalid_upgrade"


def frame_texts(payloads: Sequence[bytes]) -> bytes:
    """Return each payload as one text frame of a server, all in one piece."""
    parts: list[bytes] = []
    add = parts.append
    for payload in payloads:
        size = len(payload)
        add(_HEADS[size] if size < _LONGEST_KNOWN else _build_head(size))
        add(payload)
    return b"".join(parts)


class Conversation(ServerProtocol):
    """Speaks no extension, reads in slices, refuses in the gateway's words and answers only the last of several pings.

    Args:
        max_size: largest message of the client, in bytes.
        logger: where the library logs.
        default_headers: headers of every answer.
        note_refusal: told of each refusal that is the client's fault; returns the answer's id.

    Attributes:
        pong: the answer that is due, if any.
    """

    def __init__(
        self,
        max_size: int,
        logger: LoggerLike,
        default_headers: list[tuple[bytes, bytes]],
        note_refusal: Callable[[GatewayError], str] | None,
    ) -> None:
        super().__init__(max_size=max_size, logger=logger)
        self._default_headers = default_headers
        self._note_refusal = note_refusal
        self.pong: Frame | None = None
        self._frames = 0
        self._rest = bytearray()
        # Whether the parser waits for the first byte of a frame.
        self._between = False

    @property
    def has_rest(self) -> bool:
        """Whether frames that have arrived wait for the next slice."""
        return bool(self._rest)

    def read_whole(self, data: bytes) -> bytes | None:
        """Return what most reads bring, one whole text message in one frame; None, and nothing done, for all else.

        The parser, which can wait for any byte, takes several times as long for it.
        """
        if not self._between or len(data) < 6 or data[0] != _TEXT:
            return None
        if self.state is not State.OPEN or self.current_size is not None:
            return None
        if data[1] == _MASKED_MEDIUM:
            size, start = int.from_bytes(data[2:4]), 8
        elif data[1] in _MASKED_SHORT:
            size, start = data[1] - _MASKED_SHORT[0], 6
        else:
            return None
        if len(data) != start + size or size > (self.max_message_size or size):
            return None
        return apply_mask(data[start:], data[start - 4 : start])

    def read_slice(self, data: bytes) -> None:
        """Read what waits and then these bytes, but not more than a slice of it."""
        self._between = False
        self._frames = 0
        if self._rest:
            self.reader.buffer, self._rest = self._rest, bytearray()
        self.receive_data(data)

    def recv_frame(self, frame: Frame) -> None:
        """Take a frame; behind the last one of a slice the parser finds nothing for now."""
        super().recv_frame(frame)
        self._frames += 1
        self._between = not self.reader.buffer
        if self._frames == SLICE_FRAMES:
            self._rest, self.reader.buffer = self.reader.buffer, bytearray()

    def let_go(self) -> None:
        """Forget what has arrived, and what was wrong with it: both lead back here, until the collector comes."""
        self.parser.close()
        self.parser_exc = None
        self.reader.discard()
        self._rest.clear()

    def refuse_message(self) -> bytes:
        """Return what a client is told whose message is too large."""
        error = f"The message is larger than {self.max_message_size} bytes ([websocket] max_message_bytes)."
        return build_error_frame(RequestTooLarge(error, bound="websocket.max_message_bytes"))

    def reject(self, status: HTTPStatus | int, text: str) -> Response:
        """Return the answer to an upgrade that cannot be; what the app leaves unanswered is not for these words."""
        if self.handshake_exc is None:
            return super().reject(status, text)
        error = InvalidUpgrade(text.partition("\n")[0])
        error.status = int(status)
        answer = http_error(error)
        headers = [
            *self._default_headers,
            *answer.headers,
            (b"connection", b"close"),
            (b"sec-websocket-version", b"13"),
        ]
        if self._note_refusal is not None:
            headers.append((b"x-request-id", self._note_refusal(error).encode()))
        fields = Headers((name.decode(), value.decode()) for name, value in headers)
        return Response(error.status, HTTPStatus(status).phrase, fields, answer.body)

    def send_frame(self, frame: Frame) -> None:
        """Queue a frame; a pong is kept apart and replaces the one before."""
        if frame.opcode is Opcode.PONG:
            self.pong = frame
        else:
            super().send_frame(frame)
