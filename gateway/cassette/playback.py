"""Serves a recording in place of the server that it was made with.

Connections get the recorded sessions in order, requests the recorded exchanges. Of a recording of WebSockets alone,
requests get its responses in order, as streams of events or as objects.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from gateway.cassette.dialogue import OUTCOMES, STEERING, Event, Run
from gateway.cassette.format import Cassette
from gateway.cassette.transcript import Message, Session, parse_event, read_sessions
from gateway.embedded.serving import serve_application
from gateway.protocol.sse import frame

_ROUTE: Final = "/responses"
_NO_MORE: Final = "The recording holds nothing further."
_MAX_BODY_BYTES: Final = 16 * 1024 * 1024
# What the serving itself decides.
_HOP: Final = frozenset(
    {"connection", "content-encoding", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
)

Receive = Callable[[], Any]
Send = Callable[[Mapping[str, Any]], Any]


class Playback:
    """An ASGI application that repeats a recording once.

    Args:
        cassette: the recording.
        tell: told of each thing worth showing, one line each.

    Attributes:
        problems: what clients sent that the recording does not have there.
    """

    def __init__(self, cassette: Cassette, tell: Callable[[str], None] = lambda _line: None) -> None:
        sessions = read_sessions(cassette.records)
        self._model = cassette.head.model
        self._sockets = iter([session for session in sessions if session.kind == "websocket" and session.messages])
        self._exchanges = iter([session for session in sessions if session.kind == "http"])
        self._has_exchanges = any(session.kind == "http" for session in sessions)
        self._runs = iter([run for session in sessions for run in session.dialogue.runs if run.is_over])
        self._tell = tell
        self.problems: list[str] = []

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a connection or a request."""
        if scope["type"] == "websocket":
            await self._serve_socket(receive, send)
        elif scope["type"] == "http":
            await self._serve_request(scope, receive, send)

    async def _serve_socket(self, receive: Receive, send: Send) -> None:
        session = next(self._sockets, None)
        await receive()
        if session is None:
            self._note(_NO_MORE)
            await send({"type": "websocket.close", "code": 1013, "reason": _NO_MORE})
            return
        self._tell(f"session {session.number}")
        await send({"type": "websocket.accept"})
        for message in session.messages:
            if message.direction == "s2c":
                await send({"type": "websocket.send", "text": message.text})
            elif not await self._expect(message, receive):
                return
        close = session.close
        if close is not None and close.by == "server":
            await send({"type": "websocket.close", "code": close.code or 1000, "reason": close.reason or ""})
            return
        while (await receive())["type"] != "websocket.disconnect":
            self._note("a client sent more than was recorded")

    async def _expect(self, message: Message, receive: Receive) -> bool:
        """Wait for what the recorded client sent here; return whether the client is still there."""
        event = await receive()
        if event["type"] == "websocket.disconnect":
            self._note("a client left before the end of a session")
            return False
        wanted = (message.event or {}).get("type")
        came = (parse_event(event.get("text") or event.get("bytes") or "") or {}).get("type")
        if came != wanted:
            self._note(f"a client sent {came} where {wanted} was recorded")
        return True

    async def _serve_request(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "GET" and path.endswith("/models"):
            models = [{"id": self._model or "recorded", "object": "model", "owned_by": "recording"}]
            await _answer(send, 200, {"object": "list", "data": models})
        elif method == "GET" and path in {"/health", "/ping"}:
            await _answer(send, 200, {})
        elif method != "POST" or not path.endswith(_ROUTE):
            await _answer(send, 404, _describe_error(f"There is no {method} {path} in a recording."))
        else:
            body = parse_event(await _read_body(receive)) or {}
            await self._repeat(body, send)

    async def _repeat(self, body: Event, send: Send) -> None:
        session = next(self._exchanges, None)
        if session is not None:
            self._tell(f"exchange {session.number}")
            await _repeat_exchange(session, send)
            return
        run = None if self._has_exchanges else next(self._runs, None)
        if run is None:
            self._note(_NO_MORE)
            await _answer(send, 503, _describe_error(_NO_MORE))
        elif run.error is not None:
            status = run.error.get("status")
            await _answer(send, status if isinstance(status, int) else 400, {"error": run.error.get("error")})
        elif body.get("stream"):
            self._tell(f"response {run.id} as events")
            await _start(send, 200, [(b"content-type", b"text/event-stream; charset=utf-8")])
            for block in _project(run):
                await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            self._tell(f"response {run.id} as an object")
            await _answer(send, 200, run.response)

    def _note(self, problem: str) -> None:
        self.problems.append(problem)
        self._tell(problem)


def _project(run: Run) -> Iterator[bytes]:
    """Yield a response's events as a stream; outcomes of injects and steers exist on WebSockets alone."""
    number = 0
    for event in run.events:
        kind = str(event["type"])
        if kind not in OUTCOMES | STEERING:
            shown = {name: value for name, value in event.items() if name != "stream_id"}
            yield frame(kind.encode(), msgspec.json.encode({**shown, "sequence_number": number}))
            number += 1


async def _repeat_exchange(session: Session, send: Send) -> None:
    head, _ = session.answer
    recorded = head.headers if head is not None and head.headers is not None else {}
    headers = [(name.lower().encode(), value.encode()) for name, value in recorded.items() if name.lower() not in _HOP]
    await _start(send, head.status if head is not None and head.status is not None else 502, headers)
    for piece in session.pieces:
        if piece.dir == "s2c" and piece.payload:
            await send({"type": "http.response.body", "body": piece.payload, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > _MAX_BODY_BYTES or not event.get("more_body"):
            return bytes(body)


async def _start(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _answer(send: Send, status: int, value: Any) -> None:
    await _start(send, status, [(b"content-type", b"application/json")])
    await send({"type": "http.response.body", "body": msgspec.json.encode(value)})


def _describe_error(message: str) -> Event:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


@asynccontextmanager
async def serve_playback(playback: Playback, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve in the running loop until the block ends, and give the URL.

    Args:
        playback: what is served.
        host: address to listen on.
        port: port to listen on, 0 for a free one.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    async with serve_application(playback, host=host, port=port, websockets=True) as url:
        yield url
