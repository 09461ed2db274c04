"""How a route is described, and what several of them have in common."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.transport.openapi.failures import Failure
from gateway.transport.openapi.schemas import Schema, refer
from gateway.transport.paging import MAX_PAGE

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
HTML = "text/html"
NO_MEDIA: Mapping[str, Schema] = {}

RESPONSES, CONVERSATIONS, MODELS = "Responses", "Conversations", "Models"
OPERATION, DESCRIPTION = "Operation", "Description"
TAGS = {
    RESPONSES: "Make, read and delete responses.",
    CONVERSATIONS: "Keep items that responses read and add to.",
    MODELS: "What can be asked for.",
    OPERATION: "Whether the gateway lives and can work.",
    DESCRIPTION: "This description.",
}


class Answer(Struct, frozen=True, kw_only=True):
    """One answer that is no failure.

    Attributes:
        description: when it is given.
        media: schema of the body by media type, empty where there is none.
        headers: names of the documented headers it has besides those of every answer.
        links: what can be done with the answer.
    """

    description: str
    media: Mapping[str, Schema]
    headers: tuple[str, ...] = ()
    links: Mapping[str, Any] = {}


class Operation(Struct, frozen=True, kw_only=True):
    """One route under one method.

    Attributes:
        summary: a few words.
        tag: where it belongs.
        answers: what it answers, by status.
        parameters: OpenAPI parameters besides those in the path.
        body: schema of the JSON body, or None.
        examples: bodies by what they show.
        failures: how it can fail besides what can befall any request.
        refusals: whether refusals of the inference server get through, with its status and code.
        description: more words, in the place of the handler's documentation.
    """

    summary: str
    tag: str
    answers: Mapping[int, Answer]
    parameters: tuple[Schema, ...] = ()
    body: Schema | None = None
    examples: Mapping[str, Any] = {}
    failures: tuple[Failure, ...] = ()
    refusals: bool = False
    description: str = ""


def answer_json(name: str, description: str, *headers: str, **links: Any) -> Answer:
    """Describe an answer of JSON, by the name of its schema."""
    return Answer(description=description, media={JSON: refer(name)}, headers=headers, links=links)


def describe_query(name: str, schema: Schema, description: str) -> Schema:
    """Describe a query parameter."""
    return {"name": name, "in": "query", "schema": schema, "description": description}


INCLUDE = describe_query(
    "include",
    {"type": "array", "items": {"type": "string"}},
    "Accepted and not needed: nothing is left out. `include[]` is the same.",
)
PAGE = (
    describe_query("after", {"type": "string"}, "Id of the item before the first one wanted, in the order asked for."),
    describe_query(
        "limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 20}, "Most items in the page."
    ),
    describe_query(
        "order", {"enum": ["asc", "desc"], "default": "desc"}, "asc is the order in which the items were sent."
    ),
    INCLUDE,
)
