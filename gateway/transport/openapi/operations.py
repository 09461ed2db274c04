"""What each route takes and answers, besides what its path, method and documentation say."""

from collections.abc import Mapping

from gateway.protocol.agents.asked import BETA_TOKEN
from gateway.transport.openapi import failures
from gateway.transport.openapi.conversation_operations import CONVERSATION_OPERATIONS
from gateway.transport.openapi.operation import (
    DESCRIPTION,
    EVENT_STREAM,
    HTML,
    INCLUDE,
    JSON,
    MODELS,
    NO_MEDIA,
    OPERATION,
    PAGE,
    RESPONSES,
    Answer,
    Operation,
    answer_json,
    describe_query,
)
from gateway.transport.openapi.schemas import Schema, refer
from gateway.transport.paths import COMPACT_PATH, INPUT_TOKENS_PATH, RESPONSES_PATH


def _link(operation: str) -> Schema:
    return {"operationId": operation, "parameters": {"response_id": "$response.body#/id"}}


_STREAM = """\
With `stream: true` the answer is an event stream. Each event is one line `event: TYPE` and one line `data: JSON` with
the same `type`, and ends with an empty line; `sequence_number` counts from 0. Lines that begin with a colon are
keep-alives. The last event is `response.completed`, `response.incomplete` or `response.failed`, with the whole
response, or `error` where no response can be told. Then comes `data: [DONE]`, and the stream ends; one that ends
without it was cut off.

A response is stored before its last event is sent."""

_NOT_READY = "Not ready: the reasons, and when to ask again."
_REPLAY = (
    describe_query(
        "stream",
        # A word, as in any query, written in whatever case.
        {"type": "string", "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[01])?$", "default": "false"},
        "Read the events instead, of a response that was created with `background` and `stream`.",
    ),
    describe_query(
        "starting_after",
        {"type": "integer", "minimum": 0},
        "With `stream`: the sequence number of the event before the first one wanted.",
    ),
)
_CACHED = ("ETag", "Cache-Control")
_UNCHANGED = Answer(description="It is still the one whose ETag was sent.", media=NO_MEDIA, headers=_CACHED)
_IF_NONE_MATCH: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "ETag of the copy at hand.",
}
_BETA: Schema = {
    "name": "OpenAI-Beta",
    "in": "header",
    "schema": {"type": "string"},
    "description": f"Tokens separated by commas; `multi_agent` needs `{BETA_TOKEN.decode()}` among them.",
    "example": BETA_TOKEN.decode(),
}
_CHECKS: Schema = {"oneOf": [refer("Verdict"), refer("Report")]}

_PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

# Raw routes tell nobody their methods: method to operation, by path.
RAW_ROUTES: Mapping[str, Mapping[str, str]] = {
    RESPONSES_PATH: {"POST": "create_response", "GET": "open_websocket"},
    COMPACT_PATH: {"POST": "compact_conversation"},
    INPUT_TOKENS_PATH: {"POST": "count_tokens"},
}

