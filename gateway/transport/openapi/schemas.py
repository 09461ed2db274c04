"""JSON Schemas of what the gateway sends, from the Structs it is made of."""

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct, UnsetType

from gateway.protocol import events, items
from gateway.protocol.conversations import Conversation, DeletedConversation
from gateway.protocol.envelope import ErrorEnvelope
from gateway.protocol.events import CATALOGUE
from gateway.protocol.lifecycle import Phase
from gateway.protocol.response import (
    CompactedWindow,
    DeletedResponse,
    InputTokens,
    ItemList,
    Model,
    ModelList,
    Response,
)
from gateway.transport.health import Live, Report, Verdict, Version

Schema = dict[str, Any]

_PREFIX = "#/components/schemas/"
_ATTRIBUTE = re.compile(r"^    (\w+): (.+?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)

_ITEMS: tuple[type[Struct], ...] = (items.Message, items.Reasoning, items.FunctionCall, items.CustomToolCall)
_PARTS: tuple[type[Struct], ...] = (items.OutputText, items.Refusal, items.ReasoningText, items.SummaryText)
_ANSWERS: tuple[type[Struct], ...] = (
    Response, CompactedWindow, InputTokens, DeletedResponse, Conversation, DeletedConversation, ItemList, Model,
    ModelList, Live, Report, Verdict, Version, ErrorEnvelope,
)  # fmt: skip


def refer(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": _PREFIX + name}


def choose(kinds: Sequence[type[Struct]]) -> Schema:
    """Return the schema of a value whose `type` says which of several Structs it is."""
    named = {str(kind.__struct_config__.tag): refer(kind.__name__) for kind in kinds}
    mapping = {tag: reference["$ref"] for tag, reference in named.items()}
    return {"oneOf": list(named.values()), "discriminator": {"propertyName": "type", "mapping": mapping}}


def build_sent_schemas() -> dict[str, Schema]:
    """Return a schema for everything the gateway sends, by name, in the order of the names."""
    roots = (*_ANSWERS, *_ITEMS, *_PARTS, *CATALOGUE.values())
    found = {kind.__name__: kind for root in roots for kind in _reach(root)}
    _, generated = msgspec.json.schema_components(roots, ref_template=_PREFIX + "{name}")
    schemas = {name: _complete(schema, found[name]) for name, schema in generated.items()}
    for (kind, field), schema in _refinements().items():
        schemas[kind.__name__]["properties"][field] = schema
    return dict(sorted({**schemas, **_unions()}.items()))


def describe_kind(kind: type[Struct]) -> tuple[str, dict[str, str]]:
    """Return the summary of a Struct's documentation, and what it says of each attribute."""
    text = inspect.getdoc(kind) or ""
    summary, _, rest = text.partition("\n\nAttributes:\n")
    return " ".join(summary.split()), {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(rest)}


def _reach(kind: type[Struct]) -> Iterator[type[Struct]]:
    yield kind
    for field in msgspec.structs.fields(kind):
        for inner in _structs_in(field.type):
            yield from _reach(inner)


def _structs_in(annotation: Any) -> Iterator[type[Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        yield annotation
    for inner in get_args(annotation):
        yield from _structs_in(inner)


def _complete(schema: Schema, kind: type[Struct]) -> Schema:
    """Say of a generated schema what holds for sending: only what may be unset can be missing."""
    summary, told = describe_kind(kind)
    fields = msgspec.structs.fields(kind)
    tag = ["type"] if kind.__struct_config__.tag_field else []
    properties = {
        name: {key: value for key, value in one.items() if key != "default"}
        for name, one in schema["properties"].items()
    }
    for name, words in told.items():
        properties[name]["description"] = words
    return {
        "type": "object",
        "description": summary,
        "properties": properties,
        "required": tag + [field.encode_name for field in fields if UnsetType not in get_args(field.type)],
    }


def _unions() -> dict[str, Schema]:
    written = [str(kind.__struct_config__.tag) for kind in _ITEMS]
    own = choose(_ITEMS)
    return {
        "OutputItem": {
            "description": "One item of a response. What a model writes itself has a type of its own.",
            "oneOf": [*own["oneOf"], refer("OtherItem")],
        },
        "OtherItem": {
            "description": "An item of any other tool, as the API words it or the inference server gave it.",
            "type": "object",
            "properties": {"type": {"type": "string", "not": {"enum": written}}, "id": {"type": "string"}},
            "required": ["type", "id"],
        },
        "ListedItem": {
            "description": "An item of a stored response's input, or of a conversation, with an id.",
            "type": "object",
            "properties": {"type": {"enum": sorted(items.INPUT_TYPES)}, "id": {"type": "string"}},
            "required": ["type", "id"],
        },
        "OutputPart": {"description": "One part of a message or of reasoning.", **choose(_PARTS)},
        "StreamEvent": {
            "description": "One event of a stream; `type` says which.",
            **choose(list(CATALOGUE.values())),
        },
    }


def _refinements() -> dict[tuple[type[Struct], str], Schema]:
    """What the Structs leave open, because it is carried as it came, and what is known of it all the same."""
    item, part, summary = refer("OutputItem"), refer("OutputPart"), refer(items.SummaryText.__name__)
    statuses = [phase.value for phase in Phase if phase is not Phase.ADMITTED]
    number = {"type": "integer", "minimum": 0, "description": "Counts from 0 within one response."}
    return {
        (Response, "output"): {"type": "array", "items": item},
        (Response, "status"): {"enum": statuses},
        (Response, "instructions"): {"type": ["string", "null"]},
        (Response, "tool_choice"): {"type": ["string", "object"]},
        (Response, "tools"): {"type": "array", "items": {"type": "object"}},
        (CompactedWindow, "output"): {"type": "array", "items": {"type": "object"}},
        (ItemList, "data"): {"type": "array", "items": refer("ListedItem")},
        (ModelList, "data"): {"type": "array", "items": refer(Model.__name__)},
        **{(event, "item"): item for event in (events.OutputItemAdded, events.OutputItemDone)},
        **{(event, "part"): part for event in (events.ContentPartAdded, events.ContentPartDone)},
        **{(event, "part"): summary for event in (events.SummaryPartAdded, events.SummaryPartDone)},
        **{(event, "sequence_number"): number for event in CATALOGUE.values()},
    }
