"""An engine whose responses are made by agents that play a script."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from engine.doubles import Bench, Json, OpenSealer
from harness.agents import AgentUpstream, Turn

from gateway.engine.plan import Caller, Plan

TOOL = {"type": "function", "name": "get_proposal", "description": "One proposal.", "parameters": {"type": "object"}}
ROOT, ALPHA, BETA = "/root", "/root/alpha", "/root/beta"


class TreeBench(Bench):
    """An engine, a server that plays a script for each agent, and a client.

    Args:
        script: what each inference of an agent says.
        summaries: what each note about the history of an agent says.
        live: the client is on a WebSocket: outputs may come while the response is made.
        played: plays something else instead.
        config: sections of the configuration, as for any bench.
    """

    def __init__(
        self,
        script: Mapping[str, Sequence[Turn]],
        *,
        summaries: Mapping[str, Sequence[Turn]] | None = None,
        live: bool = False,
        models: Sequence[Json] = (),
        played: Any = None,
        **config: Any,
    ) -> None:
        played = played or AgentUpstream(script, summaries=summaries, models=models)
        super().__init__(played=played, sealer=OpenSealer(), **config)
        self.played = played
        self.live = live

    async def plan(self, principal: str = "local", transport: str = "json", **fields: Any) -> Plan:
        fields = {"input": "hi", "tools": [TOOL], "multi_agent": {"enabled": True}, **fields}
        request, route = self.engine.read_fields({"model": "m", **fields}, on_websocket=self.live, agents_header=True)
        caller = Caller(principal=principal, transport="websocket" if self.live else transport, headers={})
        return await self.engine.prepare(caller, request, route)

    def inject(self, response_id: str, *outputs: tuple[str, str]) -> "asyncio.Future[bool]":
        items = [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in outputs]
        answer = self.engine.runs.inject(response_id, items)
        assert answer is not None
        return asyncio.ensure_future(answer)
