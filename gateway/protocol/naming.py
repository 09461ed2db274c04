"""Gives the items an engine opens the names a client knows them by: our ids, usable call ids, declared tool names."""

from collections.abc import Callable
from typing import Any

from gateway.protocol.carriage import Carriage
from gateway.protocol.ids import prefix_of
from gateway.protocol.parts import Part, ReasoningPart, SummaryPart
from gateway.protocol.slots import CustomCallSlot, FunctionCallSlot, MessageSlot, OpaqueSlot, ReasoningSlot, Slot
from gateway.protocol.upstream_events import text_of

MAX_CALL_ID = 64


class Naming:
    """Makes the slots of one response.

    Args:
        mint: returns a new id for a prefix.
        carriage: names of carried tools.
        used_call_ids: call ids of the effective input; those of new calls are added.
    """

    __slots__ = ("_carriage", "_mint", "_used")

    def __init__(self, mint: Callable[[str], str], carriage: Carriage, used_call_ids: set[str]) -> None:
        self._mint = mint
        self._carriage = carriage
        self._used = used_call_ids

    def slot_for(self, item: dict[str, Any]) -> Slot:
        """Return the slot for an engine's item."""
        kind = item.get("type")
        if kind == "function_call":
            return self._function_call(item)
        item_id = self._mint(prefix_of(kind if isinstance(kind, str) else ""))
        if kind == "message":
            return MessageSlot(item_id, item)
        if kind == "reasoning":
            return ReasoningSlot(item_id, item)
        if kind == "custom_tool_call":
            call_id, name, namespace = self._call_id(item), text_of(item.get("name")), text_of(item.get("namespace"))
            return CustomCallSlot(item_id, call_id, name or "", namespace, carried=False)
        return OpaqueSlot(item_id, item)

    def slot_for_part(self, kind: type[Part]) -> Slot:
        """Return a slot for a part that came without its item's `added`."""
        if kind in (ReasoningPart, SummaryPart):
            return ReasoningSlot(self._mint(prefix_of("reasoning")), {})
        return MessageSlot(self._mint(prefix_of("message")), {})

    def name_of(self, upstream: Any) -> str:
        """Return the client's name of the tool that a call names late."""
        return self._carriage.resolve(upstream).name if isinstance(upstream, str) else ""

    def _function_call(self, item: dict[str, Any]) -> Slot:
        call_id = self._call_id(item)
        tool = self._carriage.resolve(text_of(item.get("name")) or "")
        if tool.custom:
            item_id = self._mint(prefix_of("custom_tool_call"))
            return CustomCallSlot(item_id, call_id, tool.name, tool.namespace, carried=True)
        item_id = self._mint(prefix_of("function_call"))
        return FunctionCallSlot(item_id, call_id, tool.name, tool.namespace or text_of(item.get("namespace")))

    def _call_id(self, item: dict[str, Any]) -> str:
        given = text_of(item.get("call_id"))
        call_id = given if given and len(given) <= MAX_CALL_ID and given not in self._used else None
        call_id = call_id or self._mint(prefix_of("call"))
        self._used.add(call_id)
        return call_id
