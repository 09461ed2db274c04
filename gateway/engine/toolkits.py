"""What opens the gateway's own tools for one response."""

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.engine.plan import Caller
from gateway.ports import ToolContext, Toolkit, Tools
from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.requests import CreateRequest
from gateway.protocol.turn import Turn


def find_tools(
    tools: Tools | None, caller: Caller, request: CreateRequest, turn: Turn, items: list[dict[str, Any]], first_new: int
) -> Callable[[], Toolkit] | None:
    """Return what opens the gateway's tools for a response; None where it declares none, or is a warm-up.

    Args:
        tools: what the gateway runs itself.
        caller: who asks.
        request: for what.
        turn: the response.
        items: the effective input, in the client's form.
        first_new: where its own input begins.
    """
    if not request.toolset.hosted or tools is None or not request.generate:
        return None
    names = request.toolset.names
    context = ToolContext(
        principal=caller.principal,
        response_id=turn.response.id,
        include=frozenset(request.fields.include or ()),
        items=items,
        first_new=first_new,
        names=names if request.agents is None else names.union(ACTIONS),
    )
    return partial(tools.open, request.toolset.hosted, context)
