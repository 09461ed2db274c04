"""Every event a client can receive, as tagged Structs; names and fields are the API's own."""

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, ValidationError, field

from gateway.protocol import codec
from gateway.protocol.errors import UpstreamError
from gateway.protocol.items import AgentRef
from gateway.protocol.response import Response


class Event(Struct, tag_field="type", kw_only=True, gc=False):
    """Base of all events; `sequence_number` counts from 0 within one response, `agent` is known in a tree of agents."""

    sequence_number: int = -1
    agent: AgentRef | UnsetType = UNSET


class ResponseEvent(Event, kw_only=True):
    """Carries a snapshot of the response, encoded already where the same one is told or stored as well."""

    response: Response | Raw


class ItemEvent(Event, kw_only=True):
    """Belongs to one output item."""

    item_id: str
    output_index: int


class ItemDelta(ItemEvent, kw_only=True):
    """More of one item's text, arguments or code."""

    delta: str


class PartEvent(ItemEvent, kw_only=True):
    """Belongs to one content part of an item."""

    content_index: int


class SummaryEvent(ItemEvent, kw_only=True):
    """Belongs to one summary part of a reasoning item."""

    summary_index: int


class ShellEvent(Event, kw_only=True):
    """Belongs to one command of a shell call."""

    output_index: int
    command_index: int


class ErrorDetail(Struct, kw_only=True):
    """The nested half of an `error` event."""

    type: str
    code: str
    message: str
    param: str | None = None


class ErrorEvent(Event, tag="error", kw_only=True):
    """A failure without a response object: flat fields for strict parsers, `error` for those that read it nested."""

    code: str | None = None
    message: str
    param: str | None = None
    error: ErrorDetail | UnsetType = UNSET


# fmt: off
# ---------------------------------------------------------------- the response
class ResponseCreated(ResponseEvent, tag="response.created"): ...
class ResponseQueued(ResponseEvent, tag="response.queued"): ...
class ResponseInProgress(ResponseEvent, tag="response.in_progress"): ...
class ResponseCompleted(ResponseEvent, tag="response.completed"): ...
class ResponseIncomplete(ResponseEvent, tag="response.incomplete"): ...
class ResponseFailed(ResponseEvent, tag="response.failed"): ...
# fmt: on


# ---------------------------------------------------------------- items and parts
class OutputItemAdded(Event, tag="response.output_item.added", kw_only=True):
    output_index: int
    item: Any


class OutputItemDone(Event, tag="response.output_item.done", kw_only=True):
    output_index: int
    item: Any


class ContentPartAdded(PartEvent, tag="response.content_part.added", kw_only=True):
    part: Any


class ContentPartDone(PartEvent, tag="response.content_part.done", kw_only=True):
    part: Any


class OutputTextDelta(PartEvent, tag="response.output_text.delta", kw_only=True):
    delta: str
    logprobs: list[Any] = field(default_factory=list)


class OutputTextDone(PartEvent, tag="response.output_text.done", kw_only=True):
    text: str
    logprobs: list[Any] = field(default_factory=list)


class AnnotationAdded(PartEvent, tag="response.output_text.annotation.added", kw_only=True):
    annotation_index: int
    annotation: Any = None


class RefusalDelta(PartEvent, tag="response.refusal.delta", kw_only=True):
    delta: str


class RefusalDone(PartEvent, tag="response.refusal.done", kw_only=True):
    refusal: str


class ReasoningTextDelta(PartEvent, tag="response.reasoning_text.delta", kw_only=True):
    delta: str


class ReasoningTextDone(PartEvent, tag="response.reasoning_text.done", kw_only=True):
    text: str


class SummaryPartAdded(SummaryEvent, tag="response.reasoning_summary_part.added", kw_only=True):
    part: Any


class SummaryPartDone(SummaryEvent, tag="response.reasoning_summary_part.done", kw_only=True):
    part: Any
    status: str | UnsetType = UNSET


class SummaryTextDelta(SummaryEvent, tag="response.reasoning_summary_text.delta", kw_only=True):
    delta: str


class SummaryTextDone(SummaryEvent, tag="response.reasoning_summary_text.done", kw_only=True):
    text: str


class FunctionArgumentsDelta(ItemDelta, tag="response.function_call_arguments.delta", kw_only=True):
    pass


class FunctionArgumentsDone(ItemEvent, tag="response.function_call_arguments.done", kw_only=True):
    arguments: str


class CustomInputDelta(ItemDelta, tag="response.custom_tool_call_input.delta", kw_only=True):
    pass


class CustomInputDone(ItemEvent, tag="response.custom_tool_call_input.done", kw_only=True):
    input: str


# ---------------------------------------------------------------- hosted tools
class McpArgumentsDelta(ItemDelta, tag="response.mcp_call_arguments.delta", kw_only=True):
    pass


class McpArgumentsDone(ItemEvent, tag="response.mcp_call_arguments.done", kw_only=True):
    arguments: str


class CodeDelta(ItemDelta, tag="response.code_interpreter_call_code.delta", kw_only=True):
    pass


class CodeDone(ItemEvent, tag="response.code_interpreter_call_code.done", kw_only=True):
    code: str


class PartialImage(ItemEvent, tag="response.image_generation_call.partial_image", kw_only=True):
    partial_image_b64: str
    partial_image_index: int
    background: str | UnsetType = UNSET
    output_format: str | UnsetType = UNSET
    quality: str | UnsetType = UNSET
    size: str | UnsetType = UNSET


