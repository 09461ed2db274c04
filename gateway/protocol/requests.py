"""A create request: read, checked, and turned into what the engine is asked and what the client is told.

Every parameter is forwarded, emulated here, or refused by name; none is dropped silently.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from gateway.protocol import codec
from gateway.protocol.agents.asked import AgentsPolicy, AgentsRequest, read_agents
from gateway.protocol.choice import Offer
from gateway.protocol.compaction import read_threshold, refuse_compaction, split_trigger
from gateway.protocol.conversations import Metadata, read_conversation_id
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.hosted_history import recall_hosted
from gateway.protocol.inputs import json_type, read_input
from gateway.protocol.mismatch import read_fields
from gateway.protocol.response import ConversationRef, Response
from gateway.protocol.tools import HostedTypes, Toolset, build_toolset, list_loaded

_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Positive = Annotated[int, Meta(ge=1)]


class RequestPolicy(Struct, frozen=True, kw_only=True):
    """What the operator decides about requests.

    Attributes:
        strict: unknown parameters are refused instead of forwarded.
        allow_fields: engine fields, normally the operator's own, that callers may set.
        remote_images: http(s) URLs of images and files are let through to the engine.
        max_tools: most entries of `tools`, those inside namespaces included.
        max_input_items: most items of `input`.
        max_depth: deepest nesting of the body.
        compact_threshold: tokens from which a request's window is compacted where it names no number itself; None where
            there is no compaction.
        agents: what is decided about trees of agents; None where there are none.
    """

    strict: bool = False
    allow_fields: frozenset[str] = frozenset()
    remote_images: bool = False
    max_tools: int = 1024
    max_input_items: int = 10_000
    max_depth: int = 100
    compact_threshold: int | None = None
    agents: AgentsPolicy | None = None


class CreateFields(Struct, kw_only=True):
    """The documented parameters of a create request; null means absent everywhere."""

    model: str | None = None
    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    background_options: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: _Positive | None = None
    max_output_tokens: _Positive | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    include: list[str] | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[Any] | None = None
    metadata: Metadata | None = None
    prompt: Any = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Any = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    user: str | None = None
    multi_agent: dict[str, Any] | None = None
    generate: bool | None = None
    stream_id: str | None = None


# Sent to the engine as the caller wrote them.
_FORWARDED = frozenset(
    {
        "instructions", "temperature", "top_p", "max_output_tokens", "top_logprobs", "presence_penalty",
        "frequency_penalty", "include", "reasoning", "text", "truncation", "prompt_cache_key", "safety_identifier",
        "service_tier", "user", "prompt_cache_options", "prompt_cache_retention",
    }
)  # fmt: skip

# Told in the response likewise; of those that were not given it has the defaults.
_ECHOED = frozenset(
    {
        "instructions", "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "previous_response_id",
        "presence_penalty", "frequency_penalty", "prompt_cache_key", "safety_identifier", "store", "temperature",
        "tool_choice", "top_logprobs", "top_p", "truncation", "user", "metadata",
    }
)  # fmt: skip

# Fields of the engine through which one caller could reach into another's requests, or the operator's.
OPERATORS_FIELDS = frozenset(
    {
        "request_id", "priority", "cache_salt", "kv_transfer_params", "ec_transfer_params",
        "previous_input_messages", "enable_response_messages",
    }
)  # fmt: skip

_UNAVAILABLE: dict[str, str] = {
    "prompt": "Prompt templates are not available; send the instructions and input themselves.",
}
UNSUPPORTED: dict[str, str] = {
    **_UNAVAILABLE,
    "generate": "It exists on WebSocket connections only.",
    "stream_id": "It exists on WebSocket connections only.",
}
UNSUPPORTED_ON_WEBSOCKETS: dict[str, str] = {
    "background": "A response on a WebSocket belongs to its connection; send the request without it.",
    **_UNAVAILABLE,
    "stream_id": "It belongs beside the type of the frame, not into 'response'.",
}


class CreateRequest(Struct, frozen=True, kw_only=True):
    """A checked create request.

    Attributes:
        fields: the documented parameters.
        given: the names in the request, in their order; all that have a value are there.
        extras: fields this gateway does not know, forwarded to the engine.
        items: the new input items, normalised.
        toolset: what the tools become.
        generate: the model is to be asked; False for a warm-up, which only prepares what a later create continues.
        conversation_id: the conversation it goes on with and adds to, or None.
        threshold: tokens from which the window is compacted, or None.
        compacts: the window is to be compacted now, and nothing else.
        agents: what it wants of a tree of agents; None where a single one answers, unless it continues a tree.
    """

    fields: CreateFields
    given: Sequence[str]
    extras: dict[str, Any]
    items: list[dict[str, Any]]
    toolset: Toolset
    generate: bool = True
    conversation_id: str | None = None
    threshold: int | None = None
    compacts: bool = False
    agents: AgentsRequest | None = None

    @property
    def model(self) -> str:
        """The model asked for."""
        return self.fields.model or ""

    @property
    def store(self) -> bool:
        """Whether the response is to be kept; true unless the caller says otherwise."""
        return self.fields.store is not False

    @property
    def stream(self) -> bool:
        """Whether the caller wants an event stream."""
        return bool(self.fields.stream)

    @property
    def background(self) -> bool:
        """Whether the response is made on its own, whoever listens."""
        return bool(self.fields.background)

    def carry(self, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a history in the engine's form."""
        return self.toolset.carriage.carry(recall_hosted(history))


