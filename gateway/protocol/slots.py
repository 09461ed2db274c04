"""The output items of a response while they grow: one slot an item.

A slot renders the item at any moment and says what it costs. Its parts hold the texts; the accumulator decides when the
client hears of them.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, to_builtins

from gateway.protocol import items
from gateway.protocol.events import Event, HostedEvent
from gateway.protocol.items import OutputItem, Status
from gateway.protocol.ledger import VALUE_BYTES, charge, text_bytes
from gateway.protocol.parts import (
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    SummaryPart,
    TextPart,
    charge_new,
    list_objects,
)
from gateway.protocol.upstream_events import text_of

# A status an item may keep; any other gives way when the item ends.
_ENDED = ("completed", "incomplete", "failed")

_EMPTY_MESSAGE = charge(to_builtins(items.Message(id="", status="completed", role="", content=[])))

GivenPart = tuple[type[Part], int, dict[str, Any]]
"""A part of an engine's item: its class, the engine's index, and the engine's object."""


class Slot:
    """Base of all slots; each is the `Owner` of its parts.

    Attributes:
        announced: the client has seen `output_item.added`.
        closed: the engine is done with the item.
        engine_id: the engine's own item id, or None.
        final: the item as its `output_item.done` carried it, else None.
        awaits: the engine may be done with the item, but something else has still to come.
        hidden: the client never hears of the item.
    """

    awaits = False
    hidden = False

    __slots__ = ("_counts", "_parts", "announced", "closed", "engine_id", "final", "id", "output_index")

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self.output_index = -1
        self.announced = False
        self.closed = False
        self.engine_id: str | None = None
        self.final: OutputItem | None = None
        # In the order the client hears of them; keyed by kind and the engine's own index.
        self._parts: dict[tuple[type[Part], int], Part] = {}
        self._counts = [0, 0]

    @property
    def ready(self) -> bool:
        """Whether enough is known to announce the item."""
        return True

    @property
    def engine_type(self) -> Any:
        """The type the engine's snapshots of the item have."""
        raise NotImplementedError

    def render(self, status: Status) -> OutputItem:
        """Return the item as it stands."""
        raise NotImplementedError

    def skeleton(self) -> OutputItem:
        """Return the item as `output_item.added` shows it: in progress and empty."""
        raise NotImplementedError

    def charge(self, status: Status = "completed") -> int:
        """Return the whole charge of the item as it stands, with the status it will end with."""
        return charge(to_builtins(self.render(status)))

    def opening_charge(self) -> int:
        """Return the charge of the item as it is opened, without any part."""
        return self.charge()

    def part_charge(self, kind: type[Part]) -> int:
        """Return the charge of one more part, without its text."""
        return charge_new(kind)  # type: ignore[arg-type]

    def find(self, kind: type[Part], index: int) -> Part | None:
        """Return the part the engine calls `index`, or None."""
        return self._parts.get((kind, index))

    def open_part(self, kind: type[Part], index: int) -> Part:
        """Add a part; its own index is the next among its siblings."""
        summary = kind is SummaryPart
        part = self._parts[kind, index] = kind(self._counts[summary])
        self._counts[summary] += 1
        return part

    def close(self) -> None:
        """Mark the item and everything in it as final."""
        self.closed = True
        for part in self._parts.values():
            part.settled = part.closed = True

    def cut(self) -> bool:
        """Take note that the engine was cut off within the item; returns whether the client hears of it at all."""
        return self.ready

    def end(self) -> None:
        """Take note that the round is at its end, and the item was not cut off."""

    def texts(self) -> list[Part]:
        """Return everything in the item that grows."""
        return [*self._parts.values()]

    def read_parts(self, item: dict[str, Any]) -> Iterable[GivenPart]:  # noqa: ARG002
        """Return what an engine's object of this item holds in texts."""
        return ()

    def flush(self) -> list[Event]:
        """Return the events that tell the client what it has not seen of the parts."""
        out: list[Event] = []
        for part in self._parts.values():
            out += part.flush(self)
        return out


