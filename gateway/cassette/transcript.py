"""A recording as what was said: messages out of frames, responses out of messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.cassette.dialogue import Dialogue, Event, Run
from gateway.cassette.format import CONTINUATION, TEXT, Close, Direction, Frame, Http, Open, Record
from gateway.cassette.stage import read_answer
from gateway.cassette.talk import ScenarioFailed


class Message(Struct, frozen=True):
    """One message of a session.

    Attributes:
        direction: `c2s` or `s2c`.
        text: of all its frames.
        event: the JSON object that it is; None for another text.
        t: of its last frame.
        note: why the driver sent it.
    """

    direction: Direction
    text: str
    event: Event | None
    t: int
    note: str | None = None


class Session(Struct):
    """One connection, or one HTTP exchange.

    Attributes:
        number: in the recording.
        kind: which of both.
        opened: the handshake of a WebSocket.
        close: its end.
        messages: of a WebSocket, in order.
        pieces: of an HTTP exchange, in order.
        dialogue: what the messages mean.
        responses: the responses of an HTTP exchange.
    """

    number: int
    kind: Literal["websocket", "http"]
    opened: Open | None = None
    close: Close | None = None
    messages: list[Message] = msgspec.field(default_factory=list)
    pieces: list[Http] = msgspec.field(default_factory=list)
    dialogue: Dialogue = msgspec.field(default_factory=Dialogue)

    @property
    def request(self) -> tuple[Http, bytes]:
        """The head and the body of an exchange's request."""
        sent = [piece for piece in self.pieces if piece.dir == "c2s"]
        return sent[0], b"".join(piece.payload for piece in sent)

    @property
    def answer(self) -> tuple[Http | None, bytes]:
        """The head and the body of an exchange's answer."""
        received = [piece for piece in self.pieces if piece.dir == "s2c"]
        return (received[0] if received else None), b"".join(piece.payload for piece in received)


def read_sessions(records: Sequence[Record]) -> list[Session]:
    """Return the sessions of a recording in order; each knows the responses of those before."""
    sessions: dict[int, Session] = {}
    unfinished: dict[tuple[int, Direction], list[Frame]] = {}
    for record in records:
        if isinstance(record, Open):
            sessions[record.s] = Session(record.s, "websocket", opened=record)
        elif isinstance(record, Frame):
            session = sessions.setdefault(record.s, Session(record.s, "websocket"))
            _take_frame(session, record, unfinished)
        elif isinstance(record, Http):
            sessions.setdefault(record.s, Session(record.s, "http")).pieces.append(record)
        elif isinstance(record, Close):
            sessions.setdefault(record.s, Session(record.s, "websocket")).close = record
    known: dict[str, Run] = {}
    for _, session in sorted(sessions.items()):
        _interpret(session, known)
        known.update(session.dialogue.known)
    return [session for _, session in sorted(sessions.items())]


def parse_event(text: str | bytes) -> Event | None:
    """Return the JSON object that a text is; None for any other."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _take_frame(session: Session, frame: Frame, unfinished: dict[tuple[int, Direction], list[Frame]]) -> None:
    if frame.op not in {TEXT, CONTINUATION}:
        return
    pieces = unfinished.setdefault((frame.s, frame.dir), [])
    if frame.op == TEXT:
        pieces.clear()
    pieces.append(frame)
    if not frame.fin:
        return
    if pieces[0].op == TEXT:
        text = b"".join(piece.payload for piece in pieces).decode(errors="replace")
        session.messages.append(Message(frame.dir, text, parse_event(text), frame.t, pieces[0].note))
    pieces.clear()


def _interpret(session: Session, known: Mapping[str, Run]) -> None:
    session.dialogue = Dialogue(known)
    if session.kind == "http":
        _interpret_exchange(session, known)
        return
    for message in session.messages:
        if message.event is not None:
            (session.dialogue.send if message.direction == "c2s" else session.dialogue.receive)(message.event)


def _interpret_exchange(session: Session, known: Mapping[str, Run]) -> None:
    head, content = session.answer
    body: Any = parse_event(session.request[1]) or {}
    if head is None or head.status is None:
        return
    headers = {name.lower(): value for name, value in (head.headers or {}).items()}
    try:
        run = read_answer(body, head.status, headers.get("content-type", ""), content, dict(known))
    except ScenarioFailed:
        return
    session.dialogue.runs.append(run)
    if run.id is not None:
        session.dialogue.known[run.id] = run
