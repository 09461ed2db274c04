"""The item that tells a client of a compaction."""

from typing import Any

from gateway.protocol.compaction import COMPACTION
from gateway.protocol.events import Compacting, Event
from gateway.protocol.items import Status
from gateway.protocol.slots import Slot


class CompactionSlot(Slot):
    """A compaction item, which is told at once and whole.

    Args:
        item_id: its id.
        token: its sealed note.
    """

    __slots__ = ("_token", "_told")

    def __init__(self, item_id: str, token: str) -> None:
        super().__init__(item_id)
        self._token = token
        self._told = False

    def flush(self) -> list[Event]:
        """Return the one event that there is besides those of every item."""
        if self._told:
            return []
        self._told = True
        return [Compacting(item_id=self.id, output_index=self.output_index)]

    def render(self, status: Status) -> dict[str, Any]:  # noqa: ARG002 - it has none
        """Return the item."""
        return {"id": self.id, "type": COMPACTION, "encrypted_content": self._token}

    def skeleton(self) -> dict[str, Any]:
        """Return the item without its note."""
        return {"id": self.id, "type": COMPACTION, "encrypted_content": ""}
