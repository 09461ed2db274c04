"""The six actions by which agents work together, as tools for a model."""

from typing import Any

from gateway.protocol.agents.bounds import Bounds

ACTIONS: tuple[str, ...] = (
    "spawn_agent",
    "send_message",
    "followup_task",
    "wait_agent",
    "interrupt_agent",
    "list_agents",
)


def build_tools(bounds: Bounds) -> list[dict[str, Any]]:
    """Return the actions as function tools in the engine's form, always in the same order."""
    raise NotImplementedError