# fmt: off
class CodeInProgress(ItemEvent, tag="response.code_interpreter_call.in_progress"): ...
class CodeInterpreting(ItemEvent, tag="response.code_interpreter_call.interpreting"): ...
class CodeCompleted(ItemEvent, tag="response.code_interpreter_call.completed"): ...
class Compacting(ItemEvent, tag="response.compaction.compacting"): ...
class FileSearchInProgress(ItemEvent, tag="response.file_search_call.in_progress"): ...
class FileSearchSearching(ItemEvent, tag="response.file_search_call.searching"): ...
class FileSearchCompleted(ItemEvent, tag="response.file_search_call.completed"): ...
class ImageInProgress(ItemEvent, tag="response.image_generation_call.in_progress"): ...
class ImageGenerating(ItemEvent, tag="response.image_generation_call.generating"): ...
class ImageCompleted(ItemEvent, tag="response.image_generation_call.completed"): ...
class McpCallInProgress(ItemEvent, tag="response.mcp_call.in_progress"): ...
class McpCallCompleted(ItemEvent, tag="response.mcp_call.completed"): ...
class McpCallFailed(ItemEvent, tag="response.mcp_call.failed"): ...
class McpListInProgress(ItemEvent, tag="response.mcp_list_tools.in_progress"): ...
class McpListCompleted(ItemEvent, tag="response.mcp_list_tools.completed"): ...
class McpListFailed(ItemEvent, tag="response.mcp_list_tools.failed"): ...
class WebSearchInProgress(ItemEvent, tag="response.web_search_call.in_progress"): ...
class WebSearchSearching(ItemEvent, tag="response.web_search_call.searching"): ...
class WebSearchCompleted(ItemEvent, tag="response.web_search_call.completed"): ...
# fmt: on


class ShellCommandAdded(ShellEvent, tag="response.shell_call_command.added", kw_only=True):
    command: str


class ShellCommandDelta(ShellEvent, tag="response.shell_call_command.delta", kw_only=True):
    delta: str
    obfuscation: str | UnsetType = UNSET


class ShellCommandDone(ShellEvent, tag="response.shell_call_command.done", kw_only=True):
    command: str


class ShellOutputDelta(ShellEvent, tag="response.shell_call_output_content.delta", kw_only=True):
    item_id: str
    delta: Any


class ShellOutputDone(ShellEvent, tag="response.shell_call_output_content.done", kw_only=True):
    item_id: str
    output: Any


# ---------------------------------------------------------------- audio
class AudioDelta(Event, tag="response.audio.delta", kw_only=True):
    delta: str


class AudioDone(Event, tag="response.audio.done", kw_only=True):
    pass


class AudioTranscriptDelta(Event, tag="response.audio.transcript.delta", kw_only=True):
    delta: str


class AudioTranscriptDone(Event, tag="response.audio.transcript.done", kw_only=True):
    pass


# ---------------------------------------------------------------- controls of a running response
class ControlError(Struct, kw_only=True):
    """Why a control was refused; only steers name a type."""

    type: str | UnsetType = UNSET
    code: str
    message: str


class Steer(Struct, kw_only=True):
    """A steer that was sent; one that was refused at once has no id, and every refused one carries its input."""

    id: str | UnsetType = UNSET
    previous_response_id: str
    input: Any = UNSET


class ControlEvent(Event, kw_only=True):
    """What became of a control that a client sent over a WebSocket, numbered among the events of its response."""


class InjectCreated(ControlEvent, tag="response.inject.created", kw_only=True):
    response_id: str


class InjectFailed(ControlEvent, tag="response.inject.failed", kw_only=True):
    response_id: str
    input: Any
    error: ControlError


class SteerAccepted(ControlEvent, tag="response.steer.accepted", kw_only=True):
    steer: Steer


class SteerPending(ControlEvent, tag="response.steer.pending", kw_only=True):
    steer: Steer
    reason: str = "waiting_for_required_input"
    required_input: list[Any]


class SteerFailed(ControlEvent, tag="response.steer.failed", kw_only=True):
    steer: Steer
    error: ControlError


def tag_of(kind: type[Event]) -> str:
    """Return the `type` an event class has on the wire."""
    return str(kind.__struct_config__.tag)


def _collect(base: type[Event]) -> dict[str, type[Event]]:
    found: dict[str, type[Event]] = {}
    for kind in base.__subclasses__():
        if kind.__subclasses__():
            found |= _collect(kind)
        else:
            found[tag_of(kind)] = kind
    return found


CONTROLS: dict[str, type[Event]] = _collect(ControlEvent)
CATALOGUE: dict[str, type[Event]] = {name: kind for name, kind in _collect(Event).items() if name not in CONTROLS}
NAMES: dict[type[Event], bytes] = {kind: name.encode() for name, kind in [*CATALOGUE.items(), *CONTROLS.items()]}

# Events of tools the upstream ran itself: they pass through with our ids, whatever else they carry.
_HOSTED_PREFIXES = (
    "response.web_search_call.",
    "response.file_search_call.",
    "response.mcp_",
    "response.shell_call_",
    "response.code_interpreter_call",
    "response.image_generation_call.",
)
HOSTED: frozenset[str] = frozenset(name for name in CATALOGUE if name.startswith(_HOSTED_PREFIXES))


HostedEvent = ItemEvent | ShellEvent


def read_hosted(fields: dict[str, Any], item_id: str) -> HostedEvent:
    """Return a hosted tool's event with our item id; its index is set when it is told.

    Raises:
        UpstreamError: a required field is missing or of the wrong type.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    own = {**given, "item_id": item_id, "output_index": -1, "sequence_number": -1}
    try:
        event: HostedEvent = codec.convert(own, CATALOGUE[fields["type"]])
    except ValidationError as error:
        raise UpstreamError(f"The upstream sent a malformed event: {error}.", code="upstream_invalid_event") from error
    return event
