"""Decides when the client hears of what the slots hold.

Within one round one item is told at a time: what arrives for a later item waits in its slot until the earlier one is
closed. An item's `output_item.done` is held back until the next item begins or the round ends, because only the
round's end tells whether the last item was cut short. Output indexes are given in the order of announcement, across
all rounds. An item that awaits the result of one of the gateway's own tools stays open beyond the round's end, and what
comes behind it waits as ever.
"""

from collections import deque

from msgspec import UNSET, UnsetType

from gateway.protocol.events import Event, OutputItemAdded, OutputItemDone
from gateway.protocol.flow import Flow
from gateway.protocol.items import AgentRef, OutputItem, Status
from gateway.protocol.parts import Part
from gateway.protocol.response import Usage
from gateway.protocol.slots import Slot


class Round:
    """One upstream inference: how its indexes and ids map to slots, and which item is being told.

    Attributes:
        agent: path of the agent the inference belongs to.
        slots: the items it has opened, in this order.
        ended: the engine's terminal event has been taken.
        flow: the text that the engine's last event began or made grow, if the client has seen all of it.
        response_id: the engine's own id of it, once that has said how it ended.
        model: what the engine calls its model.
        usage: its tokens.
        reason: why it is incomplete.
        status: what its last item ends as, once that is known.
        ref: the agent as items and events name it, in a tree of agents.
    """

    ref: AgentRef | UnsetType = UNSET

    __slots__ = (
        "agent", "by_id", "by_index", "ended", "flow", "held", "last", "model", "queue", "reason", "response_id",
        "slots", "status", "usage",
    )  # fmt: skip

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.slots: list[Slot] = []
        self.ended = False
        self.by_id: dict[str, Slot] = {}
        self.by_index: dict[int, Slot] = {}
        self.queue: deque[Slot] = deque()
        self.held: Slot | None = None
        self.last: Slot | None = None
        self.flow: Flow | None = None
        self.response_id: str | None = None
        self.model: str | None = None
        self.usage: Usage | None = None
        self.reason: str | None = None
        self.status: Status | None = None

    def take(self, slot: Slot, item_id: str | None, index: int | None) -> None:
        """Take a new item under what the engine calls it."""
        slot.engine_id = item_id
        if item_id:
            self.by_id[item_id] = slot
        if index is not None:
            self.by_index[index] = slot
        if not slot.hidden:
            self.queue.append(slot)
        self.last = slot
        self.slots.append(slot)

    def find(self, item_id: str | None, index: int | None) -> Slot | None:
        """Return the item that an engine's event is about, None for one that is not open yet."""
        slot = self.by_id.get(item_id) if item_id else None
        if slot is None and index is not None:
            slot = self.by_index.get(index)
        if slot is None and not item_id and index is None:
            slot = self.last
        return slot

    def is_another(self, item_id: str | None, index: int | None) -> bool:
        """Whether what names a closed item must be a new one, rather than a repetition of it."""
        return item_id not in self.by_id if item_id else index is None


class Announcer:
    """The items of one response in the order the client knows them."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: list[Slot] = []

    def tell_part(self, round_: Round, slot: Slot, part: Part) -> list[Event]:
        """Return what is new in one part, nothing while its item waits."""
        if not slot.announced:
            return self.advance(round_, slot)
        out = part.flush(slot)
        if part.mirror is not None:
            out += part.mirror.flush(slot)
        return out

    def advance(self, round_: Round, slot: Slot) -> list[Event]:
        """Return what is new in one item and, when that closes it, in those behind it."""
        return self._tell(round_) if round_.queue and round_.queue[0] is slot else []

    def abandon(self, round_: Round) -> list[Event]:
        """Return what a round that broke off owes: the `done` of the held item, or the rest of an open item's texts."""
        out = self.release(round_, "completed")
        if round_.queue and round_.queue[0].announced:
            out.extend(round_.queue[0].flush())
        return out

    def end(self, round_: Round, status: Status) -> list[Event]:
        """Return all that is left of a round whose items are closed; the last one gets the given status.

        What awaits something is left, with all behind it, until `conclude`.
        """
        round_.status = status
        return self.conclude(round_)

    def conclude(self, round_: Round) -> list[Event]:
        """Return what can be told of a round that is at its end, now that one more item is complete."""
        out = self._tell(round_)
        if not round_.queue and round_.status is not None:
            out.extend(self.release(round_, round_.status))
        return out

    def release(self, round_: Round, status: Status) -> list[Event]:
        """Return the `done` of the held item, if one is held."""
        slot, round_.held = round_.held, None
        if slot is None:
            return []
        slot.final = slot.render(status)
        return [OutputItemDone(output_index=slot.output_index, item=slot.final)]

    def output(self) -> list[OutputItem]:
        """Return the items the client has been told of, those still open as `incomplete`."""
        return [slot.final if slot.final is not None else slot.render("incomplete") for slot in self._told]

    def _tell(self, round_: Round) -> list[Event]:
        out: list[Event] = []
        while round_.queue and (slot := round_.queue[0]).ready:
            if not slot.announced:
                if round_.held is not None:
                    out += self.release(round_, "completed")
                out += self._begin(round_, slot)
            out += slot.flush()
            if not slot.closed or slot.awaits:
                break
            round_.held = round_.queue.popleft()
        return out

    def _begin(self, round_: Round, slot: Slot) -> list[Event]:  # noqa: ARG002 - whose round it is matters in trees
        slot.announced = True
        slot.output_index = len(self._told)
        self._told.append(slot)
        return [OutputItemAdded(output_index=slot.output_index, item=slot.skeleton())]