def read_request(body: bytes, policy: RequestPolicy) -> CreateRequest:
    """Return the request a body holds.

    Raises:
        InvalidRequest: `invalid_json`, or the parameter at fault with what is expected of it.
    """
    return check_request(read_object(body, policy.max_depth), policy)


def check_request(
    raw: dict[str, Any],
    policy: RequestPolicy,
    *,
    on_websocket: bool = False,
    agents_header: bool = False,
    types: HostedTypes | None = None,
) -> CreateRequest:
    """Return the request a decoded object holds, whatever transport brought it.

    Args:
        raw: the parameters by name.
        policy: what the operator decided.
        on_websocket: a WebSocket brought it, where warm-ups exist.
        agents_header: it, or the upgrade of its WebSocket, came with the beta header of trees of agents.
        types: the tools that the gateway runs itself, if there are any.

    Raises:
        InvalidRequest: names the parameter at fault.
    """
    fields = read_fields(raw, CreateFields)
    agents = None
    if fields.multi_agent is not None:
        agents = read_agents(fields, fields.multi_agent, policy.agents, has_header=agents_header)
    _refuse_unsupported(raw, UNSUPPORTED_ON_WEBSOCKETS if on_websocket else UNSUPPORTED)
    if fields.background and fields.store is False:
        raise _nowhere_to_read()
    extras = {} if _KNOWN.issuperset(raw) else _read_extras(raw, policy)
    generate = not (on_websocket and _is_warm_up(fields))
    if not fields.model:
        raise InvalidRequest("Missing required parameter: 'model'.", code="missing_required_parameter", param="model")
    conversation_id = None
    if fields.conversation is not None:
        conversation_id = read_conversation_id(fields.conversation, fields.previous_response_id)
    if not fields.input and fields.previous_response_id is None and conversation_id is None and generate:
        raise _nothing_to_say()
    given, compacts = split_trigger(fields.input)
    if (fields.context_management or compacts) and policy.compact_threshold is None:
        raise refuse_compaction("input" if compacts else "context_management")
    items = read_input(given, max_items=policy.max_input_items, remote_images=policy.remote_images)
    return CreateRequest(
        fields=fields,
        given=list(raw),
        extras=extras,
        items=items,
        toolset=build_toolset(
            fields.tools,
            fields.tool_choice,
            max_tools=policy.max_tools,
            types=types,
            loaded=list_loaded(items),
            continued=fields.previous_response_id is not None or fields.conversation is not None,
        ),
        generate=generate,
        conversation_id=conversation_id,
        # Agents have a default of their own, which depends on the model.
        threshold=read_threshold(fields.context_management, None if agents else policy.compact_threshold),
        compacts=compacts and generate,
        agents=agents,
    )


def load_tools(
    request: CreateRequest, items: list[dict[str, Any]], policy: RequestPolicy, *, types: HostedTypes | None = None
) -> CreateRequest:
    """Return the request with all tools that its effective input has loaded, itself if that is none.

    Raises:
        InvalidRequest: they are too many, or `tool_choice` asks for one that is still not offered.
    """
    loaded = list_loaded(items)
    if not loaded and not request.toolset.unmet:
        return request
    tools, choice = request.fields.tools, request.fields.tool_choice
    toolset = build_toolset(tools, choice, max_tools=policy.max_tools, types=types, loaded=loaded)
    return structs.replace(request, toolset=toolset)


