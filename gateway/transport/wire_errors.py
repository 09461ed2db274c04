"""Errors as HTTP answers.

Every failure a caller sees has the same envelope: the gateway's own errors, those of the framework (no such route,
wrong method) and those nobody foresaw.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self, cast

from litestar import Request, Response
from litestar.exceptions import HTTPException, NotFoundException, ValidationException
from litestar.types import Message, Send

from gateway.protocol import codec
from gateway.protocol.envelope import build_envelope
from gateway.protocol.errors import (
    GatewayError,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RequestTooLarge,
    UpstreamError,
)
from gateway.telemetry.names import LOGGER_ERRORS
from gateway.transport.hints import find_hint

RawHeaders = list[tuple[bytes, bytes]]

STATE_FAILURE = "failure"
"""Key of `scope["state"]` under which a `Failure` is left when an error was the answer."""

NO_ROUTE = "route_not_found"
"""The code of a path that leads nowhere."""

_FRAMEWORK_CODES = {426: "upgrade_required"}
_FRAMEWORK_HEADERS = frozenset({"allow", "upgrade", "connection"})
_logger = logging.getLogger(LOGGER_ERRORS)


class Failure(NamedTuple):
    """What is remembered of an error: the error itself would keep everything alive that led to it."""

    code: str
    bound: str | None

    @classmethod
    def of(cls, error: GatewayError) -> Self:
        """Return what is remembered of an error."""
        return cls(error.code, error.bound)


class HttpError(NamedTuple):
    """An error as an HTTP answer."""

    status: int
    headers: RawHeaders
    body: bytes


def http_error(error: GatewayError) -> HttpError:
    """Return status, headers and body of an error that is the whole answer."""
    body = codec.encode(build_envelope(error))
    headers: RawHeaders = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    headers += ((name.encode(), value.encode()) for name, value in error.hints.items())
    return HttpError(error.status, headers, body)


def name_code(error: GatewayError) -> str:
    """Return the code as metrics have it: a server's codes are its own words, of which there may be any number."""
    return "upstream" if isinstance(error, UpstreamError) else error.code


async def send_error(
    send: Send,
    error: GatewayError,
    *,
    close: bool = False,
    denial: bool = False,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Answer what has not been answered yet with an error.

    Args:
        send: sends to the client.
        error: the answer.
        close: close the connection of an HTTP request.
        denial: it is no HTTP request that is answered, but a WebSocket that has not been accepted.
        headers: further headers of the answer.
    """
    answer = http_error(error)
    all_headers = [*answer.headers, *headers, *(((b"connection", b"close"),) if close else ())]
    kind = "websocket.http.response" if denial else "http.response"
    start = {"type": f"{kind}.start", "status": answer.status, "headers": all_headers}
    body = {"type": f"{kind}.body", "body": answer.body, "more_body": False}
    await send(cast("Message", start))
    await send(cast("Message", body))


def from_exception(error: Exception) -> GatewayError:
    """Return the error to show for any exception.

    What is not a `GatewayError` and not the framework's verdict on the request is a fault of ours: it is logged with
    its traceback, and the caller learns only that it happened.
    """
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, HTTPException) and error.status_code < 500:
        return _from_framework(error)
    _logger.error("unexpected error", exc_info=error)
    return InternalError()


def respond_with_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer an exception that left a handler: the app's only exception handler."""
    shown = from_exception(error)
    if isinstance(error, NotFoundException):
        shown.message += find_hint(request.scope["path"], (route.path_components for route in request.app.routes))
    request.scope["state"][STATE_FAILURE] = Failure.of(shown)
    answer = http_error(shown)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    if isinstance(error, HTTPException):
        headers |= _kept_headers(error.headers or {})
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")


def _from_framework(error: HTTPException) -> GatewayError:
    if error.status_code == 405:
        return MethodNotAllowed("This route does not take that method; the Allow header names those it takes.")
    if error.status_code == 413:
        return RequestTooLarge("The request body is larger than [server] max_request_body_bytes.")
    if error.status_code == 404:
        return NotFound("There is no such route.", code=NO_ROUTE)
    if isinstance(error, ValidationException):
        return _from_validation(error)
    other = InvalidRequest(error.detail, code=_FRAMEWORK_CODES.get(error.status_code))
    other.status = error.status_code
    return other


def _from_validation(error: ValidationException) -> InvalidRequest:
    first = error.extra[0] if isinstance(error.extra, list) and error.extra else {}
    field, problem = first.get("key"), first.get("message", error.detail)
    return InvalidRequest(f"Invalid '{field}': {problem}." if field else f"{problem}.", param=field)


def _kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in _FRAMEWORK_HEADERS}
