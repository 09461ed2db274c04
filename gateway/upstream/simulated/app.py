"""The simulator as a plain ASGI application."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from gateway.upstream.simulated.agents import AgentScripts
from gateway.upstream.simulated.chat import ChatWriter, read_chat
from gateway.upstream.simulated.fixture import Fixture, find_fixture
from gateway.upstream.simulated.outbound import Message, Outbound, Send
from gateway.upstream.simulated.personas import PERSONAS, Behaviour, Fault, find_persona
from gateway.upstream.simulated.plan import cut_plan
from gateway.upstream.simulated.requests import MAX_MODEL_LEN, Asked, Refusal, count_messages, decode_body, read_request
from gateway.upstream.simulated.script import ScriptedReply, take_reply
from gateway.upstream.simulated.wire import Writer

Receive = Callable[[], Awaitable[Message]]

VERSION = "0.32.0+simulated"
MAX_BODY_BYTES = 64 * 1024 * 1024
_REMEMBERED_REQUESTS = 256
_TOKENS_BEFORE_FAULT = 3
_RESPONSES = "/v1/responses"
_CHATS = "/v1/chat/completions"
_CREATES = (_RESPONSES, _CHATS)
_OTHERS = ("/health", "/version", "/v1/models", "/tokenize")
_EVENT_STREAM = "text/event-stream; charset=utf-8"
_RETRY_AFTER = {429: {"retry-after": "2"}, 503: {"retry-after": "1"}}

_log = logging.getLogger("gateway.simulator")


class Received(Struct, frozen=True):
    """A create request as it arrived: its body, its headers, names in lower case, and its path."""

    body: bytes
    headers: dict[str, str]
    path: str = _RESPONSES


class Simulator:
    """Answers like vLLM, by model name or from a script.

    It reads a request to its end before it answers, and stops generating as soon as the client is gone.

    Attributes:
        received: the latest create requests, oldest first.
        aborted: how many answers a leaving client ended.

    Args:
        itl: seconds between tokens, for models without a pace of their own.
        script: replies that come before the models' own, each used once.
        agents: what agents are told to do, in place of their messages.
    """

    def __init__(
        self,
        *,
        itl: float = 0.0,
        script: Sequence[ScriptedReply] = (),
        agents: AgentScripts = MappingProxyType({}),
    ) -> None:
        self._itl = itl
        self._agents = agents
        self._script = list(script)
        self._answers: set[asyncio.Task[str]] = set()
        self.received: deque[Received] = deque(maxlen=_REMEMBERED_REQUESTS)
        self.aborted = 0

    @property
    def active(self) -> int:
        """How many answers are being given."""
        return len(self._answers)

    def stop(self) -> None:
        """End every answer that is being given, as a dying server would."""
        for answer in self._answers:
            answer.cancel()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            return
        out = Outbound(send)
        route = (scope["method"], scope["path"])
        if scope["method"] == "POST" and scope["path"] in _CREATES:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            await self._create(scope["path"], headers, receive, out)
        elif route == ("GET", "/health"):
            await out.send_whole(200, "text/plain", b"")
        elif route == ("GET", "/version"):
            await _send_json(out, 200, {"version": VERSION})
        elif route == ("GET", "/v1/models"):
            await _send_json(out, 200, {"object": "list", "data": _list_models()})
        elif route == ("POST", "/tokenize"):
            await self._tokenize(receive, out)
        elif scope["path"] in (*_CREATES, *_OTHERS):
            await _send_json(out, 405, {"detail": "Method Not Allowed"})
        else:
            await _send_json(out, 404, {"detail": "Not Found"})

    async def _tokenize(self, receive: Receive, out: Outbound) -> None:
        try:
            body = await _read_body(receive)
            if body is not None:
                count = count_messages(decode_body(body))
                await _send_json(out, 200, {"count": count, "max_model_len": MAX_MODEL_LEN, "tokens": [0] * count})
        except Refusal as refusal:
            await _refuse(out, refusal)

    async def _create(self, path: str, headers: dict[str, str], receive: Receive, out: Outbound) -> None:
        try:
            body = await _read_body(receive)
        except Refusal as refusal:
            await _refuse(out, refusal)
            return
        if body is None:
            return
        self.received.append(Received(body, headers, path))
        started = time.perf_counter()
        answer = asyncio.create_task(self._answer(body, out, chat=path == _CHATS))
        absence = asyncio.create_task(_await_absence(receive))
        self._answers.add(answer)
        try:
            await asyncio.wait({answer, absence}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                outcome = "stopped" if answer.cancelled() else answer.result()
            else:
                outcome = "aborted: the client left"
                self.aborted += 1
            _log.info("POST %s %d bytes: %s, %.0f ms", path, len(body), outcome, 1e3 * _since(started))
        finally:
            answer.cancel()
            absence.cancel()
            await asyncio.gather(answer, absence, return_exceptions=True)
            self._answers.discard(answer)

    async def _answer(self, raw: bytes, out: Outbound, *, chat: bool) -> str:
        reply = take_reply(self._script, raw)
        if reply is not None:
            await _play(reply, out)
            return f"scripted {reply.status}"
        try:
            body = decode_body(raw)
            fixture = find_fixture(str(body.get("model")))
            if fixture is not None:
                await _send_fixture(fixture, out, stream=bool(body.get("stream")), chat=chat)
                return f"{body['model']} sent"
            asked = read_request(read_chat(body) if chat else body, self._agents)
            persona = find_persona(asked.model)
            if persona is None:
                message = f"The model `{asked.model}` does not exist."
                raise Refusal(404, message, param="model", type="NotFoundError")
            return f"{asked.model} {await self._perform(persona.behave(asked), asked, out, chat=chat)}"
        except Refusal as refusal:
            await _refuse(out, refusal)
            return f"refused with {refusal.status}"

    async def _perform(self, behaviour: Behaviour, asked: Asked, out: Outbound, *, chat: bool) -> str:
        if behaviour.raw is not None:
            content_type, body = behaviour.raw
            await out.send_whole(200, content_type, body)
            return "sent its own bytes"
        plan = cut_plan(behaviour.plan, asked.body.get("max_output_tokens"))
        writer = (ChatWriter if chat else Writer)(asked, plan, created_at=int(time.time()))
        pace = self._itl if behaviour.pace is None else behaviour.pace
        if asked.stream:
            await out.begin(200, _EVENT_STREAM)
            await self._stream(writer, behaviour, pace, out)
        else:
            await self._send_document(writer, behaviour.fault, pace, out)
        return f"{'stream' if asked.stream else 'json'} {writer.tokens} tokens"

    async def _stream(self, writer: Writer | ChatWriter, behaviour: Behaviour, pace: float, out: Outbound) -> None:
        if behaviour.piece_bytes is not None:
            data = b"".join(frame.data for frame in writer.stream())
            for start in range(0, len(data), behaviour.piece_bytes):
                await out.write(data[start : start + behaviour.piece_bytes])
                await asyncio.sleep(0)
            await out.finish()
            return
        for frame in writer.stream():
            if behaviour.fault is not None and (frame.last or writer.tokens > _TOKENS_BEFORE_FAULT):
                await _break_off(behaviour.fault, writer, out)
                return
            if frame.paced:
                await asyncio.sleep(pace)
            await out.write(frame.data)
        await out.finish()

    async def _send_document(
        self, writer: Writer | ChatWriter, fault: Fault | None, pace: float, out: Outbound
    ) -> None:
        document = writer.document()
        await asyncio.sleep(pace * writer.tokens)
        match fault:
            case None:
                await out.send_whole(200, "application/json", document)
            case Fault.CUT:
                await out.send_half(200, "application/json", document)
            case Fault.STALL:
                await asyncio.Event().wait()
            case Fault.ERROR_EVENT:
                raise Refusal(500, "The simulated engine failed.", type="InternalServerError")


async def _break_off(fault: Fault, writer: Writer | ChatWriter, out: Outbound) -> None:
    match fault:
        case Fault.CUT:
            return
        case Fault.STALL:
            await asyncio.Event().wait()
        case Fault.ERROR_EVENT:
            await out.write(writer.error("The simulated engine failed.").data)
            await out.finish()


async def _play(reply: ScriptedReply, out: Outbound) -> None:
    if reply.sse is None:
        body = msgspec.json.encode(reply.json)
        deliver = out.send_half if reply.cut else out.send_whole
        await deliver(reply.status, "application/json", body, headers=reply.headers)
        return
    await out.begin(reply.status, _EVENT_STREAM, headers=reply.headers)
    for seconds, text in reply.sse:
        await asyncio.sleep(seconds)
        await out.write(text.encode())
    if not reply.cut:
        await out.finish()


async def _send_fixture(fixture: Fixture, out: Outbound, *, stream: bool, chat: bool) -> None:
    if stream:
        await out.send_whole(200, "text/event-stream", fixture.chat_stream() if chat else fixture.stream())
    else:
        await out.send_whole(200, "application/json", fixture.chat_document() if chat else fixture.document())


async def _refuse(out: Outbound, refusal: Refusal) -> None:
    await _send_json(out, refusal.status, {"error": refusal.error}, _RETRY_AFTER.get(refusal.status))


async def _send_json(
    out: Outbound, status: int, document: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    await out.send_whole(status, "application/json", msgspec.json.encode(document), headers=headers)


async def _read_body(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise Refusal(413, f"The request is larger than {MAX_BODY_BYTES} bytes.", type="Request Entity Too Large")
        if not message.get("more_body", False):
            return bytes(body)


async def _await_absence(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _list_models() -> list[dict[str, Any]]:
    described = [(persona.name, persona.about) for persona in PERSONAS]
    described.append(("fixture-8000-1", "any fixture-SIZE-CHUNK: SIZE bytes in deltas of CHUNK bytes"))
    return [
        {
            "id": name,
            "object": "model",
            "created": 1789151000,
            "owned_by": "vllm",
            "root": name,
            "parent": None,
            "max_model_len": MAX_MODEL_LEN,
            "description": about,
        }
        for name, about in described
    ]


def _since(started: float) -> float:
    return time.perf_counter() - started
