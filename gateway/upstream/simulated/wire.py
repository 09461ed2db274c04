"""A plan as vLLM puts it on the wire.

What differs from the API stays different, for the gateway is tested against it: `response.completed` also for an
incomplete response, every item `completed`, no `[DONE]`, members missing and to spare.
"""

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from gateway.upstream.simulated.plan import Call, Plan, Refuse, Say, Step, Think, split_tokens
from gateway.upstream.simulated.requests import MAX_MODEL_LEN, Asked

_ECHOED = ("instructions", "metadata", "reasoning", "text", "top_logprobs", "user", "max_tool_calls")


class Frame(Struct, frozen=True):
    """One event on the wire.

    Attributes:
        data: its bytes.
        paced: it carries a token, before which a model would have to think.
        last: it ends the response.
    """

    data: bytes
    paced: bool = False
    last: bool = False


class Writer:
    """Writes one response.

    Args:
        asked: the request.
        plan: what is said.
        created_at: Unix seconds.
    """

    def __init__(self, asked: Asked, plan: Plan, *, created_at: int) -> None:
        self._asked = asked
        self._plan = plan
        self._created_at = created_at
        self._id = f"resp_{secrets.token_hex(8)}"
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self.tokens = 0
        self._thought = 0

    def stream(self) -> Iterator[Frame]:
        """Yield the events of the response."""
        opening = self._snapshot("in_progress")
        yield self._frame("response.created", response=opening)
        yield self._frame("response.in_progress", response=opening)
        for step in self._plan.steps:
            yield from self._write(step)
        yield Frame(self._frame("response.completed", response=self._finish()).data, last=True)

    def document(self) -> bytes:
        """Return the response as one JSON body, in which reasoning has no status."""
        for step in self._plan.steps:
            for _ in self._write(step):
                pass
        for item in self._output:
            if item["type"] == "reasoning":
                item["status"] = None
        return msgspec.json.encode(self._finish())

    def error(self, message: str) -> Frame:
        """Return an error event in the middle of the stream."""
        return self._frame("error", code="server_error", message=message, param=None)

    def _write(self, step: Step) -> Iterator[Frame]:
        match step:
            case Think():
                yield from self._write_reasoning(step.text)
            case Call():
                yield from self._write_call(step)
            case Say() | Refuse():
                yield from self._write_message(step)

    def _write_reasoning(self, text: str) -> Iterator[Frame]:
        item: dict[str, Any] = {
            "id": f"rs_{secrets.token_hex(8)}",
            "summary": [],
            "type": "reasoning",
            "content": None,
            "encrypted_content": None,
        }
        part = {"text": text, "type": "reasoning_text"}
        at = {"content_index": 0, "item_id": item["id"], "output_index": len(self._output)}
        yield self._open(item)
        yield self._frame("response.content_part.added", **at, part={**part, "text": ""})
        for token in split_tokens(text):
            self._thought += 1
            yield self._token("response.reasoning_text.delta", **at, delta=token)
        yield self._frame("response.reasoning_text.done", **at, text=text)
        yield self._frame("response.content_part.done", **at, part=part)
        yield self._close({**item, "content": [part]})

    def _write_message(self, step: Say | Refuse) -> Iterator[Frame]:
        item: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(8)}",
            "content": [],
            "role": "assistant",
            "type": "message",
            "phase": None,
        }
        at = {"content_index": 0, "item_id": item["id"], "output_index": len(self._output)}
        part: dict[str, Any]
        extra: dict[str, Any]
        if isinstance(step, Say):
            kind, member, extra = "output_text", "text", {"logprobs": []}
            part = {"annotations": [], "text": step.text, "type": kind, "logprobs": None}
            empty = {**part, "text": "", "logprobs": []}
        else:
            kind, member, extra = "refusal", "refusal", {}
            part = {"refusal": step.text, "type": kind}
            empty = {**part, "refusal": ""}
        yield self._open(item)
        yield self._frame("response.content_part.added", **at, part=empty)
        for token in split_tokens(step.text):
            yield self._token(f"response.{kind}.delta", **at, delta=token, **extra)
        yield self._frame(f"response.{kind}.done", **at, **extra, **{member: step.text})
        yield self._frame("response.content_part.done", **at, part=part)
        yield self._close({**item, "content": [part]})

    def _write_call(self, call: Call) -> Iterator[Frame]:
        item = {
            "arguments": "",
            "call_id": f"chatcmpl-tool-{secrets.token_hex(8)}",
            "name": call.name,
            "type": "function_call",
            "id": f"fc_{secrets.token_hex(8)}",
            "async": None,
            "caller": None,
            "namespace": None,
        }
        at = {"item_id": item["id"], "output_index": len(self._output)}
        yield self._open(item)
        for token in split_tokens(call.text):
            yield self._token("response.function_call_arguments.delta", **at, delta=token)
        yield self._frame("response.function_call_arguments.done", **at, arguments=call.text, name=call.name)
        yield self._close({**item, "arguments": call.text})

    def _open(self, item: dict[str, Any]) -> Frame:
        added = {**item, "status": "in_progress"}
        return self._frame("response.output_item.added", item=added, output_index=len(self._output))

    def _close(self, item: dict[str, Any]) -> Frame:
        done = {**item, "status": "completed"}
        self._output.append(done)
        return self._frame("response.output_item.done", item=done, output_index=len(self._output) - 1)

    def _token(self, type: str, **fields: Any) -> Frame:
        self.tokens += 1
        return Frame(self._frame(type, **fields).data, paced=True)

    def _frame(self, type: str, **fields: Any) -> Frame:
        event = {**fields, "sequence_number": self._sequence, "type": type}
        self._sequence += 1
        return Frame(b"event: %b\ndata: %b\n\n" % (type.encode(), msgspec.json.encode(event)))

    def _finish(self) -> dict[str, Any]:
        status = "incomplete" if self._plan.incomplete else "completed"
        snapshot = self._snapshot(status)
        snapshot["output"] = self._output
        snapshot["usage"] = self._usage()
        if self._plan.incomplete:
            snapshot["incomplete_details"] = {"reason": "max_output_tokens"}
        return snapshot

    def _usage(self) -> dict[str, Any]:
        return {
            "input_tokens": self._asked.tokens,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": self.tokens,
            "output_tokens_details": {
                "reasoning_tokens": self._thought,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": self._asked.tokens + self.tokens,
        }

    def _snapshot(self, status: str) -> dict[str, Any]:
        body = self._asked.body
        tools = body.get("tools") or []
        return {
            "id": self._id,
            "created_at": self._created_at,
            "incomplete_details": None,
            **{key: body.get(key) for key in _ECHOED},
            "model": self._asked.model,
            "object": "response",
            "output": [],
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "temperature": body.get("temperature", 1.0),
            "tool_choice": body.get("tool_choice", "auto") if tools else "none",
            "tools": tools,
            "top_p": body.get("top_p", 1.0),
            "background": False,
            "max_output_tokens": body.get("max_output_tokens") or MAX_MODEL_LEN - self._asked.tokens,
            "previous_response_id": None,
            "prompt": None,
            "service_tier": body.get("service_tier") or "auto",
            "status": status,
            "truncation": body.get("truncation") or "disabled",
            "usage": None,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }
