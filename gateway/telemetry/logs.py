"""Log lines: one JSON object or one console line per record, with the ids of the request and of the trace at hand.

Any `extra={"name": value}` of a log call becomes a field of the line. Bodies and headers never do.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

import msgspec

from gateway.ports import Identity
from gateway.telemetry import names
from gateway.telemetry.audit import AuditFile
from gateway.telemetry.tracing import current_span

request_id_var: ContextVar[str | None] = ContextVar("gateway_request_id", default=None)
"""Id of the request this task works for: set at the edge, inherited by every task the request starts."""

response_id_var: ContextVar[str | None] = ContextVar("gateway_response_id", default=None)
"""Id of the response this task makes: set by the transport as soon as the id is minted."""

_RECORD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_access_logger = logging.getLogger(names.LOGGER_ACCESS)
_ACCESS_ATTRIBUTES = vars(
    logging.makeLogRecord({"name": names.LOGGER_ACCESS, "msg": "request", "levelname": "INFO", "levelno": logging.INFO})
)


class AccessRecord(logging.LogRecord):
    """The record of a request, which comes from no place in the code.

    A plain record looks for its caller, thread and process, which costs more than everything else about the line.

    Attributes:
        fields: what it adds to its line.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(_ACCESS_ATTRIBUTES, **fields)
        self.created = time.time()
        self.fields = fields


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line.

    Args:
        always: fields of every line.
    """

    def __init__(self, always: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON; values JSON does not know are shown by `str`."""
        line: dict[str, Any] = {
            names.FIELD_TIME: datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            names.FIELD_LEVEL: record.levelname.lower(),
            names.FIELD_LOGGER: record.name,
            names.FIELD_MESSAGE: record.getMessage(),
            **self._always,
            **dict(_fields(record)),
        }
        if record.exc_info:
            line[names.FIELD_EXCEPTION] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except (UnicodeEncodeError, OverflowError):
            # Callers' and engines' words may hold half a surrogate pair, which only an escape can show.
            return json.dumps(line, default=str)


class ConsoleFormatter(logging.Formatter):
    """One line for people: time, level, message, then `name=value` for each field.

    Args:
        always: fields of every line.
    """

    def __init__(self, always: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line, followed by the traceback if it has one."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        line = f"{time} {record.levelname:<7} {record.getMessage()}"
        line += "".join(f" {name}={value}" for name, value in (*self._always.items(), *_fields(record)))
        line = _escape(line)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line.encode("utf-8", "backslashreplace").decode()


def _escape(line: str) -> str:
    """Return a line that is one, and tells a terminal nothing: a caller's words are among it."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    if (request_id := request_id_var.get()) is not None:
        yield names.FIELD_REQUEST_ID, request_id
    if (response_id := response_id_var.get()) is not None:
        yield names.FIELD_RESPONSE_ID, response_id
    trace_id, span_id = current_span().ids
    if trace_id:
        yield names.FIELD_TRACE_ID, trace_id
    if span_id:
        yield names.FIELD_SPAN_ID, span_id
    if isinstance(record, AccessRecord):
        yield from record.fields.items()
        return
    for name, value in record.__dict__.items():
        if name not in _RECORD_ATTRIBUTES:
            yield name, value


def use_json(log_format: str, stream: TextIO) -> bool:
    """Tell whether `[telemetry] log_format` means JSON lines on this stream; `auto` means console on a terminal."""
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


def configure_logging(
    level: str, log_format: str, stream: TextIO, worker: int | None = None, audit_file: str | None = None
) -> None:
    """Send every record of the process to one stream.

    Args:
        level: lowest level shown, for example `info`.
        log_format: `auto`, `json` or `console`.
        stream: where lines go.
        worker: number of this worker process, for every line; None where one process does all.
        audit_file: where the records of the audit log go besides, None for nowhere.
    """
    always = {} if worker is None else {names.FIELD_WORKER: worker}
    handler = logging.StreamHandler(stream)
    formatter = JsonFormatter if use_json(log_format, stream) else ConsoleFormatter
    handler.setFormatter(formatter(always))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Who may call is told at any level.
    audit = logging.getLogger(names.LOGGER_AUDIT)
    audit.setLevel(logging.INFO)
    audit.handlers[:] = [] if audit_file is None else [AuditFile(audit_file)]
    for kept in audit.handlers:
        kept.setFormatter(JsonFormatter(always))
    # uvicorn tells its life story and warns of every refused upgrade; alembic speaks up at every look at the schema.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # What MCP servers say, and where they are, is in these records.
    for library in ("mcp", "client", "httpx2", "httpcore2"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def log_access(method: str, path: str, status: int, seconds: float, caller: Identity | None = None) -> None:
    """Write the one line every request leaves, under the ids of the request at hand.

    Args:
        method: HTTP method.
        path: path as it was sent, still percent-encoded and without the query.
        status: HTTP status, or 499 when the client left before there was one.
        seconds: time from the headers to the last byte.
        caller: who called, where callers are told apart.
    """
    if not _access_logger.isEnabledFor(logging.INFO):
        return
    fields: dict[str, Any] = {
        names.FIELD_METHOD: method,
        names.FIELD_PATH: path,
        names.FIELD_STATUS: status,
        names.FIELD_DURATION_MS: round(seconds * 1000, 1),
    }
    if caller is not None:
        fields[names.FIELD_PRINCIPAL] = caller.principal
        if caller.key_id is not None:
            fields[names.FIELD_KEY_ID] = caller.key_id
    _access_logger.handle(AccessRecord(fields))
