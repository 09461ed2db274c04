"""A gateway in this process on a scripted inference server, and its clients over every transport."""

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
from conformance.wire import take_apart
from engine.doubles import CountingIds, OpenSealer, SettableClock, settle
from harness.agent_rules import TERMINALS, check_run
from harness.agents import AgentUpstream
from transport.asgi import Conversation as Request
from transport.client_socket import Conversation as Socket
from transport.client_socket import assert_at_rest

from gateway.app.background import build_background
from gateway.config.schema import GatewayConfig
from gateway.engine.service import Engine
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing
from gateway.tools.gate import Gate
from gateway.tools.registry import ToolRegistry
from gateway.transport.background import EventReader
from gateway.transport.http import ResponsesEndpoint

TRANSPORTS = ("json", "sse", "websocket")
BETA = (b"openai-beta", b"responses_multi_agent=v1")
AGENTS = {"multi_agent": {"enabled": True}}
PROPOSAL = {
    "type": "function",
    "name": "get_proposal",
    "description": "Return one proposal.",
    "parameters": {"type": "object", "properties": {"proposal": {"type": "string"}}, "required": ["proposal"]},
    "strict": False,
}


class CountingStore(MemoryStore):
    """A store in memory that counts what was stored.

    Attributes:
        appended: the responses, in order.
    """

    def __init__(self):
        super().__init__()
        self.appended = []

    async def append(self, response):
        await super().append(response)
        self.appended.append(response)


class Refused(AssertionError):
    """A request was answered by an error; `.error` has it and `.status` its status."""

    def __init__(self, status, error):
        super().__init__(f"{status}: {error}")
        self.status = status
        self.error = error


class Site:
    """A gateway.

    Args:
        script: what each inference of each agent says; see `AgentUpstream`.
        summaries: the same for notes.
        store: durable responses.
        server: the inference server, instead of one that plays the script.
        ids: mints ids, instead of counting from 1.
        tools: what the gateway runs itself.
        sections: sections of the configuration.

    Attributes:
        upstream: the inference server.
        store: durable responses.
        clock: the time that responses are stamped with; it stands still.
    """

    def __init__(self, script=None, *, summaries=None, store=None, server=None, ids=None, tools=None, **sections):
        self.upstream = AgentUpstream(script, summaries=summaries) if server is None else server
        self.store = CountingStore() if store is None else store
        self.clock = SettableClock()
        self.metrics = Metrics()
        self.tracing = Tracing()
        sections["multi_agent"] = {"enabled": True, **sections.get("multi_agent", {})}
        self.config = msgspec.convert(sections, GatewayConfig)
        self.engine = Engine(
            self.config,
            store=self.store,
            upstreams={"default": self.upstream},
            metrics=self.metrics,
            tracing=self.tracing,
            clock=self.clock,
            ids=ids or CountingIds(),
            sealer=OpenSealer(),
            tools=tools and ToolRegistry([tools], Gate(self.config.tools, self.metrics)),
        )
        background = build_background(self.config, self.store, self.engine, self.clock, self.metrics, self.tracing)
        events = EventReader(background, self.config, self.metrics)
        self.endpoint = ResponsesEndpoint(self.engine, background, events, self.config, self.metrics)

    # ------------------------------------------------------------ one request, whatever its transport

    async def answer(self, transport="json", **fields):
        """Make one response of several agents and return it; its events, where there are any, keep the rules.

        Raises:
            Refused: there was none.
        """
        if transport == "json":
            return await self.post(**fields)
        return (await self.events(transport, **fields))[-1]["response"]

    async def events(self, transport="sse", **fields):
        """Make one response and return its events, which keep the rules.

        Raises:
            Refused: there was none.
        """
        if transport == "sse":
            events = await self.stream(**fields)
        else:
            async with self.connect() as client:
                client.create(**fields)
                events = await client.ended()
        if events[-1]["type"] == "error":
            raise Refused(events[-1].get("status"), events[-1]["error"])
        assert check_run(events) == []
        return events

    @asynccontextmanager
    async def answering(self, transport="json", **fields):
        """Make one response beside the test, which awaits it."""
        task = asyncio.create_task(self.answer(transport, **fields))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def post(self, *, beta=True, **fields):
        """Ask over HTTP for JSON.

        Raises:
            Refused: the answer is an error.
        """
        request = self.request(beta=beta, **fields)
        await request.serve(self.endpoint)
        if request.status != 200:
            raise Refused(request.status, request.json["error"])
        return request.json

    async def stream(self, *, beta=True, **fields):
        """Ask over HTTP for events and return them, decoded.

        Raises:
            Refused: the answer is an error.
        """
        request = self.request(beta=beta, stream=True, **fields)
        await request.serve(self.endpoint)
        if request.status != 200:
            raise Refused(request.status, request.json["error"])
        events, broken = take_apart(request.body)
        assert broken == []
        return [event.data for event in events]

    def request(self, *, beta=True, **fields):
        """A request over HTTP, to be served by a test."""
        body = {"model": "m", "input": "Compare.", "tools": [PROPOSAL], **AGENTS, **fields}
        return Request(json.dumps(body).encode(), headers=[BETA] if beta else [])

    @asynccontextmanager
    async def begun(self, **fields):
        """Serve one request beside the test; it has to end in it."""
        request = self.request(**fields)
        task = asyncio.create_task(request.serve(self.endpoint))
        try:
            yield request
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])

    # ------------------------------------------------------------ WebSocket

    @asynccontextmanager
    async def connect(self, *, beta=True, check_caller=lambda: None):
        """Serve one client on a WebSocket; nothing of it outlives the test."""
        client = Client(self, [BETA] if beta else [], check_caller)
        try:
            yield client
        finally:
            if client.socket.close_code is None:
                client.socket.leave()
            await client.task
            await settle(5)

    # ------------------------------------------------------------ what is left

    def assert_at_rest(self):
        """Nothing runs, nothing is held, and the script had all that was asked for."""
        assert self.upstream.overrun == []
        assert self.upstream.running == []
        assert [asked for asked in self.upstream.asked if asked.reply.is_kept_early] == []
        assert_at_rest(self)
        seats = self.engine._seats["default"]
        assert (seats.running.now, seats.waiting.now) == (0, 0)


