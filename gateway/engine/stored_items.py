"""Items as they are stored."""

from functools import partial
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
    is_dict = isinstance(item, dict)
    read = item.get if is_dict else partial(getattr, item)
    kind = str(item["type"] if is_dict else item.__struct_config__.tag)
    agent = read("agent", None) if role == "output" else None
    return StoredItem(
        role=role,
        type=kind,
        id=_text(read("id", None)) or ids.mint(prefix_of(kind)),
        call_id=_text(read("call_id", None)),
        status=_text(read("status", None)),
        agent=_path(agent) if agent is not None and agent is not UNSET else ROOT,
        data=data,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _path(agent: Any) -> str:
    if isinstance(agent, AgentRef):
        return agent.agent_name
    return (_text(agent.get("agent_name")) if isinstance(agent, dict) else None) or ROOT
