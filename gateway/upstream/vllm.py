"""What vLLM accepts, as read from 0.32 and its answers."""

from typing import Any

from gateway.ports import TokenQuestion
from gateway.protocol.errors import InvalidRequest
from gateway.upstream.chat.request import write_request
from gateway.upstream.replay import Item, close_item, drop_empty_tools, join_text, mend_items, read_reasoning
from gateway.upstream.token_questions import ask_vllm

_INCLUDE = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
)
_SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority")
_REFUSED = frozenset({"prompt", "prompt_cache_options", "prompt_cache_retention"})
_REASONING = ("effort", "summary")
_CALL_KEYS = ("type", "id", "call_id", "name", "arguments", "namespace", "status")
_OUTPUT_KEYS = ("type", "id", "call_id", "output", "status")
_MESSAGE_KEYS = ("type", "role", "content", "phase", "status")


class VllmDialect:
    """vLLM: narrower enums than the API, plain reasoning only, one text part per assistant message."""

    name = "vllm"

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body with what vLLM would refuse, misread or crash on mended or left out.

        Left out are nulls, unknown `include` values and service tiers, `prompt` and the prompt cache options, and of
        `reasoning` all but effort and summary; and compaction items of others. Items keep only the members vLLM reads.
        What stays wrong, such as a required tool without tools, is the caller's error to see.
        """
        adapted = {key: value for key, value in body.items() if value is not None and key not in _REFUSED}
        if isinstance(adapted.get("include"), list):
            _keep(adapted, "include", list(filter(accepts_include, adapted["include"])))
        if isinstance(adapted.get("reasoning"), dict):
            _keep(adapted, "reasoning", _pick(adapted["reasoning"], _REASONING))
        if not accepts_service_tier(adapted.get("service_tier", "auto")):
            del adapted["service_tier"]
        return drop_empty_tools(mend_items(adapted, _mend))

    def ask_tokens(self, body: dict[str, Any]) -> TokenQuestion | None:
        """Return a question for its tokenizer."""
        try:
            return ask_vllm(write_request(body, max_tokens="max_tokens"))
        except InvalidRequest:
            # An item that chats have no form for.
            return None


def accepts_include(value: Any) -> bool:
    """Whether vLLM knows this `include` value."""
    return value in _INCLUDE


def accepts_service_tier(value: Any) -> bool:
    """Whether vLLM knows this service tier."""
    return value in _SERVICE_TIERS


def _keep(body: dict[str, Any], key: str, value: Any) -> None:
    if value:
        body[key] = value
    else:
        del body[key]


def _pick(source: Item, keys: tuple[str, ...]) -> Item:
    return {key: source[key] for key in keys if source.get(key) is not None}


def _mend(item: Item) -> Item | None:
    match item.get("type") or "message":
        case "reasoning":
            return _mend_reasoning(item)
        case "message":
            return _mend_message(item)
        case "function_call":
            return close_item(_pick(item, _CALL_KEYS))
        case "function_call_output":
            return close_item(_mend_output(_pick(item, _OUTPUT_KEYS)))
        case "compaction":
            # Sealed by somebody else, and nothing it could read.
            return None
        case _:
            return close_item({key: value for key, value in item.items() if value is not None})


def _mend_reasoning(item: Item) -> Item | None:
    # Sealed reasoning raises, and an item without readable text would become an empty assistant message.
    text = read_reasoning(item)
    if not text:
        return None
    return {
        "type": "reasoning",
        # Required but never read; some clients replay without it.
        "id": item.get("id") or "rs_replayed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        "status": "completed",
    }


def _mend_output(item: Item) -> Item:
    # A picture in an output must say how closely it is to be looked at; in a message it need not.
    output = item.get("output")
    if not isinstance(output, list):
        return item
    parts = [{"detail": "auto", **part} if part.get("type") == "input_image" else part for part in output]
    return {**item, "output": parts}


def _mend_message(item: Item) -> Item:
    message = close_item(_pick(item, _MESSAGE_KEYS))
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return message
    # Only the first part is read, and a refusal has no `text` to read.
    text = join_text(content)
    if item.get("id") is None:
        # Without an id this is no output message, and the input form has no output_text parts.
        return {**message, "content": text}
    part = {"type": "output_text", "text": text, "annotations": []}
    return {**message, "type": "message", "id": item["id"], "status": "completed", "content": [part]}
