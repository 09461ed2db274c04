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
        kind, item_id, call_id = str(item["type"]), _text(item.get("id")), _text(item.get("call_id"))
        status, agent = _text(item.get("status")), item.get("agent")
    else:
        kind, item_id, call_id = _type_of(item.__class__), item.id, getattr(item, "call_id", None)
        status, agent = item.status, item.agent
    return StoredItem(
        role=role,
        type=kind,
        id=item_id or ids.mint(prefix_of(kind)),
        call_id=call_id,
        status=status,
        agent=_path(agent) if role == "output" and agent is not None and agent is not UNSET else ROOT,
        data=data,
    )


@cache
def _type_of(kind: type[Any]) -> str:
    """Return the type of an item; each look into a Struct's configuration builds it anew."""
    return str(kind.__struct_config__.tag)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _path(agent: Any) -> str:
    if isinstance(agent, AgentRef):
        return agent.agent_name
    return (_text(agent.get("agent_name")) if isinstance(agent, dict) else None) or ROOT
