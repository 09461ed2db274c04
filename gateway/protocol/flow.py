"""The short way of a text that grows: most of what an engine sends goes on with what it sent last."""

from typing import Any

from gateway.protocol.events import Event
from gateway.protocol.ledger import Ledger, text_bytes
from gateway.protocol.parts import Part
from gateway.protocol.slots import Slot
from gateway.protocol.upstream_events import TextDelta


class Flow:
    """A text of which the client has seen everything, so that its next delta is all there is to tell.

    Such a delta is neither looked up nor compared with the state of its part again, so anything else that the engine
    says in the round ends the flow.

    Args:
        first: the delta it begins with, which has been told.
        slot: the item.
        part: the part that grows.
        ledger: charged for the text.
    """

    __slots__ = ("_index", "_item_id", "_kind", "_ledger", "_output_index", "_part", "_slot")

    def __init__(self, first: Any, slot: Slot, part: Part, ledger: Ledger) -> None:
        self._kind: type[Any] = type(first)
        self._item_id = first.item_id
        self._output_index = first.output_index
        self._index = first.index
        self._slot = slot
        self._part = part
        self._ledger = ledger

    def tell(self, event: Any) -> Event | None:
        """Return the client's event for a delta that goes on with the text; None, and nothing done, for another event.

        Raises:
            ResourceLimitExceeded: the ledger refused the text.
        """
        if (
            type(event) is not self._kind
            or event.item_id != self._item_id
            or event.output_index != self._output_index
            or event.index != self._index
            or (self._kind is TextDelta and event.logprobs)
        ):
            return None
        delta: str = event.delta
        size = len(delta)
        if not delta.isascii():
            if delta[-1] >= "\ud800":
                return None  # perhaps half a character
            size = text_bytes(delta)
        elif not size:
            return None
        self._ledger.grow(self._slot, size)
        return self._part.say(delta, self._slot)
