"""Every error a caller can see, as one tree.

GatewayError
├── InvalidRequest                 400, names the parameter
│   ├── NotFound                   404
│   │   ├── ResponseNotFound       404
│   │   ├── ConversationNotFound   404
│   │   └── ItemNotFound           404, of a conversation
│   ├── ConversationLocked         400
│   ├── PreviousResponseNotFound   400
│   ├── StreamLimitReached         400, of one WebSocket
│   ├── ConnectionLimitReached     400, of one WebSocket
│   └── RequestTooLarge            413
├── Unauthorized                   401
├── Forbidden                      403
├── MethodNotAllowed               405
├── RateLimitExceeded              429
│   └── TooManyInjections          429, of one WebSocket
├── InsufficientQuota              429, of what is stored
├── ResourceLimitExceeded          502, names the config key and its limit
├── UpstreamError                  502
│   ├── UpstreamRefused            the upstream's own status
│   ├── CompactionFailed           502
│   ├── UpstreamUnavailable        502, nothing was accepted
│   └── UpstreamTimeout            504
├── Unavailable                    503 with Retry-After
│   └── StorageUnavailable         503
└── InternalError                  500

An error knows its code, type, status and whether a retry can help; it never writes bytes. `protocol.envelope` gives
it the form it has on the wire.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
UPSTREAM_ERROR = "upstream_error"
RATE_LIMIT = "rate_limit_error"
UNAVAILABLE = "service_unavailable_error"
RESOURCE_LIMIT_CODE = "response_resource_limit_exceeded"


class GatewayError(Exception):
    """Base of everything that ends a request with an error the caller sees.

    Attributes:
        message: what is wrong and how to mend it; never holds a secret or the caller's content.
        code: stable string code, never None.
        type: the API's error type.
        status: HTTP status, also the status of a WebSocket error frame.
        param: the request field at fault, or None.
        bound: key of the configuration that says how much there may be, if there is too much, or None.
        retry_after: seconds for `Retry-After`, or None.
        should_retry: value for `x-should-retry`; None leaves it to the client.
    """

    status: int = 500
    type: str = SERVER_ERROR
    code: str = "server_error"
    should_retry: bool | None = None
    retry_after: float | None = None
    param: str | None = None
    bound: str | None = None

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, bound: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if param is not None:
            self.param = param
        if bound is not None:
            self.bound = bound

    @property
    def details(self) -> dict[str, str | int]:
        """Extra members of the error object, besides message, type, param and code."""
        return {}

    @property
    def hints(self) -> dict[str, str]:
        """What a client may go by when it tries again, as HTTP headers."""
        hints = {}
        if self.retry_after is not None:
            hints["retry-after"] = str(max(1, math.ceil(self.retry_after)))
        if self.should_retry is not None:
            hints["x-should-retry"] = "true" if self.should_retry else "false"
        return hints


class InvalidRequest(GatewayError):
    """The request itself is wrong; the same request will never succeed."""

    status = 400
    type = INVALID_REQUEST
    code = "invalid_request"


class NotFound(InvalidRequest):
    """The named object does not exist for this caller."""

    status = 404
    code = "not_found"


class ResponseNotFound(NotFound):
    """The caller has no stored response of that id, or deleted it."""

    code = "response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{response_id[:128]}' not found.")


class ConversationNotFound(NotFound):
    """The caller has no conversation of that id, or deleted it."""

    code = "conversation_not_found"

    def __init__(self, conversation_id: str, *, param: str | None = None) -> None:
        super().__init__(f"Conversation with id '{conversation_id[:128]}' not found.", param=param)


class ItemNotFound(NotFound):
    """The conversation has no item of that id."""

    code = "item_not_found"

    def __init__(self, item_id: str) -> None:
        super().__init__(f"The conversation has no item with id '{item_id[:128]}'.")


class ConversationLocked(InvalidRequest):
    """Somebody else is writing to the conversation."""

    code = "conversation_locked"
    param = "conversation"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            f"Another request is writing to conversation '{conversation_id[:128]}'; send this one when it has ended."
        )


class PreviousResponseNotFound(InvalidRequest):
    """`previous_response_id` names nothing this caller can continue."""

    code = "previous_response_not_found"
    param = "previous_response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Previous response with id '{response_id[:128]}' not found.")


class StreamLimitReached(InvalidRequest):
    """One more lane than `[websocket] max_named_lanes` was named on a connection."""

    code = "websocket_stream_limit_reached"
    param = "stream_id"
    bound = "websocket.max_named_lanes"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"This WebSocket connection has reached its maximum number of distinct stream IDs ({limit}). "
            "Reuse an existing stream_id or open a new WebSocket connection."
        )


class ConnectionLimitReached(InvalidRequest):
    """A WebSocket is as old as `[websocket] lifetime_seconds` allows.

    Args:
        lifetime: that age in seconds.
    """

    code = "websocket_connection_limit_reached"
    bound = "websocket.lifetime_seconds"

    def __init__(self, lifetime: float) -> None:
        amount, unit = (lifetime, "second") if lifetime % 60 else (lifetime / 60, "minute")
        super().__init__(
            f"Responses websocket connection limit reached ({amount:g} {unit}{'' if amount == 1 else 's'}). "
            "Create a new websocket connection to continue."
        )


class RequestTooLarge(InvalidRequest):
    """The request body is above `[server] max_request_body_bytes`."""

    status = 413
    code = "request_too_large"
    bound = "server.max_request_body_bytes"


class Unauthorized(GatewayError):
    """No usable credentials.

    Attributes:
        challenge: value of `WWW-Authenticate`: how to prove who one is.
    """

    status = 401
    type = INVALID_REQUEST
    code = "invalid_api_key"
    challenge = "Bearer"

    @property
    def hints(self) -> dict[str, str]:
        """Name the scheme besides."""
        return {**super().hints, "www-authenticate": self.challenge}


class Forbidden(GatewayError):
    """The caller may not do this, whoever it is."""

    status = 403
    type = INVALID_REQUEST
    code = "forbidden"


class MethodNotAllowed(InvalidRequest):
    """The route exists, the method does not."""

    status = 405
    code = "method_not_allowed"


class RateLimitExceeded(GatewayError):
    """The caller has more under way than it may; the same request may be taken later.

    Args:
        message: what there is too much of.
        bound: key of the configuration that says how much there may be.
        retry_after: seconds after which a retry makes sense, if that is known.
        headers: further headers that tell what is left, names in lower case.
    """

    status = 429
    type = RATE_LIMIT
    code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        bound: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, bound=bound)
        self.retry_after = retry_after
        self._headers = headers or {}

    @property
    def hints(self) -> dict[str, str]:
        """As of any error, and what is left."""
        return {**super().hints, **self._headers}


class TooManyInjections(RateLimitExceeded):
    """Too many injects and steers of a WebSocket wait to be answered; nothing of this one was applied."""

    code = "too_many_pending_injections"


class InsufficientQuota(GatewayError):
    """The caller keeps as much as it may; trying again does not help before something has been removed."""

    status = 429
    type = "insufficient_quota"
    code = "insufficient_quota"
    should_retry = False


class ResourceLimitExceeded(GatewayError):
    """A `[responses]` limit was passed; deterministic, so a retry cannot help.

    Attributes:
        resource: config key of the limit, for example `max_retained_bytes`.
        limit: the limit in bytes.
    """

    status = 502
    type = UPSTREAM_ERROR
    code = RESOURCE_LIMIT_CODE
    should_retry = False

    def __init__(self, resource: str, limit: int, message: str | None = None) -> None:
        super().__init__(message or f"The response exceeds [responses] {resource} ({limit} bytes).")
        self.resource = resource
        self.limit = limit

    @property
    def details(self) -> dict[str, str | int]:
        """Names the limit by its config key, with its size in bytes."""
        return {"resource": self.resource, "limit": self.limit}


class UpstreamError(GatewayError):
    """The inference server answered something that is not a response."""

    status = 502
    type = UPSTREAM_ERROR
    code = "upstream_error"


class CompactionFailed(UpstreamError):
    """No note could be made of a history that is too long to go on with, or that was asked to be compacted."""

    code = "compaction_failed"


class UpstreamRefused(UpstreamError):
    """The inference server refused the request; its status and words are kept.

    Raised for 4xx, 503 and 504 with the upstream's status; every other status becomes 502.
    """

    PASSED: ClassVar[frozenset[int]] = frozenset({*range(400, 500), 503, 504})

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int,
        code: str,
        type: str,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, code=code, param=param)
        self.upstream_status = upstream_status
        self.status = upstream_status if upstream_status in self.PASSED else 502
        self.type = type
        self.retry_after = retry_after


class UpstreamUnavailable(UpstreamError):
    """No connection, or it broke before an answer began."""

    code = "upstream_unavailable"


class UpstreamTimeout(UpstreamError):
    """The inference server stayed silent longer than a configured timeout."""

    status = 504
    code = "upstream_timeout"


class Unavailable(GatewayError):
    """The gateway cannot take this now; the same request may succeed later."""

    status = 503
    type = UNAVAILABLE
    code = "server_is_overloaded"
    retry_after = 1.0


class StorageUnavailable(Unavailable):
    """The database does not answer; nothing was sent upstream for this request."""


class InternalError(GatewayError):
    """A fault of the gateway itself; details are in the log under the request id."""

    def __init__(self, message: str = "The gateway met an internal error; see its log for this request id.") -> None:
        super().__init__(message)
