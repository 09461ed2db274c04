"""The response object, with every field a client may rely on."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field, structs

from gateway.protocol import codec

_NO_OUTPUT = b'"output":[]'


class InputDetails(Struct, kw_only=True):
    """Where the input tokens came from."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(Struct, kw_only=True):
    """What the output tokens were spent on."""

    reasoning_tokens: int = 0


class Usage(Struct, kw_only=True):
    """Tokens of one response, summed over its rounds."""

    input_tokens: int = 0
    input_tokens_details: InputDetails = field(default_factory=InputDetails)
    output_tokens: int = 0
    output_tokens_details: OutputDetails = field(default_factory=OutputDetails)
    total_tokens: int = 0


class IncompleteDetails(Struct, kw_only=True):
    """Why a response is incomplete."""

    reason: str


class ResponseError(Struct, kw_only=True):
    """Why a response failed; `resource` and `limit` (bytes) name a limit by its config key."""

    code: str
    message: str
    param: str | UnsetType | None = UNSET
    type: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET


class ConversationRef(Struct, kw_only=True):
    """The conversation a response belongs to."""

    id: str


class Response(Struct, kw_only=True):
    """A response as clients see it; fields without a value are explicit nulls."""

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: Any = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str
    output: list[Any] = field(default_factory=list)
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    conversation: ConversationRef | None = None
    presence_penalty: float = 0
    frequency_penalty: float = 0
    prompt_cache_key: str | None = None
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: dict[str, Any] = field(default_factory=dict)
    tool_choice: Any = "auto"
    tools: list[Any] = field(default_factory=list)
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: str = "disabled"
    usage: Usage | None = None
    user: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)


class EncodedResponse:
    """A finished response as JSON, each part of it encoded once: for the client, for storage and for what continues it.

    Args:
        response: the response.

    Attributes:
        response: the response.
        empty: its JSON with nothing in `output`.
        items: the JSON of each item of its output.
    """

    __slots__ = ("empty", "items", "response")

    def __init__(self, response: Response) -> None:
        self.response = response
        self.empty = codec.encode(structs.replace(response, output=[]))
        self.items = [codec.encode(item) for item in response.output]

    def join(self) -> bytes:
        """Return the JSON of the whole response."""
        # What stands before the output is flat, and quotes inside its texts are escaped.
        head, _, tail = self.empty.partition(_NO_OUTPUT)
        return b'%b"output":[%b]%b' % (head, b",".join(self.items), tail)


class DeletedResponse(Struct, kw_only=True):
    """That a stored response is gone."""

    id: str
    object: str = "response"
    deleted: bool = True


class ItemList(Struct, kw_only=True):
    """One page of items; `last_id` is where the next one begins, null when the page is empty."""

    object: str = "list"
    data: list[Any]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Model(Struct, kw_only=True):
    """A model that can be asked for; inference servers add members of their own."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "upstream"


class ModelList(Struct, kw_only=True):
    """Every model that can be asked for."""

    object: str = "list"
    data: list[Any]


class CompactedWindow(Struct, kw_only=True):
    """A conversation made shorter: the input of one that goes on from there.

    Attributes:
        id: names nothing that is stored.
        created_at: Unix seconds.
        output: the user's messages, a compaction item, and calls that still wait for their outputs.
        usage: the tokens of the inference that made the note.
    """

    id: str
    object: str = "response.compaction"
    created_at: int
    output: list[Any]
    usage: Usage


class InputTokens(Struct, kw_only=True):
    """How long a request is for the model.

    Attributes:
        input_tokens: as the inference server counts them.
        estimated: there only where the server cannot say, or does not know of tools that the gateway runs.
    """

    object: str = "response.input_tokens"
    input_tokens: int
    estimated: bool | UnsetType = UNSET


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def read_usage(value: Any) -> Usage | None:
    """Return the token counts of an upstream's `usage` object, its own extensions dropped; None when it has none."""
    if not isinstance(value, dict):
        return None
    given = value.get("input_tokens_details")
    inputs: dict[str, Any] = given if isinstance(given, dict) else {}
    given = value.get("output_tokens_details")
    outputs: dict[str, Any] = given if isinstance(given, dict) else {}
    used, made = _count(value.get("input_tokens")), _count(value.get("output_tokens"))
    return Usage(
        input_tokens=used,
        input_tokens_details=InputDetails(
            cached_tokens=_count(inputs.get("cached_tokens")),
            cache_write_tokens=_count(inputs.get("cache_write_tokens")),
        ),
        output_tokens=made,
        output_tokens_details=OutputDetails(reasoning_tokens=_count(outputs.get("reasoning_tokens"))),
        total_tokens=_count(value.get("total_tokens")) or used + made,
    )


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """Return the sum of two rounds' usage; a round that reported none adds nothing."""
    if one is None or other is None:
        return one or other
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=one.input_tokens_details.cached_tokens + other.input_tokens_details.cached_tokens,
            cache_write_tokens=one.input_tokens_details.cache_write_tokens
            + other.input_tokens_details.cache_write_tokens,
        ),
        output_tokens=one.output_tokens + other.output_tokens,
        output_tokens_details=OutputDetails(
            reasoning_tokens=one.output_tokens_details.reasoning_tokens + other.output_tokens_details.reasoning_tokens
        ),
        total_tokens=one.total_tokens + other.total_tokens,
    )
