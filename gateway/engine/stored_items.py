"""Items as they are stored."""

from functools import cache
from typing import Any

from msgspec import UNSET

from gateway.ports import Ids, StoredItem
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.ids import prefix_of
from gateway.protocol.items import AgentRef


def build_stored_item(ids: Ids, role: str, item: Any, data: bytes) -> StoredItem:
    """Return an item as it is stored; an output item belongs to the agent it names, and else to the root.

    Args:
        ids: mints an id where the item came without one.
        role: what the item is to its response.
        item: the item, a Struct or an object.
        data: its JSON.
    """
    if isinstance(item, dict):
        kind, agent = str(item["type"]), item.get("agent")
        item_id, call_id, status = item.get("id"), item.get("call_id"), item.get("status")
        # Of what a client sends, only what its type needs has been looked at.
        item_id = item_id if type(item_id) is str else None
        call_id = call_id if type(call_id) is str else None
        status = status if type(status) is str else None
    else:
        kind, item_id, call_id = _type_of(item.__class__), item.id, getattr(item, "call_id", None)
        status, agent = item.status, item.agent
    return StoredItem(
        role=role,
        type=kind,
        id=item_id or ids.mint(prefix_of(kind)),
        call_id=call_id,
        status=status,
        agent=ROOT if agent is None or agent is UNSET or role != "output" else _path(agent),
        data=data,
    )


@cache
def _type_of(kind: type[Any]) -> str:
    """Return the type of an item; each look into a Struct's configuration builds it anew."""
    return str(kind.__struct_config__.tag)


def _path(agent: Any) -> str:
    if isinstance(agent, AgentRef):
        return agent.agent_name
    path = agent.get("agent_name") if isinstance(agent, dict) else None
    return path if isinstance(path, str) and path else ROOT
