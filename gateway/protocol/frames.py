"""What passes over a WebSocket: the frames of a client, read, and those of the gateway, as bytes.

A client's frame is a create, with the parameters beside its `type` or in a `response` of their own. Here only what
routes it is read; the parameters are checked when its turn comes, by `requests.check_request`, because a create that
fails then is a failed continuation, and one that cannot be routed is not. Or it is a control, which names a response
of the connection: an inject or a steer.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType, structs

from gateway.protocol import codec
from gateway.protocol.envelope import ErrorObject, build_error_object
from gateway.protocol.errors import (
    GatewayError,
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    Unavailable,
    UpstreamError,
)
from gateway.protocol.injection import check_inject
from gateway.protocol.inputs import json_type
from gateway.protocol.requests import CreateFields, read_json

MAX_EVENT_ID = 512
"""Longest `event_id` in characters that is repeated in errors; longer ones are left out."""

_CREATE = "response.create"
_INJECT = "response.inject"
_STEER = "response.steer"
_TAKEN = f"This connection takes '{_CREATE}' and '{_STEER}'."
_BETA = "They belong to multi-agent responses; connect with the header 'OpenAI-Beta: responses_multi_agent=v1'."
_IGNORED = frozenset({"response.processed"})
_ROUTING = frozenset({"type", "stream_id", "event_id"})
# Parameters of a create, which are all in one place.
_INSIDE = tuple(
    name for name in CreateFields.__struct_fields__ if name not in {"stream_id", "generate", "stream", "stream_options"}
)
_STEER_FIELDS = frozenset({"type", "previous_response_id", "input"})
_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")


_TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
_HEADER_PREFIX = "ws_request_header_"
# What may become a header of a request to an inference server, at most as long as headers of this kind have to be.
_HEADER_VALUE = re.compile(r"[ -~]{1,8192}")

# Statuses by the type of an error, for what an encoded event tells.
_STATUSES = {kind.type: kind.status for kind in (InvalidRequest, RateLimitExceeded, UpstreamError, Unavailable)}


class CreateFrame(Struct, frozen=True, kw_only=True):
    """One `response.create`, not checked beyond what routes it.

    Attributes:
        stream_id: the lane it belongs to; None for the default lane.
        event_id: what errors about it repeat.
        body: the parameters by name, for an event stream whatever the client said.
        trace: the client's trace context, as the headers of a request would carry it.
    """

    stream_id: str | None
    event_id: str | None
    body: dict[str, Any]
    trace: Mapping[str, str] = {}


class InjectFrame(Struct, frozen=True, kw_only=True):
    """One `response.inject`: outputs for a response that runs.

    Attributes:
        response_id: the response.
        event_id: what errors about it repeat.
        input: the outputs as they were sent, each an object with a `type`.
    """

    response_id: str
    event_id: str | None
    input: list[dict[str, Any]]


class SteerFrame(Struct, frozen=True, kw_only=True):
    """One `response.steer`: what the user adds to a response.

    Attributes:
        response_id: the response.
        event_id: what errors about it repeat.
        input: what is added, not checked.
        stray: a member that such a frame must not have, if it has one.
    """

    response_id: str
    event_id: str | None
    input: Any
    stray: str | None


Frame: TypeAlias = CreateFrame | InjectFrame | SteerFrame


class FrameError(Exception):
    """A frame that cannot be routed; the connection goes on, unless `closes`.

    Attributes:
        error: what is wrong with it.
        stream_id: its lane, if it named a valid one.
        event_id: its own id, if that could be read.
        closes: whether the connection must end.
    """

    def __init__(
        self, error: GatewayError, *, stream_id: str | None = None, event_id: str | None = None, closes: bool = False
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.stream_id = stream_id
        self.event_id = event_id
        self.closes = closes


class FrameErrorObject(ErrorObject, kw_only=True):
    """What went wrong, with the headers that HTTP would have had."""

    headers: dict[str, str] | UnsetType = UNSET


class ErrorFrame(Struct, tag="error", tag_field="type", kw_only=True):
    """A failure without a response; `sequence_number` only where a response had begun."""

    status: int
    stream_id: str | UnsetType = UNSET
    event_id: str | UnsetType = UNSET
    sequence_number: int | UnsetType = UNSET
    error: FrameErrorObject


def read_frame(
    data: str | bytes, *, max_depth: int, default_model: str | None = None, injects: bool = False
) -> Frame | None:
    """Return the create or the control a text frame holds, or None for a frame that asks for nothing.

    Args:
        data: the text, decoded or in UTF-8.
        max_depth: deepest nesting.
        default_model: the model of a create that names none.
        injects: whether the connection takes `response.inject`.

    Raises:
        FrameError: `invalid_json`, `unsupported_event` or `invalid_stream_id`, parameters in two places, or a control
            without what it needs.
    """
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        fields = read_json(text, max_depth, what="frame")
    except InvalidRequest as error:
        raise FrameError(error) from None
    if not isinstance(fields, dict):
        raise FrameError(_unsupported_event(f"A frame must be a JSON object, not {json_type(fields)}."))
    kind, event_id, stream_id = fields.get("type"), _read_event_id(fields), fields.get("stream_id")
    is_lane = isinstance(stream_id, str) and _STREAM_ID.fullmatch(stream_id) is not None
    if isinstance(kind, str) and kind in _IGNORED:
        return None
    if kind == _STEER:
        return _read_steer(fields, event_id)
    if kind == _INJECT and injects:
        return _read_inject(fields, event_id)
    if kind != _CREATE:
        unsupported = _unsupported_event(_describe(kind), "type", _BETA if kind == _INJECT else _TAKEN)
        raise FrameError(unsupported, stream_id=stream_id if is_lane else None, event_id=event_id)
    if stream_id is not None and not is_lane:
        raise FrameError(_invalid_stream_id(), event_id=event_id)
    try:
        body = _read_body(fields, default_model)
    except InvalidRequest as error:
        raise FrameError(error, stream_id=stream_id, event_id=event_id) from None
    return CreateFrame(stream_id=stream_id, event_id=event_id, body=body, trace=_read_trace(body))


def refuse_binary() -> FrameError:
    """Return the error about a binary frame, of which nothing is read."""
    return FrameError(
        InvalidRequest("Frames must be text that holds JSON, not binary.", code="unsupported_message_type")
    )


def build_error_frame(
    error: GatewayError,
    *,
    stream_id: str | None = None,
    event_id: str | None = None,
    sequence_number: int | None = None,
) -> bytes:
    """Return the frame that tells of an error.

    Args:
        error: what went wrong.
        stream_id: the lane it happened on; None for the default lane, or if it belongs to none.
        event_id: the id of the client's frame, if that had one.
        sequence_number: its place among the events of the response, if that has begun.
    """
    return codec.encode(
        ErrorFrame(
            status=error.status,
            stream_id=UNSET if stream_id is None else stream_id,
            event_id=UNSET if event_id is None else event_id,
            sequence_number=UNSET if sequence_number is None else sequence_number,
            error=FrameErrorObject(**structs.asdict(build_error_object(error)), headers=error.hints or UNSET),
        )
    )


def reframe_error(event: bytes) -> bytes:
    """Return an encoded `error` event of a response, whose members are flat for event streams, as an error frame."""
    told = codec.decode(event)
    error = FrameErrorObject(
        message=told["message"], type=told["error"]["type"], param=told.get("param"), code=told["code"]
    )
    status = _STATUSES.get(error.type, InternalError.status)
    return codec.encode(ErrorFrame(status=status, sequence_number=told["sequence_number"], error=error))


def tag(event: bytes, stream_id: str | None) -> bytes:
    """Return an encoded event with the lane it belongs to; one of the default lane is left as it is."""
    # The characters of a lane's name need no escapes, and no event is an empty object.
    return event if stream_id is None else b'%b,"stream_id":"%b"}' % (event[:-1], stream_id.encode())


def tag_overhead(stream_id: str | None) -> int:
    """Return by how many bytes `tag` makes an event longer."""
    return len(tag(b"{}", stream_id)) - len(b"{}")


def _read_event_id(fields: dict[str, Any]) -> str | None:
    event_id = fields.get("event_id")
    return event_id if isinstance(event_id, str) and len(event_id) <= MAX_EVENT_ID else None


def _read_inject(fields: dict[str, Any], event_id: str | None) -> InjectFrame:
    response_id, given = fields.get("response_id"), fields.get("input")
    try:
        check_inject(response_id, given)
    except InvalidRequest as error:
        raise FrameError(error, event_id=event_id, closes=True) from None
    return InjectFrame(response_id=response_id, event_id=event_id, input=given)  # type: ignore[arg-type]


def _read_steer(fields: dict[str, Any], event_id: str | None) -> SteerFrame:
    response_id = fields.get("previous_response_id")
    if not isinstance(response_id, str):
        error = InvalidRequest(
            "Invalid 'response.steer': 'previous_response_id' must be the id of the response to steer, a string, not "
            f"{json_type(response_id)}.",
            code="invalid_event",
            param="previous_response_id",
        )
        raise FrameError(error, event_id=event_id)
    stray = next((name for name in fields if name not in _STEER_FIELDS), None)
    return SteerFrame(response_id=response_id, event_id=event_id, input=fields.get("input"), stray=stray)


def _read_body(fields: dict[str, Any], default_model: str | None) -> dict[str, Any]:
    body = fields.get("response")
    if isinstance(body, dict):
        stray = next((name for name in _INSIDE if fields.get(name) is not None), None)
        if stray is not None:
            raise InvalidRequest(
                f"'{stray}' stands beside 'response'; put it into it.", code="invalid_value", param=stray
            )
        if fields.get("generate") is not None:
            body["generate"] = fields["generate"]
    elif body is not None:
        raise InvalidRequest(
            f"Invalid type for 'response': expected an object, got {json_type(body)}.",
            code="invalid_type",
            param="response",
        )
    else:
        body = {name: value for name, value in fields.items() if name not in _ROUTING}
    body["stream"] = True
    body.pop("stream_options", None)
    if body.get("model") is None and default_model is not None:
        body["model"] = default_model
    return body


def _read_trace(body: dict[str, Any]) -> Mapping[str, str]:
    """Return the trace context among a create's client metadata, where clients put what they cannot send as headers."""
    metadata = body.get("client_metadata")
    if not isinstance(metadata, dict):
        return {}
    found = {
        name: value
        for name in _TRACE_HEADERS
        if isinstance(value := metadata.get(_HEADER_PREFIX + name), str) and _HEADER_VALUE.fullmatch(value)
    }
    return found if "traceparent" in found else {}


def _describe(kind: Any) -> str:
    if isinstance(kind, str):
        return f"Events of type '{kind[:64]}' are not supported."
    return f"The 'type' of a frame must be a string, not {json_type(kind)}."


def _unsupported_event(what: str, param: str | None = None, hint: str = _TAKEN) -> InvalidRequest:
    return InvalidRequest(f"{what} {hint}", code="unsupported_event", param=param)


def _invalid_stream_id() -> InvalidRequest:
    return InvalidRequest(
        "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters, "
        "numbers, underscores, hyphens, and periods.",
        code="invalid_stream_id",
        param="stream_id",
    )
