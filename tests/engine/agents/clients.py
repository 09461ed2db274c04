"""Clients that make responses of agents, one after the other."""

import asyncio
import json
from typing import Any

import pytest
from engine.agents.bench import TOOL
from engine.doubles import Bench, Listener, OpenSealer
from harness.agents import AgentUpstream

from gateway.engine.plan import Caller, Plan
from gateway.ports import History
from gateway.protocol.errors import InvalidRequest
from gateway.storage.memory import MemoryStore

Json = dict[str, Any]

HEADERS = [(b"openai-beta", b"responses_multi_agent=v1")]
ON = {"enabled": True}


class Client:
    """Makes responses of agents, or of a single model, one after the other, as a client does."""

    def __init__(self, script: Any = None, **config: Any) -> None:
        self.played = AgentUpstream(script or {})
        self.bench = Bench(played=self.played, **{"sealer": OpenSealer(), **config})

    async def plan(self, principal: str = "local", transport: str = "json", **fields: Any) -> Plan:
        engine = self.bench.engine
        body = {"model": "m", "input": "hi", "tools": [TOOL], "multi_agent": ON, **fields}
        request, route = engine.read(json.dumps(body).encode(), HEADERS)
        return await engine.prepare(Caller(principal=principal, transport=transport, headers={}), request, route)

    async def answer(self, **fields: Any) -> Json:
        made: Json = json.loads(await self.bench.engine.answer(await self.plan(**fields)))
        return made

    async def refusal(self, **fields: Any) -> tuple[Any, Any]:
        """Why a request is refused; nothing is asked or stored then."""
        asked, stored = len(self.played), dict(self.bench.store._responses)
        with pytest.raises(InvalidRequest) as refused:
            await self.plan(**fields)
        assert (len(self.played), self.bench.store._responses) == (asked, stored)
        return refused.value.param, refused.value.code


def output(call_id: str, text: str = "six weeks") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


class Counting(MemoryStore):
    """A store that counts the histories it reads."""

    read = 0

    async def history(self, principal: str, response_id: str) -> History | None:
        self.read += 1
        return await super().history(principal, response_id)


class Socket(Client):
    """A client of one connection."""

    def __init__(self, script: Any = None, **config: Any) -> None:
        super().__init__(script, store=Counting(), **config)
        self.session = self.bench.engine.open_session()

    async def create(self, lane: str | None = None, **fields: Any) -> Json:
        engine = self.bench.engine
        body = {"model": "m", "input": "hi", "tools": [TOOL], **fields}
        with self.session.begin(lane, body.get("previous_response_id")) as continuation:
            request, route = engine.read_fields(body, on_websocket=True, agents_header=True)
            caller = Caller(principal="local", transport="websocket", headers={})
            plan = await engine.prepare(caller, request, route, continuation)
            assert plan.tree is None or plan.tree.is_live
            listener = Listener()
            listener.task = asyncio.create_task(engine.stream(plan, listener))
            made: Json = (await listener.take_all())[-1]["response"]
        return made
