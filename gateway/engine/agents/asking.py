"""What an inference of an agent asks for: the request of the response, as this agent has it."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from gateway.engine.plan import Plan
from gateway.ports import HostedTool
from gateway.protocol.agents.actions import build_tools
from gateway.protocol.agents.agent import Agent
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.prompts import build_guidance
from gateway.protocol.choice import Offer, Offers
from gateway.protocol.requests import CreateRequest


class Asking:
    """Plans and tools of every agent of one response.

    `tool_choice` holds for the root's first inference alone, the format of the text for the root alone.

    Args:
        plan: the response.
        bounds: of its tree.
        hosted: tools that the gateway runs.

    Raises:
        InvalidRequest: `tool_choice` requires a tool that is not offered.
    """

    def __init__(self, plan: Plan, bounds: Bounds, hosted: Sequence[HostedTool]) -> None:
        self._bounds = bounds
        self._hosted = hosted
        self._root_asked = False
        self.adopt(plan)

    def adopt(self, plan: Plan) -> None:
        """Ask by another form of the request from now on.

        Raises:
            InvalidRequest: as above.
        """
        self._plan = plan
        self._plans: dict[str, Plan] = {}
        toolset, actions = plan.request.toolset, build_tools(self._bounds)
        given = toolset.complete(self._hosted)
        free = structs.replace(toolset, given=None).complete(self._hosted)
        first = given.first if given.first.choice == "none" else _add(given.first, actions)
        self._offers = Offers(first, _add(free.later, actions))

    def plan_for(self, agent: Agent) -> Plan:
        """Return the response as this agent is asked to go on with it."""
        plan = self._plans.get(agent.path)
        if plan is None:
            request = _adapt(self._plan.request, agent, self._bounds.max_concurrent)
            plan = self._plans[agent.path] = structs.replace(self._plan, request=request)
        return plan

    def offer_for(self, agent: Agent) -> Offer:
        """Return the tools of the agent's next inference, which begins."""
        if agent.path == ROOT and not self._root_asked:
            self._root_asked = True
            return self._offers.first
        return self._offers.later

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools of most inferences."""
        return self._offers.later.tools


def _add(offer: Offer, actions: list[dict[str, Any]]) -> Offer:
    return Offer([*offer.tools, *actions], offer.choice or "auto")


def _adapt(request: CreateRequest, agent: Agent, limit: int) -> CreateRequest:
    fields = request.fields
    guidance = build_guidance(agent.path, agent.parent, limit)
    text = fields.text
    if text is not None and agent.path != ROOT:
        text = {name: value for name, value in text.items() if name != "format"} or None
    instructions = guidance if not fields.instructions else f"{fields.instructions}\n\n{guidance}"
    return structs.replace(
        request,
        fields=structs.replace(fields, instructions=instructions, text=text),
        given=[*request.given, "instructions"],
    )
