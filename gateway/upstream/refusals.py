"""From an inference server's refusal to the error its caller sees.

Servers word the same refusal differently: integer codes that repeat the status, a bare string, or a framework's
`detail`. Callers always get a message, a type and a string code.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from gateway.protocol import codec
from gateway.protocol.errors import INVALID_REQUEST, UNAVAILABLE, UPSTREAM_ERROR, UpstreamRefused

MAX_ERROR_BODY_BYTES = 1024 * 1024
MAX_MESSAGE_CHARS = 4096
_MAX_WORD_CHARS = 128
_MAX_COMPLAINTS = 8

_CONTEXT_OVERFLOW = re.compile(
    r"maximum context length|exceeds? the (max_model_len|available context size)|context length exceeded", re.IGNORECASE
)
_CODES = {408: "request_timeout", 413: "request_too_large", 429: "rate_limit_exceeded"}
_SERVER_CODES = {503: "server_is_overloaded", 504: "upstream_timeout"}


def read_refusal(
    status: int, headers: Mapping[str, str], body: bytes | None, *, now: float, secret: str | None = None
) -> UpstreamRefused:
    """Return the error for an answer that is not 200.

    Args:
        status: the server's status.
        headers: its headers, names in lower case.
        body: the error body, or None when it was too large to read.
        now: Unix seconds, to which an HTTP date in `Retry-After` is related.
        secret: the gateway's own key, taken out of whatever the server says.
    """
    retry_after = parse_retry_after(headers.get("retry-after"), now=now)
    if status in {401, 403}:
        # The caller's own credentials never reach the server, so these are about the gateway's. The server's words
        # are withheld: they may quote a piece of the key.
        return _fail(
            status,
            f"The inference server refused the gateway's own credentials ({status}); "
            "the operator must check api_key of this upstream.",
            code="upstream_auth_failed",
        )
    if not 400 <= status < 600:
        return _fail(status, _describe_unexpected(status))
    try:
        document = None if body is None else codec.decode(body)
    except ValueError as error:
        flaw = str(error) if isinstance(error, codec.TooDeepError) else "not JSON"
        refused = _fail(status, f"The inference server answered {status} with a body that is {flaw}.")
        refused.retry_after = retry_after
        return refused
    # Before anything is shortened: half a key is a secret too.
    envelope = {name: redact(value, secret) for name, value in _unwrap(document).items()}
    message = (_text(envelope.get("message")) or _default_message(status))[:MAX_MESSAGE_CHARS]
    if status >= 500 and status not in UpstreamRefused.PASSED:
        return UpstreamRefused(
            message, upstream_status=status, code=UPSTREAM_ERROR, type=UPSTREAM_ERROR, retry_after=retry_after
        )
    return UpstreamRefused(
        message,
        upstream_status=status,
        code=_choose_code(status, envelope, message),
        type=_word(envelope.get("type")) or _default_type(status),
        param=_word(envelope.get("param")),
        retry_after=retry_after,
    )


def redact(value: Any, secret: str | None) -> Any:
    """Return a text without the secret in it; anything but text is returned as it is."""
    return value.replace(secret, "[redacted]") if secret and isinstance(value, str) else value


def parse_retry_after(value: str | None, *, now: float) -> float | None:
    """Return `Retry-After` in seconds from now, never negative, or None when absent or unreadable."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _fail(status: int, message: str, *, code: str = UPSTREAM_ERROR) -> UpstreamRefused:
    refused = UpstreamRefused(message, upstream_status=status, code=code, type=UPSTREAM_ERROR)
    refused.status = 502
    return refused


def _describe_unexpected(status: int) -> str:
    if 300 <= status < 400:
        return (
            f"The inference server redirects ({status}); the operator must set the upstream's url to the final address."
        )
    return f"The inference server answered {status} where 200 was expected."


def _default_message(status: int) -> str:
    return f"The inference server answered {status} without an explanation."


def _default_type(status: int) -> str:
    if status == 503:
        return UNAVAILABLE
    if status == 504:
        return UPSTREAM_ERROR
    return "rate_limit_error" if status == 429 else INVALID_REQUEST


def _unwrap(document: Any) -> dict[str, Any]:
    """Return the members of the error: an object of its own, a bare text, a framework's list, or the whole body."""
    if not isinstance(document, dict):
        return {}
    error = document.get("error") or document.get("detail")
    if not error:
        return document
    if isinstance(error, list):
        return _read_complaints(error)
    return error if isinstance(error, dict) else {"message": error}


def _read_complaints(complaints: list[Any]) -> dict[str, Any]:
    """Return what a framework's check of the body found: each complaint has a place and a message."""
    found = [one for one in complaints[:_MAX_COMPLAINTS] if isinstance(one, dict) and _text(one.get("msg"))]
    paths = [_read_path(one.get("loc")) for one in found]
    words = [f"{path}: {one['msg']}" if path else one["msg"] for path, one in zip(paths, found, strict=True)]
    return {"message": "; ".join(words), "param": next(filter(None, paths), None)}


def _read_path(place: Any) -> str:
    steps = [step for step in place if step != "body"] if isinstance(place, list) else []
    return ".".join(map(str, steps))


def _choose_code(status: int, envelope: dict[str, Any], message: str) -> str:
    own = _word(envelope.get("code"))
    if own is not None and not own.isdigit():
        return own
    if status in _SERVER_CODES:
        return _SERVER_CODES[status]
    if _is_context_overflow(envelope, message):
        return "context_length_exceeded"
    if status == 404:
        about_model = envelope.get("param") == "model" or "model" in message.lower()
        return "model_not_found" if about_model else "not_found"
    return _CODES.get(status, "invalid_request")


def _is_context_overflow(envelope: dict[str, Any], message: str) -> bool:
    return (
        envelope.get("type") == "exceed_context_size_error"
        or envelope.get("param") == "input_tokens"
        or _CONTEXT_OVERFLOW.search(message) is not None
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _word(value: Any) -> str | None:
    text = _text(value)
    return None if text is None else text[:_MAX_WORD_CHARS]
