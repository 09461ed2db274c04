"""An engine whose responses are made by agents that play a script."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.doubles import Bench, Json, OpenSealer
from harness.agents import AgentUpstream, Turn
from msgspec import structs

from gateway.engine.plan import Caller, Plan
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.tree import Tree
from gateway.protocol.agents.turn import TreeTurn

TOOL = {"type": "function", "name": "get_proposal", "description": "One proposal.", "parameters": {"type": "object"}}
ROOT, ALPHA, BETA = "/root", "/root/alpha", "/root/beta"


class TreeBench(Bench):
    """An engine, a server that plays a script for each agent, and a client.

    Args:
        script: what each inference of an agent says.
        summaries: what each note about the history of an agent says.
        live: outputs may come while the response is made.
        bounds: of the tree, where others than the default are wanted.
        config: further sections.
    """

    def __init__(
        self,
        script: Mapping[str, Sequence[Turn]],
        *,
        summaries: Mapping[str, Sequence[Turn]] | None = None,
        live: bool = False,
        agents: Json | None = None,
        tree: Json | None = None,
        **config: Any,
    ) -> None:
        played = AgentUpstream(script, summaries=summaries)
        super().__init__(played=played, agents=agents, sealer=OpenSealer(), **config)
        self.played = played
        self.live = live
        self.tree = tree or {}

    async def plan(self, principal: str = "local", transport: str = "json", **fields: Any) -> Plan:
        fields = {"tools": [TOOL], **fields}
        request, route = self.engine.read(json.dumps({"model": "m", "input": "hi", **fields}).encode())
        caller = Caller(principal=principal, transport=transport, headers={})
        plan = await self.engine.prepare(caller, request, route)
        tree = Tree(Bounds(**self.tree))
        tree.is_live = self.live
        tree.take_input(plan.inputs)
        turn = TreeTurn(
            plan.turn.response,
            plan.settings.limits,
            plan.turn._mint,
            carriage=request.toolset.carriage,
            used_call_ids=tree.call_ids,
            seal=lambda text: f"sealed:{text[::-1]}",
        )
        self.last = structs.replace(plan, tree=tree, turn=turn)
        return self.last

    def inject(self, response_id: str, *outputs: tuple[str, str]) -> "asyncio.Future[bool]":
        items = [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in outputs]
        answer = self.engine.runs.inject(response_id, items)
        assert answer is not None
        return asyncio.ensure_future(answer)
