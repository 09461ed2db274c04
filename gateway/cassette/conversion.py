"""Recordings from and to `responses-websocket-v1`, a YAML format for WebSockets alone, and back without a loss.

What one format has no place for rides along in the other: keys of the YAML in `extra`, records in `x_duplex`.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
import yaml

from gateway.cassette.format import (
    CLOSE,
    FORMAT,
    Cassette,
    Close,
    Direction,
    End,
    FormatError,
    Frame,
    Head,
    Open,
    Record,
    encode_record,
)

YAML_FORMAT: Final = "responses-websocket-v1"
_OURS: Final = "x_duplex"
_THEIRS: Final = "yaml"
_LINE_WIDTH: Final = 120
_DIRECTIONS: Final[Mapping[str, Direction]] = {"client": "c2s", "server": "s2c"}
_SIDES: Final[Mapping[Direction, str]] = {"c2s": "client", "s2c": "server"}

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_R = TypeVar("_R", Head, Open, Frame, Close)


def read_yaml(text: bytes) -> Cassette:
    """Read a recording in YAML.

    Raises:
        FormatError: it is none.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - both loaders are the safe ones
    except (yaml.YAMLError, RecursionError) as error:
        raise FormatError(f"is no YAML: {error}") from None
    if not isinstance(document, dict) or document.get("format") != YAML_FORMAT:
        raise FormatError(f"has not the format {YAML_FORMAT}")
    _refuse_aliases(document, set())
    try:
        return _from_document(document)
    except (msgspec.ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"is no recording of the format {YAML_FORMAT}: {type(error).__name__}: {error}") from None


def write_yaml(cassette: Cassette) -> bytes:
    """Return a recording as YAML."""
    document = _to_document(cassette)
    written: str = yaml.dump(document, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_LINE_WIDTH)
    return written.encode()


def write_lines(cassette: Cassette) -> bytes:
    """Return a recording as JSON Lines."""
    return b"".join(encode_record(record) for record in cassette.records)


def _from_document(document: dict[str, Any]) -> Cassette:
    kept = document.get(_OURS) or {}
    records: list[Record] = []
    position = 0
    for number, session in enumerate(document.get("sessions") or ()):
        records.extend(_read_session(session, number, position))
        position = max((cast("Frame", record).t for record in records), default=-1) + 1
    records.extend(msgspec.convert(record, Record) for record in kept.get("records") or ())
    # Times never stand still in one recording, and sessions of the other format follow each other.
    records.sort(key=lambda record: cast("Frame", record).t)
    records.insert(0, _restore(kept.get("head"), _derive_head(document)))
    if "end" not in kept:
        records.append(_derive_end(records))
    elif kept["end"] is not None:
        records.append(msgspec.convert(kept["end"], End))
    has_end = isinstance(records[-1], End)
    return Cassette(records, has_end, records[-1] == _derive_end(records[:-1], records[-1]) if has_end else None)


def _read_session(session: dict[str, Any], number: int, position: int) -> Iterator[Open | Frame | Close]:
    opened = _restore((session.get("handshake") or {}).get(_OURS), _derive_open(session, number, position))
    yield opened
    last: Frame | None = None
    first_close: Frame | None = None
    for frame in session.get("frames") or ():
        last = _restore(frame.get(_OURS), _derive_frame(frame, opened))
        if last.op == CLOSE and first_close is None:
            first_close = last
        yield last
    outcome = session.get("close_outcome")
    if outcome is not None:
        yield _restore(outcome.get(_OURS), _derive_close(outcome, opened, last, first_close))


def _derive_head(document: dict[str, Any]) -> Head:
    return Head(format=FORMAT, extra=_keep(document, "format", "sessions"))


def _derive_open(session: dict[str, Any], number: int, position: int) -> Open:
    handshake = session.get("handshake") or {}
    request, response = handshake.get("request") or {}, handshake.get("response") or {}
    rest = {
        "session": _pick(session, "handshake", "frames", "close_outcome")
        | ({"frames": None} if session.get("frames") is None else {}),
        "handshake": _pick(handshake, "request", "response")
        | {name: handshake[name] for name in ("request", "response") if name in handshake and not handshake[name]},
        "request": _pick(request, "url", "headers"),
        "response": _pick(response, "status_code", "headers"),
    }
    rest = {name: fields for name, fields in rest.items() if fields}
    return Open(
        s=number,
        t=position,
        url=request.get("url"),
        request_headers=request.get("headers"),
        status=response.get("status_code"),
        response_headers=response.get("headers"),
        extra={_THEIRS: rest},
    )


def _derive_frame(frame: dict[str, Any], opened: Open) -> Frame:
    extra = _keep(frame, "ordinal", "elapsed_ms", "direction", "opcode", "fin", "text", "payload_base64") or {}
    taken = round(frame["elapsed_ms"] * 1_000_000)
    if taken / 1_000_000 != frame["elapsed_ms"]:
        extra = {_THEIRS: {**extra.get(_THEIRS, {}), "elapsed_ms": frame["elapsed_ms"]}}
    return Frame(
        s=opened.s,
        n=frame["ordinal"],
        t=opened.t + taken,
        dir=_DIRECTIONS[frame["direction"]],
        op=frame["opcode"],
        fin=frame["fin"],
        text=frame.get("text"),
        b64=frame.get("payload_base64"),
        extra=extra or None,
    )