class MessageSlot(Slot):
    """A message of the assistant."""

    __slots__ = ("phase", "role")

    def __init__(self, item_id: str, item: dict[str, Any]) -> None:
        Slot.__init__(self, item_id)
        self.role = text_of(item.get("role")) or "assistant"
        self.phase = text_of(item.get("phase"))

    @property
    def engine_type(self) -> str:
        """Messages are what they are."""
        return "message"

    def opening_charge(self) -> int:
        """Return the charge of the item without content, from that of one without texts."""
        phase = VALUE_BYTES + text_bytes(self.phase) if self.phase else 0
        return _EMPTY_MESSAGE + text_bytes(self.id) + text_bytes(self.role) + phase

    def read_parts(self, item: dict[str, Any]) -> Iterable[GivenPart]:
        """Return the content; reasoning has no place in a message and is carried as it came."""
        content = item.get("content")
        if content == []:
            return ()
        return [(_find_kind(part.get("type"), _IN_MESSAGES), index, part) for index, part in list_objects(content)]

    def adopt(self, item: dict[str, Any]) -> int:
        """Take the phase of a snapshot if none is known; returns by how many bytes the charge grows."""
        if self.phase or not (phase := text_of(item.get("phase"))):
            return 0
        self.phase = phase
        return VALUE_BYTES + text_bytes(phase)

    def render(self, status: Status) -> items.Message:
        """Return the message with its content."""
        return items.Message(
            id=self.id,
            status=status,
            role=self.role,
            content=[part.render() for part in self._parts.values()],
            phase=self.phase or UNSET,
        )

    def skeleton(self) -> items.Message:
        """Return the message without content."""
        return items.Message(id=self.id, status="in_progress", role=self.role, content=[], phase=self.phase or UNSET)


class ReasoningSlot(Slot):
    """Reasoning, as text, as summaries or both."""

    __slots__ = ("encrypted_content",)

    def __init__(self, item_id: str, item: dict[str, Any]) -> None:
        super().__init__(item_id)
        self.encrypted_content = text_of(item.get("encrypted_content"))

    @property
    def engine_type(self) -> str:
        """Reasoning is what it is."""
        return "reasoning"

    def part_charge(self, kind: type[Part]) -> int:
        """Return the charge of one more part; before the first of its texts the item has no list of them."""
        first = kind is not SummaryPart and not self._counts[0]
        return super().part_charge(kind) + (VALUE_BYTES if first else 0)

    def read_parts(self, item: dict[str, Any]) -> Iterable[GivenPart]:
        """Yield the texts and the summaries."""
        for index, part in list_objects(item.get("content")):
            yield kind_of_part(part, self), index, part
        for index, part in list_objects(item.get("summary")):
            yield SummaryPart, index, part

    def adopt(self, item: dict[str, Any]) -> int:
        """Take the sealed content of a snapshot if none is known; returns by how many bytes the charge grows."""
        known, self.encrypted_content = (
            self.encrypted_content,
            self.encrypted_content or text_of(item.get("encrypted_content")),
        )
        return VALUE_BYTES + text_bytes(self.encrypted_content) if self.encrypted_content and not known else 0

    def render(self, status: Status) -> items.Reasoning:
        """Return the reasoning item."""
        texts = [part.render() for part in self._parts.values() if not isinstance(part, SummaryPart)]
        return items.Reasoning(
            id=self.id,
            status=status,
            summary=[part.render() for part in self._parts.values() if isinstance(part, SummaryPart)],
            content=texts or UNSET,
            encrypted_content=self.encrypted_content or UNSET,
        )

    def skeleton(self) -> items.Reasoning:
        """Return the item without texts."""
        return items.Reasoning(id=self.id, status="in_progress", summary=[])


class OpaqueSlot(Slot):
    """An item of a tool the engine ran itself, or of a type this gateway does not know."""

    __slots__ = ("item", "pending")

    def __init__(self, item_id: str, item: dict[str, Any]) -> None:
        super().__init__(item_id)
        self.item = {**item, "id": item_id}
        self.pending: list[HostedEvent] = []

    @property
    def engine_type(self) -> Any:
        """The item's own type."""
        return self.item.get("type")

    def render(self, status: Status) -> dict[str, Any]:
        """Return the item as it came, with our id; a status it had while it ran gives way to the final one."""
        return self.item if self.item.get("status") in _ENDED else {**self.item, "status": status}

    def skeleton(self) -> dict[str, Any]:
        """Return the item as the engine announced it, in progress."""
        return {**self.item, "status": "in_progress"}

    def flush(self) -> list[Event]:
        """Return the tool's own events that waited, with the item's index."""
        waiting, self.pending = self.pending, []
        for event in waiting:
            event.output_index = self.output_index
        return [*waiting]


_IN_MESSAGES: dict[str, type[Part]] = {"output_text": TextPart, "text": TextPart, "refusal": RefusalPart}
_ANYWHERE: dict[str, type[Part]] = {**_IN_MESSAGES, "reasoning_text": ReasoningPart, "summary_text": SummaryPart}


def kind_of_part(part: dict[str, Any] | None, slot: Slot | None) -> type[Part]:
    """Return the part class for an engine's part object; without one, what the item's own kind suggests."""
    kind = part.get("type") if part else None
    if type(slot) is ReasoningSlot:
        return SummaryPart if kind == "summary_text" else ReasoningPart
    return _find_kind(kind, _ANYWHERE)


def _find_kind(kind: Any, known: dict[str, type[Part]]) -> type[Part]:
    if kind is None:
        return TextPart
    return known.get(kind, OpaquePart) if isinstance(kind, str) else OpaquePart
