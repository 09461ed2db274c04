"""Writes a recording while it happens: each record is appended and flushed before the next thing is done."""

import base64
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from gateway.cassette.bounds import Bounds
from gateway.cassette.format import (
    BINARY,
    FORMAT,
    Barrier,
    Close,
    Direction,
    End,
    Failure,
    Frame,
    Head,
    Http,
    Open,
    Record,
    encode_record,
)
from gateway.cassette.redact import VERSION, Redactor


class RecordingFailed(Exception):
    """The recording cannot go on; the text says why. What was written before stays readable."""


class BoundReached(RecordingFailed):
    """The recording met one of its bounds."""


class Sink(Protocol):
    """Where the lines of a recording go."""

    def write(self, line: bytes) -> None:
        """Take one whole line.

        Raises:
            RecordingFailed: it could not be kept; nothing of it is.
        """

    def close(self) -> None:
        """Take no more."""


class FileSink:
    """A new file.

    Args:
        path: the file.
        replace: whether a file that is there may be replaced.

    Raises:
        RecordingFailed: it exists or cannot be made.
    """

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        self._path = path
        self._length = 0
        how = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, how, 0o666)
        except FileExistsError:
            raise RecordingFailed(f"{path} exists; give another name, or --force to replace it") from None
        except OSError as error:
            raise RecordingFailed(f"{path}: {error.strerror}") from error

    def write(self, line: bytes) -> None:
        """Append the line with as many writes as it takes; a cut line is taken back."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._take_back()
            raise RecordingFailed(f"{self._path}: {error.strerror}; the recording ends here") from error
        self._length += len(line)

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._file, self._length)
        except OSError:
            return  # readers leave a line without its end out

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class MemorySink:
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        """Keep the line."""
        self.lines.append(line)

    def close(self) -> None:
        """Keep what there is."""


class Recorder:
    """Numbers, times, redacts and bounds what is recorded.

    Times never stand still, so the order of lines is the order of times.

    Args:
        sink: takes the lines.
        redactor: takes secrets out.
        bounds: of the recording.
        read_clock: nanoseconds of a monotonic clock.
    """

    def __init__(
        self, sink: Sink, redactor: Redactor, bounds: Bounds, read_clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._sink = sink
        self._redactor = redactor
        self._bounds = bounds
        self._read_clock = read_clock
        self._start = read_clock()
        self._last = -1
        self._failure: RecordingFailed | None = None
        self._ordinals: list[int] = []
        self._digest = hashlib.sha256()
        self.counts = {"sessions": 0, "frames": 0, "http": 0, "errors": 0, "bytes": 0, "redacted": 0}

    def begin(self, head: Head) -> None:
        """Write the head; format and redaction are filled in."""
        fields = {name: getattr(head, name) for name in head.__struct_fields__}
        self._write(Head(**{**fields, "format": FORMAT, "redaction": {"version": VERSION}}))

    def start_session(self) -> int:
        """Return the number of a new session."""
        self._ordinals.append(0)
        self.counts["sessions"] += 1
        return len(self._ordinals) - 1

    def note_open(
        self,
        session: int,
        url: str,
        request_headers: Mapping[str, str],
        status: int | None,
        response_headers: Mapping[str, str] | None,
        *,
        subprotocol: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """Write a handshake."""
        shown_url, first = self._redactor.redact_url(url)
        sent, second = self._redactor.redact_headers(request_headers)
        received, third = self._redactor.redact_headers(response_headers or {})
        if extra and "body" in extra:
            body, fourth = self._redactor.redact_text(extra["body"])
            extra, third = {**extra, "body": body}, third + fourth
        record = Open(
            s=session,
            t=self._now(),
            url=shown_url,
            request_headers=sent,
            status=status,
            response_headers=None if response_headers is None else received,
            subprotocol=subprotocol,
            redacted=first + second + third,
            extra=extra,
        )
        self._write(record, record.redacted)

    def note_frame(
        self, session: int, direction: Direction, op: int, payload: bytes, *, fin: bool, note: str | None = None
    ) -> None:
        """Write one frame.

        Raises:
            BoundReached: the recording has as many frames or bytes as it may.
        """
        self._count("frames", len(payload))
        text, b64, redacted = self._split(payload, is_text=op not in {BINARY, 8, 9, 10})
        record = Frame(
            s=session,
            n=self._number(session),
            t=self._now(),
            dir=direction,
            op=op,
            fin=fin,
            text=text,
            b64=b64,
            note=note,
            redacted=redacted,
        )
        self._write(record, redacted)

    def note_request(self, session: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Write an HTTP request."""
        self._count("http", len(body))
        shown_path, first = self._redactor.redact_url(path)
        shown, second = self._redactor.redact_headers(headers)
        text, b64, third = self._split(body, is_text=True)
        redacted = first + second + third
        number, now = self._number(session), self._now()
        record = Http(
            s=session,
            n=number,
            t=now,
            dir="c2s",
            method=method,
            path=shown_path,
            headers=shown,
            body=text,
            b64=b64,
            redacted=redacted,
        )
        self._write(record, redacted)

    def note_answer(self, session: int, status: int, headers: Mapping[str, str]) -> None:
        """Write the head of an HTTP answer."""
        self._count("http", 0)
        shown, redacted = self._redactor.redact_headers(headers)
        number, now = self._number(session), self._now()
        self._write(
            Http(s=session, n=number, t=now, dir="s2c", status=status, headers=shown, redacted=redacted), redacted
        )

    def note_chunk(self, session: int, chunk: bytes, *, is_last: bool = False) -> None:
        """Write what one read of an answer's body brought."""
        self._count("http", len(chunk))
        text, b64, redacted = self._split(chunk, is_text=True)
        number, now = self._number(session), self._now()
        record = Http(s=session, n=number, t=now, dir="s2c", chunk=text, b64=b64, fin=is_last, redacted=redacted)
        self._write(record, redacted)

    def note_barrier(self, session: int, name: str, state: str) -> None:
        """Write at which point a gateway was held, or let go."""
        self._write(Barrier(s=session, t=self._now(), name=name, state=state))

    def note_close(
        self,
        session: int,
        by: Literal["client", "server", "transport"],
        code: int | None,
        reason: str | None,
        *,
        clean: bool,
    ) -> None:
        """Write a session's end."""
        shown, redacted = self._redactor.redact_text(reason) if reason else (reason, 0)
        record = Close(s=session, t=self._now(), by=by, code=code, reason=shown, clean=clean, redacted=redacted)
        self._write(record, redacted)

    def note_failure(self, session: int | None, where: str, kind: str, message: str) -> None:
        """Write what failed on this side."""
        self.counts["errors"] += 1
        shown, redacted = self._redactor.redact_text(message)
        self._write(Failure(s=session, t=self._now(), where=where, class_=kind, message=shown), redacted)

    def finish(self) -> None:
        """Write the end."""
        self._write(End(counts=dict(self.counts), sha256=self._digest.hexdigest()))

    def _split(self, payload: bytes, *, is_text: bool) -> tuple[str | None, str | None, int]:
        if is_text:
            try:
                text, redacted = self._redactor.redact_text(payload.decode())
            except UnicodeDecodeError:
                pass
            else:
                return text, None, redacted
        shown, redacted = self._redactor.redact_bytes(payload)
        return None, base64.b64encode(shown).decode(), redacted

    def _count(self, kind: str, size: int) -> None:
        pieces = self.counts["frames"] + self.counts["http"]
        if pieces >= self._bounds.max_frames:
            raise BoundReached(f"the recording has {pieces} frames, which is its bound; raise --max-frames")
        if self.counts["bytes"] + size > self._bounds.max_bytes:
            raise BoundReached(f"the recording would hold over {self._bounds.max_bytes} bytes; raise --max-bytes")
        self.counts[kind] += 1
        self.counts["bytes"] += size

    def _number(self, session: int) -> int:
        number = self._ordinals[session]
        self._ordinals[session] += 1
        return number

    def _now(self) -> int:
        self._last = max(self._read_clock() - self._start, self._last + 1)
        return self._last

    def _write(self, record: Record, redacted: int = 0) -> None:
        if self._failure is not None:
            raise self._failure
        line = encode_record(record)
        try:
            self._sink.write(line)
        except RecordingFailed as failure:
            # Nothing may follow what is missing.
            self._failure = failure
            raise
        self.counts["redacted"] += redacted
        self._digest.update(line)
