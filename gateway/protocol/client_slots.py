"""Calls of tools that the API types and the client runs, while a model writes them as calls of functions."""

from typing import Any

from gateway.protocol.call_parts import ArgumentsPart
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.client_tool import ClientTool
from gateway.protocol.events import Event
from gateway.protocol.items import Status


class ClientCallSlot(CallSlot):
    """A call of a client's tool; its arguments are kept aside until they are complete, for only then they tell it.

    An item that has no form for a call that was cut off is announced once it is certain that this one was not: its
    arguments are whole, or the round was not cut off in them.

    Args:
        item_id: our item id.
        call_id: what its output will name.
        name: the type of the tool, which has no other name.
        tool: how it is carried.
    """

    __slots__ = ("_certain", "_members", "_said", "tool")

    def __init__(self, item_id: str, call_id: str, name: str, tool: ClientTool) -> None:
        super().__init__(item_id, call_id, name, None)
        self.carried = ArgumentsPart(0)
        self.tool = tool
        self._members: dict[str, Any] | None = None
        self._certain = tool.can_be_cut
        self._said = False

    @property
    def engine_type(self) -> str:
        """The call is a function call to the engine."""
        return "function_call"

    @property
    def ready(self) -> bool:
        """Whether it is certain that the item can be shown as it will end."""
        return self._certain

    def cut(self) -> bool:
        """Tell whether the call can be shown nevertheless."""
        return self._certain or (self.carried is not None and self.tool.is_whole(self.carried.text))

    def end(self) -> None:
        """Take the arguments for all there is."""
        self._certain = True

    def close(self) -> None:
        """Mark the call as final; the arguments become what the client knows."""
        if self.closed or self.carried is None:
            return
        arguments = self.carried.text
        self._members = self.tool.restore(arguments)
        self._certain = self._certain or self.tool.is_whole(arguments)
        self.carried = ArgumentsPart(0)
        super().close()

    def render(self, status: Status) -> dict[str, Any]:
        """Return the call as far as it is known."""
        if status == "incomplete" and not self.tool.can_be_cut:
            status = "completed"
        members = self.tool.blank if self._members is None else self._members
        return self._item(status, members)

    def skeleton(self) -> dict[str, Any]:
        """Return the call without what it asks for."""
        members = self.tool.blank if self._members is None else self.tool.begin(self._members)
        return self._item("in_progress", members)

    def flush(self) -> list[Event]:
        """Return the events that tell what the call asks for, once it is known."""
        if self._members is None or self._said:
            return []
        self._said = True
        return list(self.tool.tell(self._members, self.output_index))

    def _item(self, status: Status, members: dict[str, Any]) -> dict[str, Any]:
        return {"type": self.tool.call, "id": self.id, "call_id": self.call_id, "status": status, **members}
