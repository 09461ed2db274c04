"""Every way in which a request can fail, by the code its caller is told."""

from msgspec import Struct

from gateway.protocol import errors
from gateway.protocol.errors import GatewayError
from gateway.transport.connection import RequestTimeout
from gateway.transport.protocol import HeadTooLarge, InvalidHttp

UPGRADE_REQUIRED = 426


class Failure(Struct, frozen=True):
    """One way to fail.

    Attributes:
        code: what the error object says.
        status: HTTP status.
        type: the API's error type.
        when: in which case, as the end of a sentence.
    """

    code: str
    status: int
    type: str
    when: str


def _fail(kind: type[GatewayError], when: str, code: str = "", status: int = 0) -> Failure:
    return Failure(code or kind.code, status or kind.status, kind.type, when)


def _refuse(**whens: str) -> tuple[Failure, ...]:
    return tuple(_fail(errors.InvalidRequest, when, code) for code, when in whens.items())


_OVERLOADED = (
    "shutting down, too many requests or connections at once, an inference server that failed repeatedly, or the "
    "database does not answer or takes no writes"
)

ANYWHERE = (
    _fail(InvalidHttp, "what arrived is not HTTP"),
    _fail(errors.Forbidden, "the Host header names no host of the gateway", "host_not_allowed"),
    _fail(errors.Forbidden, "a web page of another origin called", "origin_not_allowed"),
    _fail(RequestTimeout, "the request took too long to arrive"),
    _fail(HeadTooLarge, "the head of the request is too large"),
    _fail(errors.InternalError, "a fault of the gateway; its log has it under the request id"),
)
"""What can befall any request, whatever its route."""

ACCESS = (
    _fail(errors.Unauthorized, "there is no key or token, or one that counts for nothing"),
    _fail(errors.Forbidden, "the token permits too little", "insufficient_scope"),
)
"""What can befall requests where callers are asked who they are."""

OVERLOAD = (_fail(errors.Unavailable, _OVERLOADED),)

STORED = (_fail(errors.ResponseNotFound, "the caller has no stored response of that id, or deleted it"), *OVERLOAD)

_WRONG_VALUE = "a parameter has a value it cannot have"

READ = (
    *_refuse(
        invalid_value=_WRONG_VALUE,
        unsupported_parameter="a stream was asked for of a response that was not created with `background` and "
        "`stream`",
    ),
    _fail(errors.NotFound, "the events are kept no longer", "response_events_not_found"),
)

CANCEL = _refuse(response_not_cancellable="it is no background response")

PAGE = _refuse(invalid_value=_WRONG_VALUE, item_not_found="`after` names no item of the list")

CONVERSATION = (
    _fail(errors.ConversationNotFound, "the caller has no conversation of that id, or deleted it"),
    *OVERLOAD,
)

ITEM = (*CONVERSATION, _fail(errors.ItemNotFound, "the conversation has no such item"))

LOCKED = (_fail(errors.ConversationLocked, "another request is writing to the conversation"),)

BODY = (
    *_refuse(
        invalid_json="the body is not a JSON object, or is nested too deeply",
        invalid_type="a field has another type than it must",
        invalid_value="a field has a value it cannot have",
    ),
    _fail(errors.RequestTooLarge, "the body is too large"),
)
"""How a body can be refused."""

NEW_ITEMS = (
    *BODY,
    *_refuse(
        array_above_max_length="there are too many items",
        unsupported_parameter="an item holds what is not offered",
        duplicate_item="two items have the same id",
    ),
    _fail(errors.InsufficientQuota, "what the caller has stored takes as much room as it may"),
)
"""How items for a conversation can be refused."""

TOO_LARGE = _refuse(conversation_too_large="the conversation holds as much as it may")

UPGRADE = (
    _fail(errors.InvalidRequest, "it is no upgrade, or none is accepted", "upgrade_required", UPGRADE_REQUIRED),
    _fail(errors.InvalidRequest, "the upgrade is not one to a WebSocket", "invalid_upgrade"),
)

