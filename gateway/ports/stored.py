"""Responses and items as they are stored."""

from collections.abc import Sequence

from msgspec import Struct

from gateway.protocol.agents.stored import StoredAgent


class StoredItem(Struct, frozen=True, kw_only=True):
    """One item of a response, stored once.

    Attributes:
        role: `context` (effective history of an unstored parent), `input` or `output`.
        type: item type, for example `message` or `function_call`.
        id: the item's id as callers see it; not unique, never a key. The id minted for an input item that came without
            one stands here alone, not in `data`.
        call_id: call id of calls and their outputs, else None.
        status: item status, or None where the item has none.
        data: the item as one JSON object, encoded.
        agent: path of the owning agent.
    """

    role: str
    type: str
    id: str
    data: bytes
    call_id: str | None = None
    status: str | None = None
    agent: str = "/root"


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A finished response as it is persisted.

    Attributes:
        id: the response id.
        principal: owner; every read names it.
        parent_id: `previous_response_id`, only when the parent is stored as well.
        conversation_id: the conversation it belongs to, or None.
        status: `completed` or `incomplete` (or `queued`, `in_progress`, `failed`, `cancelled` of background runs).
        model: the model asked for.
        created_at: Unix seconds.
        completed_at: Unix seconds or None.
        snapshot: the response object as JSON **without** its `output` member's items (`"output":[]`), encoded.
        items: context, input and output items in order.
        agents: the agents that it changed, if it is a multi-agent response, else None; each with its row in order.
    """

    id: str
    principal: str
    status: str
    model: str
    created_at: int
    snapshot: bytes
    items: Sequence[StoredItem]
    parent_id: str | None = None
    conversation_id: str | None = None
    completed_at: int | None = None
    agents: Sequence[StoredAgent] | None = None

    @property
    def size(self) -> int:
        """Bytes of the snapshot, the items' JSON and the agents' states."""
        size = len(self.snapshot) + sum([len(item.data) for item in self.items])
        return size if self.agents is None else size + sum([len(agent.state) for agent in self.agents])
