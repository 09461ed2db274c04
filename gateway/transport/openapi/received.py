"""JSON Schemas of what callers send, from the tables by which it is checked."""

from typing import Any

import msgspec

from gateway.protocol import inputs
from gateway.protocol.client_tools import CLIENT_TOOLS
from gateway.protocol.compaction import COMPACTION
from gateway.protocol.conversations import MAX_NEW_ITEMS, ConversationUpdateFields
from gateway.protocol.items import INPUT_TYPES
from gateway.protocol.requests import OPERATORS_FIELDS, UNSUPPORTED, CreateFields
from gateway.transport.openapi.schemas import Schema, refer

_TEXT: Schema = {"type": "string"}
_NULL: Schema = {"type": "null"}
_NAME: Schema = {"type": "string", "minLength": 1}
_CHECKED = frozenset({"message", "reasoning", *inputs.REQUIRED_TEXT, *inputs.REQUIRED_VALUES})
_JSON_TYPES: dict[type, str] = {dict: "object", list: "array"}
_FUNCTIONS = ("function", "custom")

# What the fields are for, where their names and types do not say all.
_NOTES = {
    "model": "One of `/v1/models`.",
    "input": "A text or a list of items; may be left out with `previous_response_id` or `conversation`.",
    "conversation": "The conversation to go on with: its items come before `input`, and input and output are added.",
    "previous_response_id": "The stored response to continue; its items come before `input`.",
    "store": "Whether to keep the response so that it can be read and continued; true unless said otherwise.",
    "background": "Whether to make the response on its own, whoever listens; it has to be stored.",
    "stream": "Whether to answer with an event stream.",
    "context_management": "Compaction of the input; of several entries the last counts.",
    "tools": "Hosted tools are left out and named in the header `x-gateway-unsupported-tools`.",
    "multi_agent": "Whether a tree of agents is to answer; needs the header `OpenAI-Beta: responses_multi_agent=v1`.",
}


def build_received_schemas() -> dict[str, Schema]:
    """Return a schema for the body of a create request and for what is in it, by name, in the order of the names."""
    content = {"oneOf": [_TEXT, {"type": "array", "items": refer("InputPart")}]}
    return {
        "AddedItems": _object({"items": _new_items()}, ["items"], description="Items for a conversation."),
        "ConversationFields": _object(
            {"items": {"oneOf": [_new_items(), _NULL]}, "metadata": _metadata()},
            [],
            description="What a conversation begins with.",
        ),
        "ConversationUpdateFields": _object(
            {"metadata": _metadata()},
            ["metadata"],
            description="What is noted from now on, in the place of all before.",
        ),
        "CreateRequest": _build_request(),
        "InputContent": {"description": "A text, or a list of parts.", **content},
        "InputItem": _build_item(),
        "InputPart": _build_part(),
        "Tool": {
            "description": "A tool; functions and custom tools inside a namespace are told apart by its name.",
            "oneOf": [_function_tool(), _namespace_tool(), _hosted_tool("namespace")],
        },
        "ToolChoice": _build_choice(),
    }


def _new_items() -> Schema:
    return {"type": "array", "items": refer("InputItem"), "maxItems": MAX_NEW_ITEMS}


def _metadata() -> Schema:
    _, generated = msgspec.json.schema_components([ConversationUpdateFields])
    schema: Schema = generated["ConversationUpdateFields"]["properties"]["metadata"]
    return schema


