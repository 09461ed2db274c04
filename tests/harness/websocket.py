"""A caller on a WebSocket: blocking, on a raw socket, so that it can misbehave.

It reads only when it is asked to. Every frame that arrived stays in `frames` with its time, whatever became of it.
"""

import base64
import hashlib
import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from harness.client import RESPONSES, Answer
from harness.frames import CLOSE, CONTINUATION, PING, PONG, TERMINALS, TEXT, Event, Frame, decode_frame, encode_frame

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_RESET = struct.pack("ii", 1, 0)


class HandshakeRefused(Exception):
    """The upgrade was answered like any other request."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}: {answer.body[:300]!r}")
        self.answer = answer


class ConnectionEnded(Exception):
    """The peer closed the TCP connection."""


class WebSocket:
    """One connection; use it as a context manager.

    Args:
        port: the gateway's port on loopback.
        path: path and query of the upgrade.
        headers: further headers of the upgrade.
        timeout: seconds that any single wait may take unless it names its own.
        receive_buffer: size of the kernel's buffer, small for a client that is to stop reading.

    Attributes:
        frames: every frame read so far.
        unread: events that were read and not yet asked for, in order.
        answers_pings: whether pings get a pong while reading.
        answers_close: whether a Close gets a Close while reading.
        handshake: the headers of the answer to the upgrade.

    Raises:
        HandshakeRefused: the answer was not 101.
    """

    def __init__(
        self,
        port: int,
        path: str = RESPONSES,
        headers: Mapping[str, str] | None = None,
        timeout: float = 20.0,
        receive_buffer: int | None = None,
    ) -> None:
        self.frames: list[Frame] = []
        self.unread: list[Event] = []
        self.answers_pings = True
        self.answers_close = True
        self._timeout = timeout
        self._buffer = bytearray()
        self._socket = socket.socket()
        self._socket.settimeout(timeout)
        if receive_buffer is not None:  # only a size set before the handshake bounds the window
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self._socket.connect(("127.0.0.1", port))
            self.handshake = self._shake_hands(port, path, headers or {})
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    # ---------------------------------------------------------------- sending

    def create(self, model: str, given: Any = "hi", **fields: Any) -> None:
        """Send one `response.create`."""
        self.send({"type": "response.create", "model": model, "input": given, **fields})

    def send(self, value: Any) -> None:
        """Send a JSON value as one text message."""
        self.send_text(json.dumps(value).encode())

    def send_text(self, *fragments: bytes) -> None:
        """Send one text message, in several frames if several pieces are given."""
        for place, fragment in enumerate(fragments):
            self.send_frame(CONTINUATION if place else TEXT, fragment, final=place == len(fragments) - 1)

    def send_frame(self, opcode: int, payload: bytes = b"", *, final: bool = True) -> None:
        """Send one masked frame of any kind."""
        self.send_raw(encode_frame(opcode, payload, final=final, mask=os.urandom(4)))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def ping(self, payload: bytes = b"") -> None:
        self.send_frame(PING, payload)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a Close; the TCP connection stays open."""
        self.send_frame(CLOSE, code.to_bytes(2, "big") + reason.encode())

    def leave(self) -> None:
        """Close the TCP connection without a Close frame."""
        self._socket.close()

    def reset(self) -> None:
        """Reset the TCP connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    def half_close(self) -> None:
        """End the sending half of the TCP connection."""
        self._socket.shutdown(socket.SHUT_WR)

    # ---------------------------------------------------------------- receiving

    def next_frame(self, timeout: float | None = None) -> Frame:
        """Return the next frame, control frames included.

        Raises:
            TimeoutError: none came in time.
            ConnectionEnded: there is none to come.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while (parsed := decode_frame(self._buffer)) is None:
            self._buffer += self._receive(deadline)
        opcode, payload, final, size = parsed
        del self._buffer[:size]
        frame = Frame(opcode, payload, final, time.monotonic())
        self.frames.append(frame)
        if opcode == PING and self.answers_pings:
            self._answer(PONG, payload)
        elif opcode == CLOSE and self.answers_close:
            self._answer(CLOSE, payload)
        return frame

    def next_event(self, timeout: float | None = None) -> Event:
        """Return the next event; pings and pongs before it are passed over."""
        if self.unread:
            return self.unread.pop(0)
        return self._read_event(timeout)

    def events_until_terminal(self, stream_id: str | None = None, timeout: float | None = None) -> list[Event]:
        """Return one lane's events up to the end of its response, or its refusal.

        Other lanes' events stay in `unread`; all that were read do when the end does not come in time.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        seen: list[Event] = []
        done = False
        try:
            while not done:
                event = self.unread.pop(0) if self.unread else self._read_event(deadline - time.monotonic())
                seen.append(event)
                done = event.get("stream_id") == stream_id and event["type"] in TERMINALS
        finally:
            self.unread[:0] = [event for event in seen if not done or event.get("stream_id") != stream_id]
        return [event for event in seen if event.get("stream_id") == stream_id]

    def events_of(self, responses: int, timeout: float | None = None) -> list[Event]:
        """Return all lanes' events up to the end of so many responses, refusals included."""
        events: list[Event] = []
        while sum(event["type"] in TERMINALS for event in events) < responses:
            events.append(self.next_event(timeout))
        return events

    def expect_silence(self, seconds: float) -> None:
        """Fail when an event comes within so many seconds."""
        assert self.unread == []
        try:
            event = self._read_event(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"unexpected event: {str(event)[:300]}")

    def await_pong(self, payload: bytes, timeout: float | None = None) -> None:
        """Read until a ping of this payload was answered; events in between stay in `unread`."""
        while (frame := self.next_frame(timeout)).opcode != PONG or frame.payload != payload:
            assert frame.opcode != CLOSE, frame
            if frame.opcode == TEXT:
                self.unread.append(frame.event)

    def await_close(self, timeout: float | None = None) -> Frame:
        """Read to the end of the connection and return the Close frame, which must be the last one.

        Events before it go to `unread`.
        """
        try:
            while True:
                frame = self.next_frame(timeout)
                if frame.opcode == TEXT:
                    self.unread.append(frame.event)
        except ConnectionEnded:
            pass
        assert self.frames, "the connection ended without any frame"
        assert [frame.opcode for frame in self.frames].count(CLOSE) == 1, [frame.opcode for frame in self.frames[-5:]]
        assert self.frames[-1].opcode == CLOSE, self.frames[-1]
        return self.frames[-1]

    def _read_event(self, timeout: float | None) -> Event:
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while (frame := self.next_frame(deadline - time.monotonic())).opcode != TEXT:
            assert frame.opcode in (PING, PONG), f"closed with {frame.close_code} {frame.reason!r}"
        return frame.event

    def _receive(self, deadline: float) -> bytes:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            piece = self._socket.recv(1 << 16)
        except ConnectionError as error:
            raise ConnectionEnded(str(error)) from None
        finally:
            self._socket.settimeout(self._timeout)
        if not piece:
            raise ConnectionEnded
        return piece

    def _answer(self, opcode: int, payload: bytes) -> None:
        with suppress(ConnectionError):  # the peer went on without it
            self.send_frame(opcode, payload)

    def _shake_hands(self, port: int, path: str, headers: Mapping[str, str]) -> dict[str, str]:
        key = base64.b64encode(os.urandom(16))
        sent = {"Host": f"127.0.0.1:{port}", "Connection": "Upgrade", "Upgrade": "websocket"}
        sent |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key.decode(), **headers}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        self.send_raw("\r\n".join(lines).encode())
        deadline = time.monotonic() + self._timeout
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += self._receive(deadline)
        end = self._buffer.index(b"\r\n\r\n")
        status, received = _read_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        if status != 101:
            while len(self._buffer) < int(received.get("content-length", "0")):
                self._buffer += self._receive(deadline)
            raise HandshakeRefused(Answer(status, received, bytes(self._buffer)))
        accepted = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
        assert received.get("sec-websocket-accept") == accepted, received
        return received


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in fields}
