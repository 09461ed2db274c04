"""From the body of a Responses request to that of a chat request."""

from typing import Any, Final

from gateway.upstream.chat.messages import write_messages
from gateway.upstream.replay import Item

# What has another form in chats, and what has none: where the gateway does not do it itself, no server would.
_OTHERWISE: Final = frozenset(
    {
        "include", "input", "instructions", "max_output_tokens", "messages", "previous_response_id",
        "prompt_cache_options", "reasoning", "store", "stream_options", "text", "tool_choice", "tools",
        "top_logprobs", "truncation",
    }
)  # fmt: skip
_LOGPROBS: Final = "message.output_text.logprobs"
_FUNCTION_KEYS: Final = ("name", "description", "parameters", "strict")
_SCHEMA_KEYS: Final = ("name", "description", "schema", "strict")


def write_request(body: Item, *, max_tokens: str) -> Item:
    """Return the chat request that asks for the same; fields of neither form are passed on.

    Args:
        body: a Responses request whose input is a text or a list of items.
        max_tokens: what the server calls `max_output_tokens`.

    Raises:
        InvalidRequest: an input item or part that chats have no form for.
    """
    chat = {name: value for name, value in body.items() if value is not None and name not in _OTHERWISE}
    chat["messages"] = write_messages(body.get("instructions"), body.get("input"))
    if body.get("max_output_tokens") is not None:
        chat[max_tokens] = body["max_output_tokens"]
    if body.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    if _LOGPROBS in (body.get("include") or ()):
        chat["logprobs"] = True
        if body.get("top_logprobs"):
            chat["top_logprobs"] = body["top_logprobs"]
    effort = _member(body, "reasoning", "effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    return chat | _write_text(body) | _write_tools(body)


def _write_text(body: Item) -> Item:
    """Return what a chat calls the form of the text."""
    told: Item = {}
    form = _member(body, "text", "format")
    match form.get("type") if isinstance(form, dict) else None:
        case "json_schema":
            told["response_format"] = {"type": "json_schema", "json_schema": _pick(form, _SCHEMA_KEYS)}
        case None | "text":
            pass
        case _:
            told["response_format"] = form
    verbosity = _member(body, "text", "verbosity")
    return told if verbosity is None else {**told, "verbosity": verbosity}


def _write_tools(body: Item) -> Item:
    tools = body.get("tools")
    if not tools:
        return {}
    told: Item = {"tools": [_write_tool(tool) for tool in tools]}
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    return told if choice is None else {**told, "tool_choice": choice}


def _write_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"type": "function", "function": _pick(tool, _FUNCTION_KEYS)}


def _pick(source: Item, keys: tuple[str, ...]) -> Item:
    return {key: source[key] for key in keys if source.get(key) is not None}


def _member(body: Item, name: str, member: str) -> Any:
    value = body.get(name)
    return value.get(member) if isinstance(value, dict) else None
