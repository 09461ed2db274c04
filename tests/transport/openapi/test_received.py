"""The schema of a create request takes what the gateway takes, and refuses what it refuses."""

from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from gateway.protocol.agents.asked import AgentsPolicy
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.inputs import MEDIA_PARTS, OTHER_PARTS, REQUIRED_TEXT, REQUIRED_VALUES, TEXT_PARTS
from gateway.protocol.items import INPUT_TYPES
from gateway.protocol.requests import OPERATORS_FIELDS, UNSUPPORTED, CreateFields, RequestPolicy, check_request
from gateway.transport.openapi.docs import ApiDocs

DOCUMENT = msgspec.json.decode(ApiDocs().document.body)
VALIDATOR = Draft202012Validator({"$ref": "#/components/schemas/CreateRequest", **DOCUMENT})
POLICY = RequestPolicy(
    compact_threshold=100,
    allow_fields=OPERATORS_FIELDS,
    remote_images=True,
    agents=AgentsPolicy(needs_header=False),
)
MESSAGE = {"role": "user", "content": "hi"}


def in_part(part: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [part]}]}


def in_item(item: Any) -> dict[str, Any]:
    return {"input": [item]}


TAKEN: list[dict[str, Any]] = [
    {"input": [MESSAGE]},
    {"input": None, "previous_response_id": "resp_1"},
    {"input": [], "previous_response_id": "resp_1"},
    {"anything": {"else": 1}},
    {"temperature": 2, "top_p": 0, "top_logprobs": 20, "presence_penalty": -2},
    {"metadata": {"k": "v"}, "truncation": "auto", "stream": True},
    {"multi_agent": {"enabled": False}},
    {"multi_agent": {"enabled": True, "max_concurrent_subagents": 1}},
    {"background": False, "generate": False, "context_management": [], "prompt": None, "conversation": None},
    {"context_management": [{"type": "compaction"}, {"type": "compaction", "compact_threshold": 5}]},
    in_item({"type": None, **MESSAGE}),
    in_item({"id": "msg_1"}),
    in_item({"type": "reasoning", "summary": "s", "content": [{"type": "reasoning_text", "text": "t"}]}),
    in_item({"type": "reasoning", "summary": None}),
    in_item({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]}),
    in_part({"type": "input_image", "image_url": "data:image/png;base64,"}),
    in_part({"type": "input_file", "file_id": None}),
    *(in_part({"type": kind, key: ""}) for kind, key in TEXT_PARTS.items()),
    *(in_part({"type": kind}) for kind in sorted(OTHER_PARTS)),
    *(in_item({"type": kind}) for kind in sorted(INPUT_TYPES - {"message", *REQUIRED_TEXT, *REQUIRED_VALUES})),
    in_item({"type": "shell_call", "call_id": "c", "action": {}}),
    in_item({"type": "local_shell_call_output", "id": "c", "output": ""}),
    in_item({"type": "local_shell_call_output", "call_id": "c", "id": None, "output": ""}),
    in_item({"type": "local_shell_call_output", "call_id": None, "id": "c", "output": ""}),
    in_item({"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}),
    in_item({"type": "computer_call_output", "call_id": "c", "output": {"image_url": "data:image/png;base64,"}}),
    in_item({"type": "tool_search_output", "tools": []}),
    {"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}},
    {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "f"}, {"type": "web_search"}]}]},
    {"tools": [{"type": "web_search"}], "tool_choice": "none"},
    *({"tools": [{"type": kind}], "tool_choice": {"type": kind}} for kind in ("shell", "apply_patch", "computer")),
    {"tools": [{"type": "computer"}], "tool_choice": {"type": "computer_use"}},
    {"tools": [], "tool_choice": {"type": "allowed_tools", "tools": []}},
]

