"""The creates of one client on a scripted engine, made one by one without a transport."""

import asyncio

from engine.doubles import Bench, Listener, streamed, types
from harness.engine import says
from msgspec import structs

from gateway.config.schema import WebSocketConfig
from gateway.engine.plan import Caller
from gateway.protocol.frames import tag_overhead
from gateway.storage.memory import MemoryStore


class CountingStore(MemoryStore):
    """Counts what is read from it."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    async def history(self, principal, response_id):
        self.reads += 1
        return await super().history(principal, response_id)

    async def holds(self, principal, response_id):
        self.reads += 1
        return await super().holds(principal, response_id)

    async def response(self, principal, response_id):
        self.reads += 1
        return await super().response(principal, response_id)

    async def items(self, principal, item_ids):
        self.reads += 1
        return await super().items(principal, item_ids)


class Connection:
    """The creates of one client, each on its lane, with what they share."""

    def __init__(self, bench=None, **bounds):
        self.bench = bench or Bench(store=CountingStore())
        self.engine = self.bench.engine
        if bounds:
            self.engine.reconfigure(structs.replace(self.bench.config, websocket=WebSocketConfig(**bounds)))
        self.session = self.engine.open_session()

    async def create(self, *replies, lane=None, **fields):
        """Make one response and return its events, decoded; raises what it fails with before any event."""
        self.bench.upstream.replies.extend(replies)
        body = {"model": "m", "input": "hi", "stream": True, **fields}
        with self.session.begin(lane, body.get("previous_response_id")) as continuation:
            request, route = self.engine.read_fields(body, on_websocket=True)
            caller = Caller(principal="local", transport="websocket", headers={}, overhead=tag_overhead(lane))
            plan = await self.engine.prepare(caller, request, route, continuation)
            listener = Listener()
            listener.task = asyncio.current_task()
            await self.engine.stream(plan, listener)
            return listener.take()

    async def tell(self, given, parent=None, lane=None, *, store=False, says_=None, **fields):
        """Have one turn that succeeds and return the id of its response."""
        reply = streamed(says(says_ or f"re {given}"))
        told = await self.create(reply, lane=lane, input=given, store=store, previous_response_id=parent, **fields)
        assert types(told)[-1] == "completed"
        return told[-1]["response"]["id"]

    @property
    def sent(self):
        """The texts of the last call."""
        items = self.bench.upstream.bodies[-1]["input"]
        contents = [item["content"] for item in items]
        return [content if isinstance(content, str) else content[0]["text"] for content in contents]


def failure_of(told):
    assert types(told)[-1] == "failed"
    return told[-1]["response"]["error"]