def build_response(request: CreateRequest, *, response_id: str, created_at: int) -> Response:
    """Return the response object as it is created: in progress, with the request's parameters echoed."""
    fields = request.fields
    # The fewer keywords the better: for each of them, a Struct's making looks through all of its fields.
    response = Response(id=response_id, created_at=created_at, status="in_progress", model=request.model)
    for name in request.given:
        if name in _ECHOED and (value := getattr(fields, name)) is not None:
            setattr(response, name, value)
    response.background = request.background
    response.reasoning = {"effort": None, "summary": None}
    if fields.reasoning:
        response.reasoning |= fields.reasoning
    response.text = {"format": {"type": "text"}}
    if fields.text:
        response.text |= {key: value for key, value in fields.text.items() if value is not None}
    response.tools = request.toolset.echo
    if request.conversation_id is not None:
        response.conversation = ConversationRef(id=request.conversation_id)
    return response


def build_upstream_body(
    request: CreateRequest, items: list[dict[str, Any]], offer: Offer, *, model: str, stream: bool
) -> dict[str, Any]:
    """Return the engine's request: the whole effective input, never stored on the engine's side.

    Args:
        request: what the caller asked for.
        items: the effective input in the engine's form.
        offer: the tools of this inference.
        model: the model's name there.
        stream: whether it is to answer with events.
    """
    body: dict[str, Any] = dict(request.extras)
    body["model"] = model
    for name in request.given:
        if name in _FORWARDED and (value := getattr(request.fields, name)) is not None:
            body[name] = value
    if offer.tools:
        body["tools"] = offer.tools
        body["tool_choice"] = offer.choice
        if request.fields.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.fields.parallel_tool_calls
    body["stream"] = stream
    body["store"] = False
    body["input"] = items
    return body


def read_object(body: bytes, max_depth: int) -> dict[str, Any]:
    """Return the JSON object a body holds.

    Raises:
        InvalidRequest: `invalid_json`.
    """
    value = read_json(body, max_depth, what="body")
    if not isinstance(value, dict):
        raise InvalidRequest(f"The body must be a JSON object, not {json_type(value)}.", code="invalid_json")
    return value


def read_json(text: bytes, max_depth: int, *, what: str) -> Any:
    """Return the value of a JSON text; `what` names in messages what holds it.

    Raises:
        InvalidRequest: `invalid_json`.
    """
    try:
        return codec.decode(text, max_depth=max_depth)
    except codec.TooDeepError as error:
        raise InvalidRequest(f"The {what} is {error}.", code="invalid_json") from None
    except ValueError as error:
        raise InvalidRequest(f"The {what} is not valid JSON: {error}.", code="invalid_json") from None


def _nowhere_to_read() -> InvalidRequest:
    return InvalidRequest(
        "A background response is read from where it is stored; send store: true, or leave 'store' out.",
        code="invalid_value",
        param="store",
    )


def _nothing_to_say() -> InvalidRequest:
    return InvalidRequest(
        "Missing required parameter: 'input'. It may be empty only with 'previous_response_id' or 'conversation'.",
        code="missing_required_parameter",
        param="input",
    )


def _is_warm_up(fields: CreateFields) -> bool:
    options = fields.prompt_cache_options
    prewarm = options.get("prewarm") if isinstance(options, dict) else None
    return prewarm if isinstance(prewarm, bool) else fields.generate is False


def _refuse_unsupported(raw: dict[str, Any], unsupported: dict[str, str]) -> None:
    if unsupported.keys().isdisjoint(raw):
        return
    for name, value in raw.items():
        if name in unsupported and value is not None and value is not False and value != []:
            raise InvalidRequest(
                f"'{name}' is not supported. {unsupported[name]}", code="unsupported_parameter", param=name
            )


def _read_extras(raw: dict[str, Any], policy: RequestPolicy) -> dict[str, Any]:
    extras = {name: value for name, value in raw.items() if name not in _KNOWN and value is not None}
    for name in extras:
        shown = name[:64]
        if name in OPERATORS_FIELDS and name not in policy.allow_fields:
            raise InvalidRequest(
                f"'{shown}' is the operator's to set; it is accepted when [upstream] allow_fields lists it.",
                code="unsupported_parameter",
                param=shown,
            )
        if policy.strict and name not in policy.allow_fields:
            raise InvalidRequest(f"Unknown parameter: '{shown}'.", code="unknown_parameter", param=shown)
    return extras


_KNOWN: frozenset[str] = frozenset(CreateFields.__struct_fields__)