class Client(Socket):
    """One connection on a WebSocket, and who uses it."""

    def __init__(self, site, headers, check_caller):
        super().__init__(site, site.config, None, headers, check_caller)
        self.site = site

    def create(self, *, lane=None, **fields):
        """Send a create of several agents."""
        named = {} if lane is None else {"stream_id": lane}
        body = {"model": "m", "input": "Compare.", "tools": [PROPOSAL], **AGENTS, **named, **fields}
        self.socket.say({"type": "response.create", **body})

    def inject(self, response_id, *items, **fields):
        """Send outputs for calls of a running response."""
        self.socket.say({"type": "response.inject", "response_id": response_id, "input": list(items), **fields})

    async def until(self, found):
        """Wait until a frame is found, and return it."""
        while (frame := next((frame for frame in self.socket.frames if found(frame)), None)) is None:
            await self.socket.arrival()
        return frame

    async def event(self, type_, agent=None, count=1):
        """Wait for the n-th event of this type, of this agent if one is named."""

        def matches(frame):
            return frame["type"] == type_ and agent in (None, (frame.get("agent") or {}).get("agent_name"))

        while len(found := [frame for frame in self.socket.frames if matches(frame)]) < count:
            await self.socket.arrival()
        return found[count - 1]

    async def item(self, type_, agent=None, count=1):
        """Wait for the end of the n-th item of this type, of this agent if one is named; returns the item."""

        while len(found := self.items(type_, agent)) < count:
            await self.socket.arrival()
        return found[count - 1]

    def items(self, type_, agent=None):
        """The items of a type that have ended so far, of one agent if it is named."""
        done = [frame["item"] for frame in self.socket.frames if frame["type"] == "response.output_item.done"]
        return items_of({"output": done}, type_, agent)

    async def ended(self, lane=None, count=1):
        """Wait until so many creates of a lane have ended; returns the frames of the last."""
        while sum(frame["type"] in TERMINALS for frame in self.on(lane)) < count:
            await self.socket.arrival()
        return await super().ended(lane, count)


def output(call_id, text="{}"):
    """The output of a function."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def items_of(response, type_, agent=None):
    """A response's items of a type, of one agent if it is named."""
    return [
        item
        for item in response["output"]
        if item["type"] == type_ and (agent is None or item["agent"]["agent_name"] == agent)
    ]


def told(events):
    """Items and lifecycle of a run in short, in the order they were told: what began, what ended, and whose it is."""
    short = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind.startswith("output_item."):
            item = event["item"]
            name = item.get("action") or item.get("name") or ""
            short.append(f"{kind.removeprefix('output_item.')} {item['type']}{name and ' ' + name} {agent_of(event)}")
        elif "output_index" not in event:
            short.append(kind)
    return short


def agent_of(event):
    return event["agent"]["agent_name"]


def texts(response, agent=None):
    """What the messages of a response say, of one agent if it is named."""
    return ["".join(part["text"] for part in item["content"]) for item in items_of(response, "message", agent)]


def outcomes(response):
    """What the actions returned, in order, decoded; nothing for an empty text."""
    found = ["".join(part["text"] for part in item["output"]) for item in items_of(response, "multi_agent_call_output")]
    return [json.loads(text) if text else {} for text in found]


def errors(response):
    """What the actions returned that went wrong, without the details."""
    return [found["error"].partition(" (")[0] for found in outcomes(response) if "error" in found]


def letter(kind, recipient, author, payload):
    """Mail as a model is shown it."""
    return f"Message Type: {kind}\nTask name: {recipient}\nSender: {author}\nPayload:\n{payload}"
