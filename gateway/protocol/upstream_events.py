"""What engines send: a lenient twin of the client events, and the one parser that turns data into it.

Every field may be missing or null, unknown fields are ignored. Events of the hot path are Structs; what is not among
them falls back to a dict: hosted tool events pass through, failures are recognised in each of their spellings,
anything else is `Unknown` and is dropped by the turn.
"""

from collections.abc import Callable
from typing import Any

from msgspec import DecodeError, Struct, ValidationError, field
from msgspec.json import Decoder

from gateway.protocol import codec
from gateway.protocol.errors import UpstreamError
from gateway.protocol.events import HOSTED
from gateway.protocol.sse import DONE_DATA

# What an engine says of its own failure is repeated to the client no longer than this, in characters.
MAX_ERROR_MESSAGE = 4096
MAX_ERROR_CODE = 64


class UpstreamEvent(Struct, tag_field="type", kw_only=True, gc=False):
    """Base of what the parser returns."""


class Located(UpstreamEvent):
    """Names an item by the engine's own index and id; either may be missing."""

    item_id: str | None = None
    output_index: int | None = None


class PartLocated(Located):
    """Names a content part, the first when the engine does not say."""

    index: int | None = field(default=None, name="content_index")


class SummaryLocated(Located):
    """Names a summary part, the first when the engine does not say."""

    index: int | None = field(default=None, name="summary_index")


# fmt: off
class Created(UpstreamEvent, tag="response.created"): ...
class Queued(UpstreamEvent, tag="response.queued"): ...
class InProgress(UpstreamEvent, tag="response.in_progress"): ...
# fmt: on


class Snapshot(Struct, kw_only=True, gc=False):
    """What is wanted of an engine's finished response, as it came; the rest, all that it echoes, is not decoded."""

    id: Any = None
    model: Any = None
    status: Any = None
    output: Any = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None


class Ended(UpstreamEvent):
    """The engine's terminal event; its `response` decides over the event's name."""

    response: Snapshot | None = None


# fmt: off
class Completed(Ended, tag="response.completed"): ...
class Incomplete(Ended, tag="response.incomplete"): ...
class Failed(Ended, tag="response.failed"): ...
class Cancelled(Ended, tag="response.cancelled"): ...
# fmt: on


class ItemAdded(UpstreamEvent, tag="response.output_item.added"):
    item: dict[str, Any] = field(default_factory=dict)
    output_index: int | None = None


class ItemDone(UpstreamEvent, tag="response.output_item.done"):
    item: dict[str, Any] = field(default_factory=dict)
    output_index: int | None = None


class PartAdded(PartLocated, tag="response.content_part.added"):
    part: dict[str, Any] | None = None


class PartDone(PartLocated, tag="response.content_part.done"):
    part: dict[str, Any] | None = None


class ReasoningPartAdded(PartLocated, tag="response.reasoning_part.added"):
    part: dict[str, Any] | None = None


class ReasoningPartDone(PartLocated, tag="response.reasoning_part.done"):
    part: dict[str, Any] | None = None


class TextDelta(PartLocated, tag="response.output_text.delta"):
    delta: str = ""
    logprobs: list[Any] | None = None


class TextDone(PartLocated, tag="response.output_text.done"):
    text: str | None = None
    logprobs: list[Any] | None = None


class AnnotationAdded(PartLocated, tag="response.output_text.annotation.added"):
    annotation: Any = None


class RefusalDelta(PartLocated, tag="response.refusal.delta"):
    delta: str = ""


class RefusalDone(PartLocated, tag="response.refusal.done"):
    refusal: str | None = None


class ReasoningDelta(PartLocated, tag="response.reasoning_text.delta"):
    delta: str = ""


class ReasoningDone(PartLocated, tag="response.reasoning_text.done"):
    text: str | None = None


class SummaryPartAdded(SummaryLocated, tag="response.reasoning_summary_part.added"):
    part: dict[str, Any] | None = None


class SummaryPartDone(SummaryLocated, tag="response.reasoning_summary_part.done"):
    part: dict[str, Any] | None = None


class SummaryDelta(SummaryLocated, tag="response.reasoning_summary_text.delta"):
    delta: str = ""


class SummaryDone(SummaryLocated, tag="response.reasoning_summary_text.done"):
    text: str | None = None


class ArgumentsDelta(Located, tag="response.function_call_arguments.delta"):
    delta: str = ""


class ArgumentsDone(Located, tag="response.function_call_arguments.done"):
    arguments: str | None = None
    name: str | None = None


class InputDelta(Located, tag="response.custom_tool_call_input.delta"):
    delta: str = ""


