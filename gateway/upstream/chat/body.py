"""From a chat answer in one piece to a Responses object."""

from typing import Any

from gateway.protocol import codec
from gateway.protocol.upstream_events import text_of
from gateway.upstream.chat.answers import (
    Object,
    read_calls,
    read_error,
    read_first_choice,
    read_function,
    read_logprobs,
    read_text,
    read_thought,
    write_ending,
)


def translate_body(body: bytes) -> bytes:
    """Return a chat answer as a Responses object; what is no chat answer stays as it is, for others to refuse."""
    try:
        answer = codec.decode(body)
    except ValueError:
        return body
    if not isinstance(answer, dict):
        return body
    error = read_error(answer)
    if error is not None:
        failure = error if isinstance(error, dict) else {"message": error}
        return codec.encode({"status": "failed", "error": failure})
    choice = read_first_choice(answer)
    if choice is None:
        return body
    ending = write_ending(answer, text_of(choice.get("finish_reason")), answer.get("usage"))
    return codec.encode({**ending, "output": _write_output(choice)})


def _write_output(choice: Object) -> list[Object]:
    given = choice.get("message")
    message: Object = given if isinstance(given, dict) else {}
    output: list[Object] = []
    if thought := read_thought(message):
        content = [{"type": "reasoning_text", "text": thought}]
        output.append({"type": "reasoning", "summary": [], "content": content})
    parts: list[Object] = []
    if text := read_text(message):
        logprobs = _match_logprobs(read_logprobs(choice), text)
        parts.append({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
    if refusal := text_of(message.get("refusal")):
        parts.append({"type": "refusal", "refusal": refusal})
    if parts:
        output.append({"type": "message", "role": "assistant", "content": parts})
    for call in read_calls(message):
        name, arguments = read_function(call)
        output.append(
            {"type": "function_call", "call_id": call.get("id"), "name": name, "arguments": arguments},
        )
    return output


def _match_logprobs(logprobs: list[Any], text: str) -> list[Any]:
    """Return the tokens of the text alone: those of reasoning, calls and marks may be among them.

    Where tokens hold halves of characters the text is not found in them, and all are returned.
    """
    tokens = [text_of(entry.get("token")) or "" if isinstance(entry, dict) else "" for entry in logprobs]
    start = "".join(tokens).rfind(text)
    if start < 0:
        return logprobs
    found: list[Any] = []
    at, end = 0, start + len(text)
    for entry, token in zip(logprobs, tokens, strict=True):
        if at < end and at + len(token) > start:
            found.append(entry)
        at += len(token)
    return found
