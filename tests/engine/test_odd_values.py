"""Whatever JSON stands in a create, wherever: it is taken, or refused with an error that is the caller's."""

import copy
import json

import pytest
from engine.doubles import Bench

from gateway.engine.plan import Caller
from gateway.protocol.errors import GatewayError

ODD = [None, True, 7, 1.5, "", "x", [], {}, [7], [[]], {"a": 7}, {"type": {}}, [{"type": []}], 10**30]
FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
MCP = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "http://127.0.0.1:1/",
    "authorization": "x",
    "require_approval": {"never": {"tool_names": ["a"]}},
    "allowed_tools": ["a"],
    "headers": {"a": "b"},
}
SEARCH = {
    "type": "web_search",
    "filters": {"allowed_domains": ["a.b"]},
    "search_context_size": "low",
    "user_location": {"type": "approximate", "country": "DE"},
}
TOOLS = [
    FUNCTION,
    {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
    {"type": "namespace", "name": "ns", "description": "d", "tools": [{**FUNCTION, "name": "g"}]},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "tool_search", "execution": "client", "description": "d", "parameters": {}},
    *(MCP, SEARCH, {"type": "file_search", "vector_store_ids": ["v"]}, {"type": "unheard_of"}),
]
CHOICES = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "c"},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, {"type": "shell"}]},
    {"type": "mcp", "server_label": "docs", "name": "a"},
    *({"type": "shell"}, {"type": "unheard_of"}, "auto"),
]
IMAGE = {"type": "input_image", "image_url": "data:x", "detail": "auto"}
CITATION = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
TEXT = {"type": "output_text", "text": "t", "annotations": [CITATION], "logprobs": []}
CHECK = {"id": "i", "code": "c", "message": "m"}
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}, IMAGE]},
    {"role": "user", "content": [{"type": "input_file", "file_data": "x", "filename": "n"}]},
    {"role": "assistant", "content": [TEXT], "id": "msg_1", "status": "completed", "phase": "final_answer"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": None},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "namespace": "ns", "status": "completed"},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "o"}]},
    {"type": "custom_tool_call", "call_id": "2", "name": "c", "input": "i", "namespace": "ns"},
    {"type": "custom_tool_call_output", "call_id": "2", "output": "o"},
    {"type": "shell_call", "call_id": "3", "action": {"commands": ["ls"], "timeout_ms": 1}, "status": "completed"},
    {
        "type": "shell_call_output",
        "call_id": "3",
        "output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    {"type": "local_shell_call", "id": "4", "call_id": "4", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    {"type": "local_shell_call_output", "id": "4", "output": "o"},
    {"type": "apply_patch_call", "call_id": "5", "operation": {"type": "update_file", "path": "p", "diff": "d"}},
    {"type": "apply_patch_call_output", "call_id": "5", "status": "completed", "output": "o"},
    {"type": "tool_search_call", "call_id": "6", "arguments": {}, "execution": "client"},
    {"type": "tool_search_output", "call_id": "6", "tools": [{**FUNCTION, "name": "z"}], "execution": "client"},
    {"type": "computer_call", "call_id": "7", "action": {"type": "click", "x": 1}, "pending_safety_checks": [CHECK]},
    {"type": "computer_call_output", "call_id": "7", "output": {"type": "computer_screenshot", "image_url": "data:x"}},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "docs", "tools": [{"name": "a", "input_schema": {}}]},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "a", "arguments": "{}", "output": "o"},
    {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "docs", "name": "a", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    *({"type": "compaction", "encrypted_content": "x"}, {"type": "item_reference", "id": "msg_9"}, {"type": "x"}),
]
SETTINGS = {
    "instructions": "i",
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "truncation": "auto",
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "stream_options": {"include_obfuscation": False},
    "service_tier": "auto",
    "top_logprobs": 1,
    "top_p": 1,
    "temperature": 1,
    "max_output_tokens": 9,
    "user": "u",
    "max_tool_calls": 2,
    "parallel_tool_calls": True,
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "background": False,
    "store": True,
    "conversation": {"id": "conv_1"},
    "previous_response_id": None,
    "context_management": [{"type": "compaction", "compact_threshold": 1000}],
    "presence_penalty": 0,
    "multi_agent": {"enabled": True, "max_concurrent_subagents": 2},
    "frequency_penalty": 0,
    "prompt": {"id": "p"},
}
CREATES = [
    *({"model": "m", "input": [item]} for item in ITEMS),
    {"model": "m", "input": ITEMS},
    *({"model": "m", "input": "hi", "tools": [tool]} for tool in TOOLS),
    *({"model": "m", "input": "hi", "tools": TOOLS[:5], "tool_choice": choice} for choice in CHOICES),
    *({"model": "m", "input": "hi", "tools": TOOLS[5:], "tool_choice": choice} for choice in CHOICES),
    {"model": "m", "input": "hi", **SETTINGS},
]


def find_places(value, place=()):
    """Yield the way to everything inside."""
    if place:
        yield place
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from find_places(value[key], (*place, key))


def put(value, place, odd):
    changed = inside = copy.deepcopy(value)
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = odd
    return changed


@pytest.mark.parametrize("create", CREATES)
async def test_any_value_in_any_place_is_taken_or_refused(create):
    bench = Bench()
    caller = Caller(principal="local", transport="websocket", headers={})
    statuses = set()
    for place in find_places(create):
        for odd in ODD:
            body = json.loads(json.dumps(put(create, place, odd)))
            try:
                read = bench.engine.read_fields(body, on_websocket=True, agents_header=True)
                await bench.engine.prepare(caller, *read)
            except GatewayError as error:
                statuses.add(error.status)
    assert statuses <= {400, 404, 409}
