"""The file of a recording: JSON Lines, one record a line, in the order in which things were seen.

A recording that was killed has no `end`, and its last line may be cut; everything before that is whole.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

FORMAT: Final = "responses-duplex/1"
TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0

# A recording is read as a whole; its payload is bounded while it is made.
_MAX_FILE_BYTES: Final = 1024 * 1024 * 1024

Direction = Literal["c2s", "s2c"]
Headers = dict[str, str]


class FormatError(Exception):
    """A file is no recording; the text names the line and what is wrong with it."""


class _Record(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="k"):
    pass


class Head(_Record, frozen=True, kw_only=True, tag="head"):
    """The first line: what was recorded, with what.

    Attributes:
        format: always `responses-duplex/1`.
        created_utc: when the recording began, RFC 3339.
        tool: name and version of what recorded.
        provider: `openai`, `gateway`, or another name.
        model: the model that was asked for.
        sdk: the client libraries that spoke.
        fixture: what answered the calls of the model.
        scenario: what was played.
        redaction: version of the rules by which secrets were taken out.
        extra: what a converted file said besides.
    """

    format: str = msgspec.field(default_factory=str)
    created_utc: str | None = None
    tool: dict[str, str] | None = None
    provider: str | None = None
    model: str | None = None
    sdk: str | None = None
    fixture: str | None = None
    scenario: str | None = None
    redaction: dict[str, int] | None = None
    extra: dict[str, Any] | None = None


class Open(_Record, frozen=True, kw_only=True, tag="open"):
    """A WebSocket's handshake, accepted or not.

    Attributes:
        s: number of the session, from 0.
        t: nanoseconds from the start of the recording.
        status: of the answer; None when there was none.
        redacted: how many secrets were taken out.
    """

    s: int
    t: int
    url: str | None = None
    request_headers: Headers | None = None
    status: int | None = None
    response_headers: Headers | None = None
    subprotocol: str | None = None
    redacted: int = 0
    extra: dict[str, Any] | None = None


class Frame(_Record, frozen=True, kw_only=True, tag="frame"):
    """One frame of a WebSocket, as it was on the wire, control frames and fragments too.

    Attributes:
        n: number within the session; both directions share it.
        t: of a sent frame taken after the write, of a received one right after the read.
        op: 0 continuation, 1 text, 2 binary, 8 close, 9 ping, 10 pong.
        text: the payload, if it is text.
        b64: the payload otherwise.
        note: why the driver sent it.
    """

    s: int
    n: int
    t: int
    dir: Direction
    op: int
    fin: bool
    text: str | None = None
    b64: str | None = None
    note: str | None = None
    redacted: int = 0
    extra: dict[str, Any] | None = None

    @property
    def payload(self) -> bytes:
        """The bytes of the frame."""
        return self.text.encode() if self.text is not None else _decode_base64(self.b64 or "")


class Http(_Record, frozen=True, kw_only=True, tag="http"):
    """A piece of an HTTP exchange: the request, the head of the answer, or a chunk of it as it was read.

    Attributes:
        fin: whether the exchange is over.
    """

    s: int
    n: int
    t: int
    dir: Direction
    method: str | None = None
    path: str | None = None
    status: int | None = None
    headers: Headers | None = None
    body: str | None = None
    chunk: str | None = None
    b64: str | None = None
    fin: bool = False
    note: str | None = None
    redacted: int = 0

    @property
    def payload(self) -> bytes:
        """The bytes of the body or of the chunk."""
        text = self.body if self.body is not None else self.chunk
        return text.encode() if text is not None else _decode_base64(self.b64 or "")


class Barrier(_Record, frozen=True, kw_only=True, tag="barrier"):
    """A point at which a test held a gateway."""

    s: int
    t: int
    name: str
    state: str


class Close(_Record, frozen=True, kw_only=True, tag="close"):
    """The end of a session.

    Attributes:
        by: who ended it.
        code: of the first close frame; None when there was none.
        clean: whether both sides said goodbye.
    """

    s: int
    t: int
    by: Literal["client", "server", "transport"]
    code: int | None = None
    reason: str | None = None
    clean: bool
    redacted: int = 0
    extra: dict[str, Any] | None = None


class Failure(_Record, frozen=True, kw_only=True, tag="error"):
    """What failed on this side or below; never an error that a provider sent."""

    s: int | None = None
    t: int
    where: str
    class_: str = msgspec.field(name="class")
    message: str


class End(_Record, frozen=True, kw_only=True, tag="end"):
    """The last line.

    Attributes:
        counts: of records, payload bytes and redactions.
        sha256: of all lines before.
    """

    counts: dict[str, int]
    sha256: str


Record = Head | Open | Frame | Http | Barrier | Close | Failure | End

_decoder: Final = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Return a record's line."""
    return msgspec.json.encode(record) + b"\n"


class Cassette(Struct, frozen=True):
    """A recording that was read.

    Attributes:
        records: in the order of the file.
        is_complete: whether it ends with `end`.
        is_intact: whether the sum of `end` fits; None without `end`.
    """

    records: Sequence[Record]
    is_complete: bool = False
    is_intact: bool | None = None

    @property
    def head(self) -> Head:
        """The first record."""
        first = self.records[0]
        assert isinstance(first, Head)
        return first


def read_cassette(lines: Iterator[bytes]) -> Cassette:
    """Read a recording; a last line without its end is left out.

    Raises:
        FormatError: a line is no record, the first is no head of this format, or something follows `end`.
    """
    records: list[Record] = []
    digest = hashlib.sha256()
    is_intact: bool | None = None
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        record = _decode(number, line)
        if is_intact is not None:
            raise FormatError(f"line {number}: stands behind the end")
        if number == 1 and not (isinstance(record, Head) and record.format == FORMAT):
            raise FormatError(f"line 1: must be the head of a recording in the format {FORMAT}")
        if isinstance(record, End):
            is_intact = record.sha256 == digest.hexdigest()
        digest.update(line)
        records.append(record)
    if not records:
        raise FormatError("line 1: there is no whole line")
    return Cassette(records, is_intact is not None, is_intact)


def load_cassette(path: Path) -> Cassette:
    """Read the recording in a file, as `read_cassette` does.

    Raises:
        FormatError: it is none, or larger than 1 GiB.
        OSError: the file cannot be read.
    """
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise FormatError(f"is larger than {_MAX_FILE_BYTES} bytes")
    with path.open("rb") as file:
        return read_cassette(file)


def _decode(number: int, line: bytes) -> Record:
    try:
        record = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"line {number}: {error}") from None
    if isinstance(record, Frame | Http) and record.b64 is not None:
        try:
            _decode_base64(record.b64)
        except binascii.Error:
            raise FormatError(f"line {number}: b64 is no base64") from None
    return record


def _decode_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
