"""What a chat answer says, whether it comes in one piece or in many."""

from collections.abc import Iterable
from typing import Any, Final

from gateway.protocol import codec
from gateway.protocol.upstream_events import text_of

Object = dict[str, Any]

# Why an answer ended before the model was done with it, in the words of Responses.
_CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Said by servers that gave an inference up.
_FAILED: Final = frozenset({"abort", "error"})


def read_first_choice(answer: Object) -> Object | None:
    """Return the first of the alternatives, the only one that was asked for, or None."""
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            return choice
    return None


def read_thought(message: Object) -> str:
    """Return the reasoning, which servers call by two names."""
    return text_of(message.get("reasoning")) or text_of(message.get("reasoning_content")) or ""


def read_text(message: Object) -> str:
    """Return the text, which a few servers send in parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) or "" for part in content if isinstance(part, dict))
    return text_of(content) or ""


def read_calls(message: Object) -> Iterable[Object]:
    """Return the calls of tools; one in the form of before there were several is as good as one."""
    calls = message.get("tool_calls")
    found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    legacy = message.get("function_call")
    return found or ([{"index": 0, "function": legacy}] if isinstance(legacy, dict) else [])


def read_function(call: Object) -> tuple[str, str]:
    """Return name and arguments, each as far as it is known; a few servers send arguments as an object."""
    given = call.get("function")
    function: Object = given if isinstance(given, dict) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = codec.encode(arguments).decode()
    return text_of(function.get("name")) or "", text_of(arguments) or ""


def read_logprobs(choice: Object) -> list[Any]:
    """Return the log probabilities of the tokens."""
    given = choice.get("logprobs")
    tokens = given.get("content") if isinstance(given, dict) else None
    return tokens if isinstance(tokens, list) else []


def read_error(answer: Object) -> Any:
    """Return the error an answer is in place of one, or None."""
    return answer.get("error") or (answer if answer.get("object") == "error" else None)


def write_ending(answer: Object, finish: str | None, usage: Any) -> Object:
    """Return what a finished response has beside its output.

    Args:
        answer: the chat answer, or one piece of it.
        finish: its `finish_reason`.
        usage: its `usage`.
    """
    reason = _CUT.get(finish or "")
    ending: Object = {
        "id": answer.get("id"),
        "model": answer.get("model"),
        "status": "incomplete" if reason else "completed",
        "usage": _write_usage(usage),
    }
    if finish in _FAILED:
        message = f"The inference server gave the answer up (finish_reason '{finish}')."
        ending |= {"status": "failed", "error": {"code": "server_error", "message": message}}
    return {**ending, "incomplete_details": {"reason": reason}} if reason else ending


def _write_usage(usage: Any) -> Object | None:
    if not isinstance(usage, dict):
        return None
    return {
        "input_tokens": usage.get("prompt_tokens"),
        "input_tokens_details": usage.get("prompt_tokens_details"),
        "output_tokens": usage.get("completion_tokens"),
        "output_tokens_details": usage.get("completion_tokens_details"),
        "total_tokens": usage.get("total_tokens"),
    }
