"""Bodies of chosen requests in files, for an operator who has to see what a caller sends and gets."""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config.schema import TelemetryConfig
from gateway.ports import Identity
from gateway.telemetry.names import LOGGER_SERVER
from gateway.transport.connection import CONNECTION_EXTENSION, ClientConnection
from gateway.transport.edge import STATE_IDENTITY, STATE_REQUEST_ID
from gateway.transport.socket import SOCKET_EXTENSION, ClientSocket

_STATE_CAPTURED: Final = "captured"
_PATTERN: Final = "*.json"
_logger = logging.getLogger(LOGGER_SERVER)

_HIDDEN_MEMBERS: Final = (
    r"(?:proxy-)?authorization|cookie|(?:[\w-]*[_-])?api[_-]?key|(?:access|refresh|id|auth)[_-]?token"
    r"|(?:client[_-]?)?secret|password"
)
_REDACTIONS: Final = (
    # What MCP servers are given: any header, and whatever stands in a URL behind the host.
    (re.compile(r'(?i)("headers"\s*:\s*)\{(?:"(?:[^"\\]|\\.)*+"?|[^{}"])*+\}?'), r'\1"[redacted]"'),
    (re.compile(r'(?i)("server_url"\s*:\s*"(?:https?:(?:\\?/){2}[^/"?#\\@]*[/?#\\])?)[^"]*'), r"\1[redacted]"),
    # A member of JSON, and one of JSON within a string, where quotes are escaped; the end may have been cut off.
    (re.compile(rf'(?i)(\\"(?:{_HIDDEN_MEMBERS})\\"\s*:\s*\\")(?:(?!\\").)*'), r"\1[redacted]"),
    (re.compile(rf'(?i)("(?:{_HIDDEN_MEMBERS})"\s*:\s*")(?:[^"\\]|\\.)*'), r"\1[redacted]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), r"\1 [redacted]"),
    (re.compile(r"\b(rgw_[a-z0-9]{12}_)[0-9a-f]+"), r"\1[redacted]"),
    (re.compile(r"\bsk-[\w-]{12,}"), "sk-[redacted]"),
    (re.compile(r"(data:[\w.+/-]*(?:;[\w=.-]+)*;base64,)[\w+/=-]{32,}"), r"\1[shortened]"),
)


class _Tape:
    """The beginning of what goes one way.

    Args:
        limit: bytes of it that are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        self._kept += data[: max(0, self._limit - len(self._kept))]

    def show(self) -> dict[str, Any]:
        """Return size and text; without secrets, as far as they can be told by their form."""
        text = self._kept.decode(errors="replace")
        for pattern, replacement in _REDACTIONS:
            text = pattern.sub(replacement, text)
        return {"bytes": self._size, "cut": self._size > self._limit, "text": text}


class _CapturedConnection:
    """A connection of HTTP that is listened to; as `ClientConnection`."""

    def __init__(self, connection: ClientConnection, request: _Tape, response: _Tape) -> None:
        self._connection = connection
        self._request = request
        self._response = response
        self.loop = connection.loop
        self.break_off = connection.break_off
        self.watch = connection.watch

    def take_body(self) -> bytes | None:
        body = self._connection.take_body()
        self._request.add(body or b"")
        return body

    def write_body(self, body: bytes, *, last: bool = False) -> bool:
        written = self._connection.write_body(body, last=last)
        if written:
            self._response.add(body)
        return written


class _CapturedSocket:
    """A WebSocket that is listened to, a line for each message; as `ClientSocket`."""

    def __init__(self, socket: ClientSocket, request: _Tape, response: _Tape) -> None:
        self._socket = socket
        self._request = request
        self._response = response
        self.close = socket.close
        self.watch = socket.watch

    @property
    def write_paused(self) -> bool:
        return self._socket.write_paused

    @property
    def close_code(self) -> int | None:
        return self._socket.close_code

    @property
    def left_first(self) -> bool:
        return self._socket.left_first

    async def read(self, take: Callable[[str], bool] | None = None) -> str | bytes | None:  # noqa: ARG002
        message = await self._socket.read()
        if message is not None:
            self._request.add((message.encode() if isinstance(message, str) else message) + b"\n")
        return message

    def write(self, payloads: Sequence[bytes]) -> bool:
        written = self._socket.write(payloads)
        if written:
            for payload in payloads:
                self._response.add(payload + b"\n")
        return written


class Capture:
    """Writes what chosen callers send and get into files of a folder, and removes the oldest.

    Args:
        telemetry: who is chosen, and the bounds.
        now: seconds since the epoch.

    Attributes:
        active: whether anything may be captured; if not, nothing else is to be asked.
    """

    def __init__(self, telemetry: TelemetryConfig, now: Callable[[], float]) -> None:
        self.active = False
        self._now = now
        self._running = 0
        self.reconfigure(telemetry)

    def reconfigure(self, telemetry: TelemetryConfig) -> None:
        """Choose anew, for requests that begin from now on."""
        self._settings = telemetry
        self._principals = frozenset(telemetry.capture_principals)
        self._header = telemetry.capture_header.encode() if telemetry.capture_header else None
        was, self.active = self.active, bool(self._principals or self._header)
        if self.active and not was:
            _logger.warning("bodies of requests are captured in %s, as [telemetry] says", telemetry.capture_dir)

    def wants(self, scope: Scope) -> bool:
        """Tell whether a request is chosen; one of nobody in particular never is."""
        state = scope["state"]
        identity: Identity | None = state.get(STATE_IDENTITY)
        if identity is None or _STATE_CAPTURED in state or self._running >= self._settings.capture_max_files:
            return False
        chosen = identity.principal in self._principals
        return chosen or (self._header is not None and any(name == self._header for name, _ in scope["headers"]))

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the app serve a request or a WebSocket to its end, and write down what went both ways."""
        limit, began = self._settings.capture_max_bytes, self._now()
        request, response = _Tape(limit), _Tape(limit)
        status = 0
        scope["state"][_STATE_CAPTURED] = True
        _listen(scope, request, response)

        async def take() -> Any:
            message: Any = await receive()
            request.add(message.get("body") or b"")
            return message

        async def give(message: Message) -> None:
            nonlocal status
            sent: Any = message
            status = sent.get("status", 101 if sent["type"] == "websocket.accept" else status)
            response.add(sent.get("body") or b"")
            await send(message)

        self._running += 1
        try:
            await app(scope, cast("Receive", take), give)
        finally:
            self._running -= 1
            told = _describe(scope, began) | {"status": status, "seconds": round(self._now() - began, 3)}
            await asyncio.shield(asyncio.to_thread(_write, self._settings, told, request, response))


def _listen(scope: Scope, request: _Tape, response: _Tape) -> None:
    extensions: dict[str, Any] = cast("dict[str, Any]", scope.get("extensions") or {})
    for name, listener in ((CONNECTION_EXTENSION, _CapturedConnection), (SOCKET_EXTENSION, _CapturedSocket)):
        if name in extensions:
            extensions[name] = listener(extensions[name], request, response)


def _describe(scope: Scope, began: float) -> dict[str, Any]:
    state = scope["state"]
    return {
        "time": datetime.fromtimestamp(began, UTC),
        "request_id": state[STATE_REQUEST_ID],
        "principal": state[STATE_IDENTITY].principal,
        "method": scope.get("method", "GET"),
        "path": scope["path"],
    }


def _write(settings: TelemetryConfig, told: dict[str, Any], request: _Tape, response: _Tape) -> None:
    folder = Path(settings.capture_dir)
    name = f"{told['time']:%Y%m%dT%H%M%S.%f}-{told['request_id']}.json"
    content = msgspec.json.format(msgspec.json.encode({**told, "request": request.show(), "response": response.show()}))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Whoever watches the folder sees whole files only.
        part = folder / f"{name}.part"
        try:
            with open(part, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(content)
            part.rename(folder / name)
        except OSError:
            # Nobody counts what is not whole, so on a full disk there would be ever more of it.
            part.unlink(missing_ok=True)
            raise
        for old in sorted(folder.glob(_PATTERN))[: -settings.capture_max_files]:
            old.unlink(missing_ok=True)
    except OSError as error:
        # A request must not fail for it, and a traceback would tell nothing.
        _logger.error("a captured request cannot be written to %s: %s", folder, error.strerror)  # noqa: TRY400
