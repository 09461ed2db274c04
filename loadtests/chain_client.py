"""Callers that go through chains of turns, each on a connection of its own, and take the times."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import httptools
import msgspec
from harness.frames import CLOSE, PING, PONG, TEXT, decode_frame, encode_frame
from msgspec import Raw, Struct

PATIENCE_SECONDS = 30.0
_PATH = b"/v1/responses"
_PROMPT = b'{"role":"user","content":"Go on."}'
_DELTA = b"response.output_text.delta"
_ENDS = frozenset({b"response.completed", b"response.incomplete", b"response.failed", b"error"})


class TurnFailed(Exception):
    """A turn did not come to a good end; says what came in its place."""


class Response(Struct):
    """What of a final response is needed to go on from it."""

    id: str
    status: str
    output: Raw


class End(Struct):
    """A terminal event."""

    type: str
    response: Response | None = None


class Turn:
    """One turn as its caller saw it; times are seconds of `time.perf_counter`.

    Attributes:
        began: when the request was handed to the kernel.
        tokens: when each delta arrived.
        ended: when the terminal event arrived.
        end: the terminal event.
    """

    __slots__ = ("began", "end", "ended", "tokens")

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.tokens: list[float] = []
        self.ended = 0.0
        self.end = b""

    def take(self, kind: bytes, event: bytes, now: float) -> None:
        """Note one event of this type."""
        if kind == _DELTA:
            self.tokens.append(now)
        elif kind in _ENDS:
            self.end, self.ended = event, now

    def read_response(self) -> Response:
        """Return the response to go on from.

        Raises:
            TurnFailed: it was not completed, or said nothing.
        """
        response = msgspec.json.decode(self.end, type=End).response if self.end else None
        if response is None or response.status != "completed" or not self.tokens:
            raise TurnFailed(f"a turn ended with {self.end[:300]!r}")
        return response


class Caller(asyncio.Protocol):
    """One connection that carries one turn at a time.

    Args:
        fields: members of every request.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._transport: asyncio.Transport
        self._waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turn = Turn()

    @classmethod
    async def open(cls, port: int, fields: dict[str, Any]) -> Self:
        """Connect to a port of this machine."""
        _, caller = await asyncio.get_running_loop().create_connection(lambda: cls(fields), "127.0.0.1", port)
        await caller.greet()
        return caller

    async def greet(self) -> None:
        """Do what has to be done before the first turn."""

    async def ask(self, given: bytes, parent: str | None) -> Turn:
        """Go through one turn.

        Args:
            given: the input items, a JSON array.
            parent: id of the response to continue.

        Raises:
            TurnFailed: the connection ended, or the answer was no event stream.
            TimeoutError: the turn did not end in time.
        """
        body = {**self._fields, "input": Raw(given)}
        if parent is not None:
            body["previous_response_id"] = parent
        message = self.pack(msgspec.json.encode(body))
        self._turn = Turn()
        await self.exchange(message)
        return self._turn

    async def exchange(self, message: bytes) -> None:
        """Send bytes and wait until `settle` or `fail`."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._waiting

    def pack(self, body: bytes) -> bytes:
        """Return the bytes that carry a request."""
        raise NotImplementedError

    def settle(self) -> None:
        """The turn is over."""
        if not self._waiting.done():
            self._waiting.set_result(None)

    def fail(self, reason: str) -> None:
        """The turn cannot go on."""
        if not self._waiting.done():
            self._waiting.set_exception(TurnFailed(reason))

    def close(self) -> None:
        """Close the connection."""
        self._waiting.cancel()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(f"the connection ended: {error}")


class SseCaller(Caller):
    """Asks over HTTP for event streams, on one connection that is kept."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__({**fields, "stream": True})
        self._parser = httptools.HttpResponseParser(self)
        self._text = bytearray()
        self._now = 0.0

    def pack(self, body: bytes) -> bytes:
        head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        return head % (_PATH, len(body)) + body

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        self._text += piece
        *events, rest = self._text.split(b"\n\n")
        for event in events:
            kind, _, data = event.partition(b"\ndata: ")
            self._turn.take(bytes(kind.removeprefix(b"event: ")), bytes(data), self._now)
        self._text = rest

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() == 200:
            self.settle()
        else:
            self.fail(f"HTTP {self._parser.get_status_code()}: {bytes(self._text[:300])!r}")
        self._text.clear()


class SocketCaller(Caller):
    """Asks on one WebSocket, on its default lane."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__({"type": "response.create", **fields})
        self._data = bytearray()
        self._upgraded = False

    async def greet(self) -> None:
        head = (
            b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: Y2hhaW5zLW9mLXR1cm5zIQ==\r\n\r\n"
        )
        await self.exchange(head % _PATH)

    def pack(self, body: bytes) -> bytes:
        return encode_frame(TEXT, body, mask=os.urandom(4))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._data += data
        if not self._upgraded and not self._finish_upgrade():
            return
        while (frame := decode_frame(self._data)) is not None:
            opcode, payload, _, size = frame
            del self._data[:size]
            if opcode == TEXT:
                # Every event of the gateway begins with its type: {"type":"...
                self._turn.take(payload[9 : payload.index(b'"', 9)], payload, now)
            elif opcode == PING:
                self._transport.write(encode_frame(PONG, payload, mask=os.urandom(4)))
            elif opcode == CLOSE:
                self.fail(f"the gateway closed: {payload!r}")
        if self._turn.end:
            self.settle()

    def _finish_upgrade(self) -> bool:
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return False
        if head.startswith(b"HTTP/1.1 101 "):
            self._upgraded = True
            self._data = rest
            self.settle()
        else:
            self.fail(f"the upgrade was refused: {bytes(self._data[:300])!r}")
        return self._upgraded


CALLERS: dict[str, type[Caller]] = {"direct": SseCaller, "sse": SseCaller, "websocket": SocketCaller}


async def run_chain(caller: Caller, turns: int, *, linked: bool, report: Callable[[int, Turn], None]) -> None:
    """Go through one chain from its first turn to its last.

    Args:
        caller: who asks.
        turns: how many.
        linked: whether a turn names the response it continues; otherwise it sends again all that came before.
        report: is given each turn that succeeded, with its number from 1.

    Raises:
        TurnFailed: a turn failed, and the chain with it.
        TimeoutError: a turn did not end in time.
    """
    history: list[bytes] = []
    parent: str | None = None
    for number in range(1, turns + 1):
        history.append(_PROMPT)
        turn = await caller.ask(_join(history[-1:] if linked else history), parent if linked else None)
        response = turn.read_response()
        history.append(bytes(response.output).strip()[1:-1])
        parent = response.id
        report(number, turn)


def _join(items: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(items)


async def run_callers(
    callers: Sequence[Caller], turns: int, seconds: float, *, linked: bool, report: Callable[[int, Turn], None]
) -> list[str]:
    """Have all callers go through chains, as many whole ones as come closest to so many seconds, and at least one each.

    Returns:
        What went wrong; a caller stops at its first fault.
    """
    faults: list[str] = []
    end = time.perf_counter() + seconds

    async def go_on(caller: Caller) -> None:
        half = 0.0
        while time.perf_counter() + half < end:
            began = time.perf_counter()
            try:
                await run_chain(caller, turns, linked=linked, report=report)
            except (TurnFailed, TimeoutError) as fault:
                faults.append(f"{type(fault).__name__}: {fault}")
                return
            half = (time.perf_counter() - began) / 2

    await asyncio.gather(*[go_on(caller) for caller in callers])
    return faults