def _object(properties: dict[str, Schema], required: list[str], **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": required, **more}


def _build_agents() -> Schema:
    limit: Schema = {"oneOf": [{"type": "integer", "minimum": 1}, _NULL]}
    return _object(
        {"enabled": {"type": "boolean"}, "max_concurrent_subagents": limit}, ["enabled"], additionalProperties=False
    )


def _build_request() -> Schema:
    _, generated = msgspec.json.schema_components([CreateFields])
    properties: dict[str, Schema] = generated["CreateFields"]["properties"]
    for schema in properties.values():
        del schema["default"]
    null = _NULL
    properties["model"] = _NAME
    properties["input"] = {"oneOf": [_TEXT, {"type": "array", "items": refer("InputItem")}, null]}
    properties["tools"] = {"oneOf": [{"type": "array", "items": refer("Tool")}, null]}
    properties["tool_choice"] = {"oneOf": [refer("ToolChoice"), null]}
    reference = _object({"id": _NAME}, ["id"])
    properties["conversation"] = {"oneOf": [_NAME, reference, null]}
    properties["context_management"] = {"oneOf": [{"type": "array", "items": _build_compaction()}, null]}
    properties["multi_agent"] = {"oneOf": [_build_agents(), null]}
    for name, advice in UNSUPPORTED.items():
        properties[name] = {"enum": _accepted(name), "description": f"Not supported. {advice}"}
    for name, note in _NOTES.items():
        properties[name] = {**properties[name], "description": note}
    for name in sorted(OPERATORS_FIELDS):
        properties[name] = {"description": "The operator's to set: refused unless `[upstream] allow_fields` lists it."}
    said = {"input": {"oneOf": [{**_TEXT, "minLength": 1}, {"type": "array", "minItems": 1}]}}
    return _object(
        properties,
        ["model"],
        description=(
            "What to make a response from. A null is the same as leaving the field out. Fields that are not listed are "
            "passed on to the inference server, or refused with `[responses] strict_parameters`."
        ),
        anyOf=[
            _object(said, ["input"]),
            _object({"previous_response_id": _TEXT}, ["previous_response_id"]),
            _object({"conversation": {"not": null}}, ["conversation"]),
        ],
    )


def _build_compaction() -> Schema:
    number: Schema = {
        "type": ["integer", "null"],
        "minimum": 1,
        "description": "Tokens from which the input is compacted; the operator's number where there is none.",
    }
    return _object({"type": {"const": COMPACTION}, "compact_threshold": number}, ["type"])


def _accepted(name: str) -> list[Any]:
    """Return the values of an unsupported field that ask for nothing and have the field's type."""
    kind = next(field.type for field in msgspec.structs.fields(CreateFields) if field.name == name)
    asking_for_nothing: tuple[Any, ...] = (None, False, [])
    return [value for value in asking_for_nothing if _fits(value, kind)]


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _build_item() -> Schema:
    content = refer("InputContent")
    kinds = {
        kind: _object({"type": {"const": kind}, **{key: _required_text(key) for key in keys}}, ["type", *keys])
        for kind, keys in inputs.REQUIRED_TEXT.items()
    }
    for kind in ("function_call_output", "custom_tool_call_output"):
        kinds[kind]["properties"]["output"] = content
        kinds[kind]["required"].append("output")
    optional: Schema = {"oneOf": [content, {"type": "null"}]}
    for kind, (key, due) in inputs.REQUIRED_VALUES.items():
        checked = kinds.setdefault(kind, _object({"type": {"const": kind}}, ["type"]))
        checked["properties"][key] = {"type": _JSON_TYPES[due]}
        checked["required"].append(key)
    kinds["computer_call_output"]["properties"]["output"]["properties"] = _build_media()
    named = kinds["local_shell_call_output"]
    named["required"].remove("call_id")
    del named["properties"]["call_id"]
    named["anyOf"] = [
        _object({"call_id": _NAME}, ["call_id"]),
        _object({"call_id": {"type": "null"}, "id": _NAME}, ["id"]),
    ]
    kinds["reasoning"] = _object({"type": {"const": "reasoning"}, "summary": optional, "content": optional}, ["type"])
    untyped: Schema = {"type": ["string", "null"]}
    message = _object(
        {"type": {**untyped, "enum": ["message", None]}, "role": {"enum": sorted(inputs.ROLES)}, "content": content},
        ["role", "content"],
    )
    reference = kinds["item_reference"]
    reference["properties"]["type"] = {**untyped, "enum": ["item_reference", None]}
    reference["required"].remove("type")
    other = _object({"type": {"enum": sorted(INPUT_TYPES - _CHECKED)}}, ["type"])
    return {
        "description": (
            "One item of the input. An item without a `type` is a message if it has a `role` and a reference to a "
            "stored item if it has an `id`. Null members are dropped; members that are not listed are passed on."
        ),
        "anyOf": [message, *(kinds[kind] for kind in sorted(kinds)), other],
    }


def _required_text(key: str) -> Schema:
    return _NAME if key == "call_id" else _TEXT


def _build_part() -> Schema:
    texts = [
        _object({"type": {"const": kind}, key: _TEXT}, ["type", key]) for kind, key in sorted(inputs.TEXT_PARTS.items())
    ]
    media = _build_media()
    files = [_object({"type": {"const": kind}, **media}, ["type"]) for kind in inputs.MEDIA_PARTS]
    return {
        "description": "One part of an item's content.",
        "oneOf": [*texts, *files, _object({"type": {"enum": sorted(inputs.OTHER_PARTS)}}, ["type"])],
    }


def _build_media() -> Schema:
    url: Schema = {
        "type": ["string", "null"],
        "description": 'A data: URL; others only with `[upstream] remote_images = "forward"`.',
    }
    no_file: Schema = {"type": "null", "description": "No files are kept."}
    return {"image_url": url, "file_url": url, "file_id": no_file}


def _function_tool() -> Schema:
    return _object({"type": {"enum": list(_FUNCTIONS)}, "name": _NAME}, ["type", "name"])


def _hosted_tool(*besides: str) -> Schema:
    return _object({"type": {**_NAME, "not": {"enum": [*_FUNCTIONS, *besides]}}}, ["type"])


def _namespace_tool() -> Schema:
    members: Schema = {"type": "array", "items": {"oneOf": [_function_tool(), _hosted_tool()]}}
    return _object({"type": {"const": "namespace"}, "name": _NAME, "tools": members}, ["type", "name", "tools"])


def _build_choice() -> Schema:
    named = _object(
        {"type": {"enum": list(_FUNCTIONS)}, "name": _NAME, "namespace": {"type": "string"}}, ["type", "name"]
    )
    listed: Schema = {"mode": {"enum": ["auto", "required"]}, "tools": {"type": "array", "items": {"type": "object"}}}
    return {
        "description": "Whether and which tools are to be called; what it names must be among `tools`.",
        "oneOf": [
            {"enum": ["none", "auto", "required"]},
            named,
            _object({"type": {"enum": sorted([*CLIENT_TOOLS, "computer_use"])}}, ["type"]),
            _object({"type": {"const": "allowed_tools"}, **listed}, ["type", "tools"]),
        ],
    }
