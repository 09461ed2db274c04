"""The recordings told again as chats: what an engine would have sent had it been asked in Chat Completions."""

import json
from collections.abc import Iterator
from typing import Any

from conformance import capture as captures
from conformance.capture import Capture, Json, Said
from harness.upstream import Reply, Request

DONE = b"data: [DONE]\n\n"
_MEMBERS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
}


async def replay(request: Request, reply: Reply) -> None:
    """Answer with the capture that the model names, a chunk of HTTP for each of the stream's."""
    assert request.path == "/v1/chat/completions"
    capture = captures.load(request.body["model"])
    if not capture.streams:
        await reply.json(retell_body(capture))
        return
    await reply.head()
    for piece in retell_stream(capture):
        await reply.send(piece)
    if capture.cut:
        reply.cut()
    else:
        await reply.end()


def retell_body(capture: Capture) -> Json:
    """A recorded JSON answer as one of a chat."""
    assert capture.final is not None
    message: Json = {"role": "assistant", "content": None}
    for item in capture.final["output"]:
        if item["type"] == "function_call":
            message.setdefault("tool_calls", []).append(_call(len(message.get("tool_calls", [])), item))
        else:
            member = "reasoning" if item["type"] == "reasoning" else "content"
            text = "".join(part.get("text", "") for part in item.get("content") or [])
            message[member] = (message.get(member) or "") + text
    choice = {"index": 0, "message": message, "finish_reason": _finish(capture.final)}
    return {"object": "chat.completion", "choices": [choice], "usage": _usage(capture.final)}


def retell_stream(capture: Capture) -> Iterator[bytes]:
    """The events of a recorded stream as chunks of a chat, as far as they were recorded."""
    yield _chunk({"role": "assistant", "content": ""})
    calls: dict[str, int] = {}
    for event in capture.events:
        kind = event.get("type", "error")
        if kind in _MEMBERS:
            yield _chunk({_MEMBERS[kind]: event["delta"]}, logprobs={"content": event.get("logprobs")})
        elif kind == "response.output_item.added" and event["item"]["type"] == "function_call":
            number = calls[event["item"]["id"]] = len(calls)
            yield _chunk({"tool_calls": [_call(number, {**event["item"], "arguments": ""})]})
        elif kind == "response.function_call_arguments.delta":
            piece = {"index": calls[event["item_id"]], "function": {"arguments": event["delta"]}}
            yield _chunk({"tool_calls": [piece]})
        elif kind == "error":
            yield _frame(event)
        elif kind == "response.completed":
            final = event["response"]
            yield _chunk({}, finish_reason=_finish(final))
            yield _frame({"object": "chat.completion.chunk", "choices": [], "usage": _usage(final)})
            yield DONE


def told(said: list[Said]) -> list[Said]:
    """What a chat can tell of items: none that is empty, and one for those of a kind that follow each other."""
    out: list[Said] = []
    for one in said:
        if one.type == "function_call":
            out.append(one)
        elif one.text and out and out[-1].type == one.type:
            out[-1] = Said(one.type, out[-1].text + one.text)
        elif one.text:
            out.append(one)
    return out


def _call(index: int, item: Json) -> Json:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"index": index, "id": item["call_id"], "type": "function", "function": function}


def _finish(final: Json) -> str:
    calls = any(item["type"] == "function_call" for item in final["output"])
    return "length" if final["status"] == "incomplete" else "tool_calls" if calls else "stop"


def _usage(final: Json) -> Json:
    usage = final["usage"]
    return {
        "prompt_tokens": usage["input_tokens"],
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens": usage["output_tokens"],
        "completion_tokens_details": usage.get("output_tokens_details"),
        "total_tokens": usage["total_tokens"],
    }


def _chunk(delta: Json, **choice: Any) -> bytes:
    return _frame({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **choice}]})


def _frame(document: Json) -> bytes:
    return b"data: %b\n\n" % json.dumps(document, ensure_ascii=False).encode()