def _derive_close(outcome: dict[str, Any], opened: Open, last: Frame | None, first: Frame | None) -> Close:
    payload = first.payload if first is not None else b""
    return Close(
        s=opened.s,
        t=(last.t if last is not None else opened.t) + 1,
        by="transport" if first is None else "client" if first.dir == "c2s" else "server",
        code=int.from_bytes(payload[:2]) if len(payload) > 1 else None,
        reason=payload[2:].decode(errors="replace") or None,
        clean=outcome.get("kind") == "completed" and outcome.get("peer_close_received") is True,
        extra={_THEIRS: outcome} if set(outcome) - {_OURS} else None,
    )


def _derive_end(records: Sequence[Record], end: Record | None = None) -> End:
    lines = [encode_record(record) for record in records]
    counts = {"records": len(lines)} if not isinstance(end, End) else end.counts
    return End(counts=counts, sha256=hashlib.sha256(b"".join(lines)).hexdigest())


def _to_document(cassette: Cassette) -> dict[str, Any]:
    sessions: dict[int, list[Open | Frame | Close]] = {}
    others: list[Record] = []
    end: End | None = None
    for record in cassette.records[1:]:
        if isinstance(record, Open) or (isinstance(record, Frame | Close) and record.s in sessions):
            sessions.setdefault(record.s, []).append(record)
        elif isinstance(record, End):
            end = record
        else:
            others.append(record)
    document: dict[str, Any] = {"format": YAML_FORMAT, "sessions": [], **_theirs(cassette.head.extra)}
    position = 0
    for number, records in enumerate(sessions.values()):
        document["sessions"].append(_write_session(records, number, position))
        position = max(position - 1, *(record.t for record in records)) + 1
    kept: dict[str, Any] = {}
    if _derive_head(document) != cassette.head:
        kept["head"] = msgspec.to_builtins(cassette.head)
    if others:
        kept["records"] = msgspec.to_builtins(others)
    if end is None or end != _derive_end(cassette.records[:-1]):
        kept["end"] = msgspec.to_builtins(end)
    if kept:
        document[_OURS] = kept
    return document


def _write_session(records: Sequence[Open | Frame | Close], number: int, position: int) -> dict[str, Any]:
    opened = records[0]
    assert isinstance(opened, Open)
    session: dict[str, Any] = {"handshake": _write_handshake(opened)}
    frames = [record for record in records if isinstance(record, Frame)]
    session["frames"] = [_write_frame(frame, opened) for frame in frames]
    rest = _theirs(opened.extra)
    session.update(rest.get("session", {}))
    _mark(session["handshake"], opened, _derive_open(session, number, position))
    close = next((record for record in records if isinstance(record, Close)), None)
    if close is not None:
        session["close_outcome"] = _write_close(close, opened, frames)
    return session


def _write_handshake(opened: Open) -> dict[str, Any]:
    rest = _theirs(opened.extra)
    request = {"method": "GET", "url": opened.url, "headers": opened.request_headers}
    if _THEIRS in (opened.extra or {}):
        request = {name: value for name, value in request.items() if name != "method" and value is not None}
    response = {"status_code": opened.status, "headers": opened.response_headers}
    response = {name: value for name, value in response.items() if value is not None}
    handshake: dict[str, Any] = {}
    for name, fields in (("request", request), ("response", response)):
        merged = {**fields, **rest.get(name, {})}
        if merged:
            handshake[name] = merged
    return {**handshake, **rest.get("handshake", {})}


def _write_frame(frame: Frame, opened: Open) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "ordinal": frame.n,
        "elapsed_ms": (frame.t - opened.t) / 1_000_000,
        "direction": _SIDES[frame.dir],
        "opcode": frame.op,
        "fin": frame.fin,
    }
    if frame.text is not None:
        shown["text"] = frame.text
    if frame.b64 is not None:
        shown["payload_base64"] = frame.b64
    shown.update(_theirs(frame.extra))
    return _mark(shown, frame, _derive_frame(shown, opened))


def _write_close(close: Close, opened: Open, frames: Sequence[Frame]) -> dict[str, Any]:
    has_answer = any(frame.op == CLOSE and frame.dir == "s2c" for frame in frames)
    shown = _theirs(close.extra) or {
        "kind": "completed" if close.clean else "driver_or_transport_failure",
        "peer_close_received": has_answer,
    }
    first = next((frame for frame in frames if frame.op == CLOSE), None)
    shown = dict(shown)
    return _mark(shown, close, _derive_close(shown, opened, frames[-1] if frames else None, first))


def _mark(shown: dict[str, Any], record: Open | Frame | Close, derived: Open | Frame | Close) -> dict[str, Any]:
    """Let a record ride along whole when what stands there would not be read as it."""
    if derived != record:
        shown[_OURS] = msgspec.to_builtins(record)
    return shown


def _restore(kept: Any, derived: _R) -> _R:
    return derived if kept is None else msgspec.convert(kept, type(derived))


def _theirs(extra: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = (extra or {}).get(_THEIRS) or {}
    return found


def _pick(fields: dict[str, Any], *known: str) -> dict[str, Any]:
    """Return the fields that are not known."""
    return {name: value for name, value in fields.items() if name not in known and name != _OURS}


def _keep(fields: dict[str, Any], *known: str) -> dict[str, Any] | None:
    rest = _pick(fields, *known)
    return {_THEIRS: rest} if rest else None


def _refuse_aliases(value: Any, seen: set[int]) -> None:
    """Refuse what stands at two places: it could grow without a bound once it is written out."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        return
    if id(value) in seen:
        raise FormatError("has aliases, which recordings do not need")
    seen.add(id(value))
    for item in inner:
        _refuse_aliases(item, seen)
