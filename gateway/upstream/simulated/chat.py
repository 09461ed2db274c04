"""The same models in Chat Completions: a chat read as a Responses request, and a plan written as vLLM writes chats."""

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.upstream.simulated.plan import Call, Plan, Refuse, Step, Think, split_tokens
from gateway.upstream.simulated.requests import Asked, Refusal
from gateway.upstream.simulated.wire import Frame

DONE = b"data: [DONE]\n\n"


def read_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Return the Responses request that asks a model for the same.

    Raises:
        Refusal: its messages are none.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Refusal(400, "1 validation error: messages", param="body.messages", type="Bad Request")
    tools = [tool for tool in body.get("tools") or [] if isinstance(tool, dict)]
    choice = body.get("tool_choice")
    limit = body.get("max_completion_tokens")
    return {
        "model": body.get("model"),
        "stream": body.get("stream"),
        "stream_options": body.get("stream_options"),
        "input": [item for message in messages for item in _read_message(message)],
        "tools": [{"type": "function", **(tool.get("function") or {})} for tool in tools],
        "tool_choice": (choice.get("function") or {}) if isinstance(choice, dict) else choice,
        "max_output_tokens": body.get("max_tokens") if limit is None else limit,
    }


def _read_message(message: dict[str, Any]) -> list[dict[str, Any]]:
    if message.get("role") == "tool":
        return [
            {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": message.get("content")}
        ]
    calls = [call.get("function") or {} for call in message.get("tool_calls") or []]
    said = {"type": "message", "role": message.get("role"), "content": message.get("content")}
    thought = message.get("reasoning_content")
    items = [{"type": "reasoning", "content": [{"text": thought}]}] if thought else []
    return [*items, said, *({"type": "function_call", **call} for call in calls)]


class ChatWriter:
    """Writes one chat answer.

    Args:
        asked: the request, as `read_chat` returned it.
        plan: what is said.
        created_at: Unix seconds.
    """

    def __init__(self, asked: Asked, plan: Plan, *, created_at: int) -> None:
        self._asked = asked
        self._plan = plan
        self._created_at = created_at
        self._id = f"chatcmpl-{secrets.token_hex(8)}"
        self.tokens = 0
        self._thought = 0
        self._calls = 0

    def stream(self) -> Iterator[Frame]:
        """Yield the chunks of the answer, the usage where it was asked for, and the mark of the end."""
        yield self._chunk({"role": "assistant", "content": ""})
        for step in self._plan.steps:
            yield from self._write(step)
        ending = self._chunk({}, finish=self._finish())
        yield Frame(ending.data, last=True)
        if (self._asked.body.get("stream_options") or {}).get("include_usage"):
            yield Frame(_frame(self._envelope("chat.completion.chunk", [], usage=self._count_tokens())), last=True)
        yield Frame(DONE, last=True)

    def document(self) -> bytes:
        """Return the answer as one JSON body."""
        message: dict[str, Any] = {
            "role": "assistant", "content": None, "refusal": None, "annotations": None, "audio": None,
            "function_call": None, "reasoning": None,
        }  # fmt: skip
        calls: list[dict[str, Any]] = []
        for step in self._plan.steps:
            for _ in self._write(step):
                pass
            if isinstance(step, Call):
                calls.append(
                    {"id": _call_id(), "type": "function", "function": {"name": step.name, "arguments": step.text}}
                )
            else:
                member = _member(step)
                message[member] = (message[member] or "") + step.text
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish()}
        usage = {**self._count_tokens(), "prompt_tokens_details": None}
        return msgspec.json.encode(self._envelope("chat.completion", [choice], usage=usage))

    def error(self, message: str) -> Frame:
        """Return an error in the middle of the stream, which is its end."""
        error = {"message": message, "type": "InternalServerError", "param": None, "code": 500}
        return Frame(_frame({"error": error}) + DONE)

    def _write(self, step: Step) -> Iterator[Frame]:
        if isinstance(step, Call):
            call = {"id": _call_id(), "type": "function", "index": self._calls, "function": {"name": step.name}}
            yield self._chunk({"tool_calls": [call]})
        for token in split_tokens(step.text):
            self.tokens += 1
            self._thought += isinstance(step, Think)
            yield Frame(self._chunk(self._continue(step, token)).data, paced=True)
        self._calls += isinstance(step, Call)

    def _continue(self, step: Step, token: str) -> dict[str, Any]:
        if isinstance(step, Call):
            return {"tool_calls": [{"index": self._calls, "function": {"arguments": token}}]}
        return {_member(step): token}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> Frame:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return Frame(_frame(self._envelope("chat.completion.chunk", [choice])))

    def _envelope(self, kind: str, choices: list[Any], **more: Any) -> dict[str, Any]:
        head = {"id": self._id, "object": kind, "created": self._created_at, "model": self._asked.model}
        return {**head, "choices": choices, **more}

    def _finish(self) -> str:
        if self._plan.incomplete:
            return "length"
        return "tool_calls" if any(isinstance(step, Call) for step in self._plan.steps) else "stop"

    def _count_tokens(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self._asked.tokens,
            "total_tokens": self._asked.tokens + self.tokens,
            "completion_tokens": self.tokens,
            "completion_tokens_details": {"reasoning_tokens": self._thought},
        }


def _member(step: Step) -> str:
    if isinstance(step, Think):
        return "reasoning"
    return "refusal" if isinstance(step, Refuse) else "content"


def _call_id() -> str:
    return f"chatcmpl-tool-{secrets.token_hex(8)}"


def _frame(document: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(document)