FRAMES = (
    *_refuse(
        unsupported_event="a frame is no object, or of a type that is not taken",
        unsupported_message_type="a frame is binary",
        invalid_event="a `response.inject` or `response.steer` lacks what it needs; after an inject Close 1008 follows",
        invalid_stream_id="the name of a lane has characters it cannot have, or too many",
    ),
    _fail(errors.StreamLimitReached, "the connection has named as many lanes as it may"),
    _fail(errors.ConnectionLimitReached, "the connection is as old as it may become"),
    _fail(errors.Unauthorized, "the key of the connection was revoked or has expired"),
    _fail(errors.Unauthorized, "the token of the connection has expired", "invalid_token"),
    _fail(errors.RateLimitExceeded, "too many creates wait or run on the connection"),
    _fail(errors.TooManyInjections, "too many injects and steers wait to be answered on the connection"),
)
"""What a WebSocket is told in frames, besides what befalls any create."""

UPSTREAM = (
    _fail(errors.UpstreamError, "the inference server answered something that is no response"),
    _fail(errors.UpstreamError, "the inference server refused the gateway's own key", "upstream_auth_failed"),
    _fail(errors.UpstreamUnavailable, "no connection to the inference server"),
    _fail(errors.UpstreamTimeout, "the inference server was silent for too long"),
    *OVERLOAD,
)
"""How asking an inference server can fail, besides the server's own refusals."""

MODEL = (_fail(errors.NotFound, "no inference server takes that model", "model_not_found"),)

CREATE = (
    *_refuse(
        invalid_request="the request is malformed or contradicts itself",
        invalid_json="the body is not a JSON object, or is nested too deeply",
        missing_required_parameter="`model` or `input` is missing",
        invalid_type="a field has another type than it must",
        invalid_value="a field has a value it cannot have",
        array_above_max_length="there are too many input items or tools",
        unknown_parameter="a field the API does not know, with `[responses] strict_parameters`, or in `multi_agent`",
        integer_below_min_value="the number of agents is below 1",
        integer_above_max_value="the number of agents is above what the operator allows",
        unsupported_value="the input brings an item back that only a tree of agents tells",
        unsupported_operation="it is asked about a tree of agents, and can only be answered for single ones",
        unsupported_parameter="a field that is not offered, or kept for the operator",
        invalid_tool_output="a tool output answers no waiting call, or one of another kind",
        missing_tool_output="a call has no output",
        approval_request_not_found="an approval is of no call that was asked for in the conversation",
        approval_already_given="a request for approval was answered before",
        missing_approval_response="a request for approval has no answer",
        missing_mcp_server="the server of an approved call is not declared",
        invalid_encrypted_content="a compaction item was made for another caller, or by another version",
        item_not_found="an `item_reference` names no item of the caller",
        previous_response_in_progress="`previous_response_id` names a background response that has not ended",
        history_too_long="the history behind `previous_response_id` is too long",
        mutually_exclusive_parameters="both `conversation` and `previous_response_id` are given",
        duplicate_item="an input item has the id of one in the conversation",
    ),
    *TOO_LARGE,
    *LOCKED,
    _fail(errors.ConversationNotFound, "the caller has no conversation of that id, or deleted it"),
    _fail(errors.PreviousResponseNotFound, "`previous_response_id` names nothing the caller can continue"),
    *MODEL,
    _fail(errors.RequestTooLarge, "the body is too large"),
    _fail(errors.RateLimitExceeded, "as many background responses wait as may"),
    _fail(errors.InsufficientQuota, "what the caller has stored takes as much room as it may"),
    _fail(errors.UpstreamError, "the inference server's body is no response", "upstream_invalid_body"),
    _fail(errors.CompactionFailed, "the model wrote no usable note of a history that was to be compacted"),
    _fail(errors.UpstreamError, "an event of the inference server could not be read", "upstream_invalid_event"),
    Failure(
        errors.RESOURCE_LIMIT_CODE,
        errors.ResourceLimitExceeded.status,
        errors.ResourceLimitExceeded.type,
        "the response passed the limit that `resource` and `limit` name",
    ),
    *UPSTREAM,
)

NO_ROUTE = (_fail(errors.NotFound, "there is no such path", "route_not_found"),)

NO_METHOD = (_fail(errors.MethodNotAllowed, "the path exists, the method does not"),)

_RESERVED = (
    _fail(errors.Forbidden, "the caller may not do this"),
    _fail(errors.NotFound, "the object does not exist for this caller"),
)

EVERY = (
    *ANYWHERE,
    *ACCESS,
    *STORED,
    *READ,
    *CANCEL,
    *PAGE,
    *ITEM,
    *NEW_ITEMS,
    *UPGRADE,
    *FRAMES,
    *CREATE,
    *NO_ROUTE,
    *NO_METHOD,
    *_RESERVED,
)
"""All there are, some of them more than once."""