class InputDone(Located, tag="response.custom_tool_call_input.done"):
    input: str | None = None


class Hosted(Located, tag="hosted"):
    """An event of a tool the engine ran itself; `fields` is the whole event."""

    kind: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


class Failure(UpstreamEvent, tag="failure"):
    """An `error` event, flat or nested, or a bare error object."""

    message: str
    code: str


class Unknown(UpstreamEvent, tag="unknown"):
    """An event outside the catalogue, for example a heartbeat."""

    kind: str


_Known = (
    Created | Queued | InProgress | Completed | Incomplete | Failed | Cancelled | ItemAdded | ItemDone
    | PartAdded | PartDone | ReasoningPartAdded | ReasoningPartDone | TextDelta | TextDone | AnnotationAdded
    | RefusalDelta | RefusalDone | ReasoningDelta | ReasoningDone | SummaryPartAdded | SummaryPartDone
    | SummaryDelta | SummaryDone | ArgumentsDelta | ArgumentsDone | InputDelta | InputDone
)  # fmt: skip

_decode: Callable[[bytes], UpstreamEvent] = Decoder(_Known).decode
# Some engines send this to keep the line open, or to end it.
_NO_EVENTS = (b"", DONE_DATA)
# What is no longer cannot open and close too many brackets.
_SHALLOW_BYTES = 2 * codec.MAX_DEPTH


def parse(name: bytes, data: bytes) -> UpstreamEvent | None:
    """Return the event of one data payload, None if it is none and is not meant to be.

    Args:
        name: the stream's `event:` field, used when the data has no type.
        data: what it carries.

    Raises:
        UpstreamError: the data is not a JSON object, is nested too deeply, or a known event is malformed.
    """
    try:
        if len(data) > _SHALLOW_BYTES:
            codec.check_depth(data)
        return _decode(data)
    except codec.TooDeepError as error:
        raise UpstreamError(f"The upstream sent an event {error}.", code="upstream_invalid_event") from None
    except (ValidationError, DecodeError):
        return _classify(name, data)


def _classify(name: bytes, data: bytes) -> UpstreamEvent | None:
    if data.strip() in _NO_EVENTS:
        return None
    try:
        fields = codec.decode(data)
    except ValueError as error:
        raise UpstreamError("The upstream sent an event that is not JSON.", code="upstream_invalid_event") from error
    if not isinstance(fields, dict):
        raise UpstreamError("The upstream sent an event that is not a JSON object.", code="upstream_invalid_event")
    kind = fields.get("type")
    if not isinstance(kind, str) or not kind:
        kind = "error" if fields.get("error") else name.decode("utf-8", "replace")
        fields["type"] = kind
    if kind == "error" or (kind not in _TAGS and isinstance(fields.get("error"), dict)):
        return _read_failure(fields)
    if kind in HOSTED:
        return Hosted(
            kind=kind,
            fields=fields,
            item_id=text_of(fields.get("item_id")),
            output_index=_index(fields.get("output_index")),
        )
    if kind not in _TAGS:
        return Unknown(kind=kind)
    try:
        given = {name: value for name, value in fields.items() if value is not None}
        if isinstance(given.get("response"), dict):
            given["response"] = read_snapshot(given["response"])
        return codec.convert(given, _Known)  # type: ignore[no-any-return]
    except ValidationError as error:
        raise UpstreamError(
            f"The upstream sent a malformed {kind} event: {error}.", code="upstream_invalid_event"
        ) from error


def read_snapshot(response: dict[str, Any]) -> Snapshot:
    """Return what is wanted of a response object."""
    return Snapshot(**{name: response.get(name) for name in Snapshot.__struct_fields__})


_TAGS: frozenset[str] = frozenset(str(kind.__struct_config__.tag) for kind in _Known.__args__)


def _read_failure(fields: dict[str, Any]) -> Failure:
    nested = fields.get("error")
    inner = nested if isinstance(nested, dict) else fields
    message = text_of(inner.get("message")) or text_of(fields.get("message")) or text_of(nested)
    return Failure(
        message=(message or "The upstream reported an error without a message.")[:MAX_ERROR_MESSAGE],
        code=read_code(inner.get("code")),
    )


def read_code(value: Any) -> str:
    """Return an engine's error code if it is one of ours to repeat, short text, else `server_error`."""
    return value if isinstance(value, str) and 0 < len(value) <= MAX_ERROR_CODE else "server_error"


def text_of(value: Any) -> str | None:
    """Return a field of an engine's object if it is text, else None."""
    return value if isinstance(value, str) else None


def _index(value: Any) -> int | None:
    return value if type(value) is int else None
