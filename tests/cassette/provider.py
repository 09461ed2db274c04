"""A provider of agent trees that says the same thing every time, for as long as the client does."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

ROOT, ALPHA, BETA, LEAD = "/root", "/root/alpha", "/root/beta", "/root/lead"


class Provider:
    """Two children call `get_proposal`, or one calls while the other writes; outputs resume them.

    Args:
        ends_after: after how many injects a response ends although calls are open; 0 for at once.
        mangle: changes each event before it is sent, to be wrong on purpose.
    """

    def __init__(self, *, ends_after: int | None = None, mangle: Callable[[dict], dict] = lambda event: event) -> None:
        self.ends_after = ends_after
        self.mangle = mangle
        self.created: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.on_connect: Callable[[ServerConnection], Any] | None = None

    async def handle(self, socket: ServerConnection) -> None:
        self.headers.append(socket.request.headers)
        if self.on_connect is not None:
            await self.on_connect(socket)
        talk = _Talk(self, socket)
        try:
            async for message in socket:
                await talk.take(json.loads(message))
        except ConnectionClosed:
            pass


class _Run:
    def __init__(self, id: str, lane: str | None) -> None:
        self.id = id
        self.lane = lane
        self.number = 0
        self.output: list[dict] = []
        self.pending: dict[str, str] = {}
        self.answered: set[str] = set()
        self.is_over = False
        self.controls_left = 0


class _Talk:
    def __init__(self, provider: Provider, socket: ServerConnection) -> None:
        self.provider = provider
        self.socket = socket
        self.runs: dict[str, _Run] = {}

    async def take(self, event: dict) -> None:
        kind = event["type"]
        if kind == "response.create":
            await self.create(event)
        elif kind == "response.inject":
            await self.inject(event)
        else:
            await self.tell_error(f"unknown {kind}")

    async def create(self, event: dict) -> None:
        provider = self.provider
        provider.created.append(event)
        if event.get("store") is False:
            await self.tell_error("multi_agent requires store: true", event.get("stream_id"))
            return
        run = _Run(f"resp_{len(provider.created)}", event.get("stream_id"))
        self.runs[run.id] = run
        response = {"id": run.id, "status": "in_progress", "output": []}
        response["previous_response_id"] = event.get("previous_response_id")
        await self.tell(run, {"type": "response.created", "response": response})
        await self.tell(run, {"type": "response.in_progress", "response": response})
        if event.get("context_management"):
            await self.item(run, ROOT, {"type": "compaction", "encrypted_content": "sealed"}, encrypted_content="")
        if not isinstance(event["input"], str) or "get_proposal" not in event["input"]:
            await self.finish(run)
            return
        await self.work(run, event["input"])
        if provider.ends_after == 0:
            await self.complete(run)

    async def work(self, run: _Run, prompt: str) -> None:
        if "lead" in prompt:
            await self.spawn(run, LEAD)
            await self.spawn(run, f"{LEAD}/alpha", LEAD)
            await self.call(run, f"{LEAD}/alpha", "alpha")
        elif "Interrupt" in prompt:
            await self.spawn(run, BETA)
            await self.act(run, "interrupt_agent", {"target": "beta"}, '{"previous_status": "running"}')
            await self.act(run, "followup_task", {"target": "beta"}, "")
            await self.call(run, BETA, "beta")
        else:
            await self.compare(run, prompt)

    async def compare(self, run: _Run, prompt: str) -> None:
        for path in (ALPHA, BETA):
            await self.spawn(run, path)
        await self.call(run, ALPHA, "alpha")
        if "600 words" in prompt:
            run.controls_left = 2
            await self.write(run, BETA, "beta writes")
        else:
            await self.call(run, BETA, "beta")

    async def inject(self, event: dict) -> None:
        if "input" not in event:
            await self.tell_error("input is missing")
            await self.socket.close(1008)
            return
        run = self.runs.get(event["response_id"])
        if run is not None:
            run.controls_left -= 1
        refusal = self.find_refusal(run, event)
        if refusal is not None:
            code, message = refusal
            failed = {"type": "response.inject.failed", "response_id": event["response_id"], "input": event["input"]}
            await self.tell(run or _Run("", None), {**failed, "error": {"code": code, "message": message}})
            if run is not None:
                await self.end(run)
            return
        await self.tell(run, {"type": "response.inject.created", "response_id": run.id})
        for item in event["input"]:
            path = run.pending.pop(item["call_id"])
            run.answered.add(item["call_id"])
            await self.write(run, path, f"{path}: {item['output']}")
        await self.end(run)

    async def end(self, run: _Run) -> None:
        """End the response when nobody works any more, or its time has come."""
        if run.is_over or run.controls_left > 0:
            return
        if not run.pending:
            await self.finish(run)
        elif self.provider.ends_after is not None and len(run.answered) >= self.provider.ends_after:
            await self.complete(run)

    def find_refusal(self, run: _Run | None, event: dict) -> tuple[str, str] | None:
        if run is None:
            return "response_not_found", f"Response '{event['response_id']}' was not found."
        if run.is_over:
            return "response_already_completed", f"Response '{run.id}' has already completed."
        seen = set(run.answered)
        for item in event["input"]:
            call_id = item["call_id"]
            if call_id in seen:
                return "invalid_input", f"Tool call '{call_id}' already has an output."
            if call_id not in run.pending:
                return "invalid_input", f"Tool call '{call_id}' is not pending on response '{run.id}'."
            seen.add(call_id)
        return None

    async def spawn(self, run: _Run, path: str, parent: str = ROOT) -> None:
        name = path.rpartition("/")[2]
        await self.act(run, "spawn_agent", {"task_name": name}, json.dumps({"task_name": path}), parent)

    async def act(self, run: _Run, action: str, arguments: dict, told: str, path: str = ROOT) -> None:
        call = {"type": "multi_agent_call", "call_id": f"call_{run.id}_{len(run.output)}", "action": action}
        await self.item(run, path, {**call, "arguments": json.dumps(arguments)}, arguments="")
        text = {"type": "output_text", "text": told, "annotations": [], "logprobs": []}
        await self.item(run, path, {**call, "type": "multi_agent_call_output", "output": [text]}, output=[])

    async def call(self, run: _Run, path: str, proposal: str) -> None:
        call_id = f"call_p_{run.id}_{proposal}"
        run.pending[call_id] = path
        arguments = json.dumps({"proposal": proposal})
        call = {"type": "function_call", "call_id": call_id, "name": "get_proposal", "arguments": arguments}
        await self.item(run, path, {**call, "status": "completed"}, arguments="", status="in_progress")

    async def write(self, run: _Run, path: str, text: str) -> None:
        index = len(run.output)
        agent = {"agent_name": path}
        id = f"msg_{run.id}_{index}"
        message = {"type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": []}
        place = {"agent": agent, "output_index": index}
        part = {"type": "output_text", "text": text, "annotations": []}
        inside = {**place, "item_id": id, "content_index": 0}
        added = {**message, "agent": agent}
        done = {**added, "status": "completed", "content": [part], "phase": "final_answer"}
        run.output.append(done)
        await self.tell(run, {"type": "response.output_item.added", **place, "item": added})
        await self.tell(run, {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}})
        await self.tell(run, {"type": "response.output_text.delta", **inside, "delta": text, "obfuscation": "x9"})
        await self.tell(run, {"type": "response.output_text.done", **inside, "text": text})
        await self.tell(run, {"type": "response.content_part.done", **inside, "part": part})
        await self.tell(run, {"type": "response.output_item.done", **place, "item": done})

    async def item(self, run: _Run, path: str, item: dict, **before: Any) -> None:
        index = len(run.output)
        agent = {"agent_name": path}
        done = {**item, "id": f"item_{run.id}_{index}", "agent": agent}
        run.output.append(done)
        place = {"agent": agent, "output_index": index}
        await self.tell(run, {"type": "response.output_item.added", **place, "item": {**done, **before}})
        await self.tell(run, {"type": "response.output_item.done", **place, "item": done})

    async def finish(self, run: _Run) -> None:
        await self.write(run, ROOT, "Choose alpha.")
        await self.complete(run)

    async def complete(self, run: _Run) -> None:
        run.is_over = True
        response = {"id": run.id, "status": "completed", "output": run.output}
        await self.tell(run, {"type": "response.completed", "response": response})

    async def tell(self, run: _Run, event: dict) -> None:
        lane = {"stream_id": run.lane} if run.lane else {}
        numbered = {"type": event["type"], "sequence_number": run.number, **event, **lane}
        run.number += 1
        await self.socket.send(json.dumps(self.provider.mangle(numbered)))

    async def tell_error(self, message: str, lane: str | None = None) -> None:
        error = {"type": "invalid_request_error", "code": None, "message": message, "param": None}
        shown = {"type": "error", "status": 400, "error": error, **({"stream_id": lane} if lane else {})}
        await self.socket.send(json.dumps(shown))


@asynccontextmanager
async def provided(provider: Provider, **options: Any) -> AsyncIterator[str]:
    """Serve a provider on loopback and give its URL."""
    server: Server = await serve(provider.handle, "127.0.0.1", 0, ping_interval=None, **options)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.wait_for(server.wait_closed(), 10)