REFUSED: list[dict[str, Any]] = [
    {"context_management": [{"type": "other"}]},
    {"context_management": [{"type": "compaction", "compact_threshold": 0}]},
    {"model": None},
    {"model": ""},
    {"input": ""},
    {"input": []},
    {"input": None},
    {"input": 1},
    {"temperature": 2.1},
    {"top_logprobs": 21},
    {"max_output_tokens": 0},
    {"metadata": {"k": 1}},
    {"metadata": {str(n): "" for n in range(17)}},
    {"truncation": "middle"},
    {"stream": "yes"},
    {"include": [1]},
    *({"multi_agent": {"enabled": value}} for value in (0, {}, "", None)),
    *({"multi_agent": {"enabled": True, "max_concurrent_subagents": value}} for value in (0, -1, 1.5, "x", True)),
    {"multi_agent": {}},
    {"multi_agent": {"enabled": True, "more": 1}},
    *({name: value} for name in UNSUPPORTED for value in (True, {"a": 1}, [1])),
    in_item("text"),
    in_item({}),
    in_item({"type": "nonsense"}),
    in_item({"type": "message", "role": "robot", "content": "x"}),
    in_item({"role": "user"}),
    in_item({"role": "user", "content": None}),
    in_item({"type": "function_call_output", "call_id": "c"}),
    in_item({"type": "reasoning", "summary": 1}),
    *(in_item({"type": kind, "call_id": "c", key: 1}) for kind, (key, _) in REQUIRED_VALUES.items()),
    in_item({"type": "computer_call_output", "call_id": "c", "output": {"file_id": "f"}}),
    in_item({"type": "local_shell_call_output", "output": ""}),
    in_item({"type": "local_shell_call_output", "call_id": "", "id": "c", "output": ""}),
    in_item({"type": "local_shell_call_output", "call_id": 5, "id": "c", "output": ""}),
    *(in_item({"type": kind}) for kind in REQUIRED_TEXT),
    *(in_item({"type": kind, **dict.fromkeys(keys, 1)}) for kind, keys in REQUIRED_TEXT.items()),
    *(in_item({"type": kind, **dict.fromkeys(keys, "")}) for kind, keys in REQUIRED_TEXT.items() if "call_id" in keys),
    in_part("text"),
    in_part({"type": "nonsense"}),
    *(in_part({"type": kind}) for kind in TEXT_PARTS),
    *(in_part({"type": kind, "file_id": "file_1"}) for kind in MEDIA_PARTS),
    *(in_part({"type": kind, "image_url": 1}) for kind in MEDIA_PARTS),
    {"tools": ["f"]},
    {"tools": [{"name": "f"}]},
    {"tools": [{"type": ""}]},
    {"tools": [{"type": "function", "name": ""}]},
    {"tools": [{"type": "namespace", "name": "n"}]},
    {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]},
    {"tool_choice": "any"},
    {"tool_choice": {"type": "web_search"}},
    {"tool_choice": {"type": "allowed_tools"}},
    {"tool_choice": {"type": "allowed_tools", "tools": [], "mode": "none"}},
]


@pytest.mark.parametrize("fields", TAKEN, ids=str)
def test_what_is_taken_is_described(fields: dict[str, Any]) -> None:
    body = {"model": "m", "input": "hi", **fields}
    check_request(body, POLICY)
    assert list(VALIDATOR.iter_errors(body)) == []


@pytest.mark.parametrize("fields", REFUSED, ids=str)
def test_what_is_refused_is_not_described(fields: dict[str, Any]) -> None:
    body = {"model": "m", "input": "hi", **fields}
    with pytest.raises(InvalidRequest):
        check_request(body, POLICY)
    assert not VALIDATOR.is_valid(body)


def test_every_parameter_is_described() -> None:
    described = DOCUMENT["components"]["schemas"]["CreateRequest"]["properties"]
    assert described.keys() == {*CreateFields.__struct_fields__, *OPERATORS_FIELDS}


def test_a_null_is_no_value_in_any_field_but_the_model() -> None:
    nulls = dict.fromkeys(name for name in CreateFields.__struct_fields__ if name not in ("model", "input"))
    check_request({"model": "m", "input": "hi", **nulls}, POLICY)
    assert VALIDATOR.is_valid({"model": "m", "input": "hi", **nulls})