# By the name of the handler.
OPERATIONS: Mapping[str, Operation] = {
    "create_response": Operation(
        summary="Make a response",
        description=_STREAM,
        tag=RESPONSES,
        body=refer("CreateRequest"),
        examples={
            "a text": {"model": "qwen3", "input": "Say hello."},
            "as a stream": {"model": "qwen3", "input": "Say hello.", "stream": True},
            "with a tool": {
                "model": "qwen3",
                "input": [{"role": "user", "content": "What is the weather in Paris?"}],
                "tools": [{"type": "function", "name": "get_weather", "parameters": _PLACE}],
            },
            "by several agents": {"model": "qwen3", "input": "Say hello.", "multi_agent": {"enabled": True}},
        },
        parameters=(_BETA,),
        answers={
            200: Answer(
                description="The response, whole or as a stream.",
                media={JSON: refer("Response"), EVENT_STREAM: refer("StreamEvent")},
                headers=("x-gateway-unsupported-tools",),
                links={
                    "retrieve": _link("retrieve_response"),
                    "cancel": _link("cancel_response"),
                    "delete": _link("delete_response"),
                    "input": _link("list_input_items"),
                },
            )
        },
        failures=failures.CREATE,
        refusals=True,
    ),
    "open_websocket": Operation(
        summary="Open a WebSocket",
        description=(
            "Upgrades to a WebSocket, on which responses are created by frames, several at once on lanes of their own. "
            "Frames are no part of this description."
        ),
        tag=RESPONSES,
        answers={},
        failures=failures.UPGRADE,
    ),
    "compact_conversation": Operation(
        summary="Make a conversation shorter",
        description=(
            "Has the model write a note of the conversation, and returns what is to be sent as `input` from then on: "
            "the user's messages, an item that holds the note sealed, and calls that still wait for their outputs. "
            "Nothing is stored, and the id continues nothing. Tools are not looked at."
        ),
        tag=RESPONSES,
        body=refer("CreateRequest"),
        examples={"a conversation": {"model": "qwen3", "input": [{"role": "user", "content": "Say hello."}]}},
        answers={200: answer_json("CompactedWindow", "The shorter conversation.")},
        failures=failures.CREATE,
        refusals=True,
    ),
    "count_tokens": Operation(
        summary="Count the tokens of a request",
        description="Says how many tokens the same body would have for the model if a response were made of it.",
        tag=RESPONSES,
        body=refer("CreateRequest"),
        examples={"a text": {"model": "qwen3", "input": "Say hello."}},
        answers={200: answer_json("InputTokens", "The number.")},
        failures=failures.CREATE,
        refusals=True,
    ),
    "retrieve_response": Operation(
        summary="Read a stored response",
        tag=RESPONSES,
        parameters=(INCLUDE, *_REPLAY),
        answers={
            200: Answer(
                description="The response, whole or as a stream.",
                media={JSON: refer("Response"), EVENT_STREAM: refer("StreamEvent")},
            )
        },
        failures=(*failures.STORED, *failures.READ),
    ),
    "delete_response": Operation(
        summary="Delete a stored response",
        tag=RESPONSES,
        answers={200: answer_json("DeletedResponse", "It is gone.")},
        failures=failures.STORED,
    ),
    "cancel_response": Operation(
        summary="Cancel a background response",
        tag=RESPONSES,
        answers={200: answer_json("Response", "The response as it ended, or as it is if that takes long.")},
        failures=(*failures.STORED, *failures.CANCEL),
    ),
    "list_input_items": Operation(
        summary="List the input of a stored response",
        tag=RESPONSES,
        parameters=PAGE,
        answers={200: answer_json("ItemList", "One page.")},
        failures=(*failures.STORED, *failures.PAGE),
    ),
    **CONVERSATION_OPERATIONS,
    "list_models": Operation(
        summary="List the models",
        tag=MODELS,
        answers={200: answer_json("ModelList", "The models.")},
        failures=failures.UPSTREAM,
        refusals=True,
    ),
    "retrieve_model": Operation(
        summary="Read one model",
        tag=MODELS,
        answers={200: answer_json("Model", "The model.")},
        failures=(*failures.MODEL, *failures.UPSTREAM),
        refusals=True,
    ),
    "livez": Operation(
        summary="Ask whether the process lives", tag=OPERATION, answers={200: answer_json("Live", "It lives.")}
    ),
    "readyz": Operation(
        summary="Ask whether new requests can be served",
        tag=OPERATION,
        parameters=(describe_query("verbose", {"type": "string"}, "List every check; the value does not matter."),),
        answers={
            200: Answer(description="Ready.", media={JSON: _CHECKS}),
            503: Answer(description=_NOT_READY, media={JSON: _CHECKS}, headers=("Retry-After",)),
        },
        failures=failures.OVERLOAD,
    ),
    "health": Operation(
        summary="Ask as inference servers are asked",
        tag=OPERATION,
        answers={
            200: Answer(description="Ready: an empty object.", media={JSON: {"type": "object", "maxProperties": 0}}),
            503: Answer(description=_NOT_READY, media={JSON: refer("Verdict")}, headers=("Retry-After",)),
        },
        failures=failures.OVERLOAD,
    ),
    "version": Operation(
        summary="Ask what is running",
        tag=OPERATION,
        answers={200: answer_json("Version", "Name and version.")},
        failures=failures.OVERLOAD,
    ),
    "show_document": Operation(
        summary="Read this description",
        tag=DESCRIPTION,
        parameters=(_IF_NONE_MATCH,),
        answers={
            200: Answer(description="An OpenAPI document.", media={JSON: {"type": "object"}}, headers=_CACHED),
            304: _UNCHANGED,
        },
        failures=failures.OVERLOAD,
    ),
    "show_page": Operation(
        summary="Read this description as a page",
        tag=DESCRIPTION,
        parameters=(_IF_NONE_MATCH,),
        answers={
            200: Answer(description="A page without scripts.", media={HTML: {"type": "string"}}, headers=_CACHED),
            304: _UNCHANGED,
        },
        failures=failures.OVERLOAD,
    ),
}
