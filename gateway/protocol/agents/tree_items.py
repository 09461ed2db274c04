"""Turns what the engines of several agents send into the items of one response."""

from collections.abc import Sequence
from typing import Any

from gateway.protocol.accumulator import Accumulator
from gateway.protocol.agents.action_slots import CALL, ActionSlot, MailSlot
from gateway.protocol.agents.tree_announcer import TreeAnnouncer
from gateway.protocol.agents.tree_round import SpeechSlot
from gateway.protocol.announcer import Round
from gateway.protocol.errors import UpstreamError
from gateway.protocol.events import Event
from gateway.protocol.ids import prefix_of
from gateway.protocol.items import Status
from gateway.protocol.ledger import VALUE_BYTES, text_bytes
from gateway.protocol.naming import Naming
from gateway.protocol.parts import Part, ReasoningPart, SummaryPart
from gateway.protocol.slots import Slot
from gateway.protocol.upstream_events import text_of

# A message is charged for the longer of its phases before it is known which it will be.
_PHASE_BYTES = VALUE_BYTES + len("final_answer")


class TreeNaming(Naming):
    """Makes the slots of a response of a tree."""

    __slots__ = ("actions",)

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.actions: frozenset[str] = frozenset()

    def mint(self, kind: str) -> str:
        """Return a new id for an item of a type."""
        return self._mint(prefix_of(kind))

    def slot_for(self, item: dict[str, Any]) -> Slot:
        """Return the slot for an engine's item."""
        kind = item.get("type")
        if kind == "message":
            return SpeechSlot(self.mint("message"), {"role": item.get("role")})
        if kind == "function_call" and (name := text_of(item.get("name"))) in self.actions:
            return ActionSlot(self.mint(CALL), self._call_id(item), name or "")
        return super().slot_for(item)

    def slot_for_part(self, kind: type[Part]) -> Slot:
        """Return a slot for a part that came without its item's `added`."""
        if kind in (ReasoningPart, SummaryPart):
            return super().slot_for_part(kind)
        return SpeechSlot(self.mint("message"), {})

    def name_of(self, upstream: Any) -> str:
        """Return the client's name of the tool that a call names late.

        Raises:
            UpstreamError: it is an action, and was taken for a tool of the client's.
        """
        if isinstance(upstream, str) and upstream in self.actions:
            raise UpstreamError("The upstream named a tool call too late.", code="upstream_invalid_event")
        return super().name_of(upstream)


class TreeItems(Accumulator):
    """The items of one response of a tree. Each is charged for the agent it names, and a message for its phase."""

    NAMING = TreeNaming
    ANNOUNCER = TreeAnnouncer

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._marks: dict[Slot, int] = {}

    @property
    def naming(self) -> TreeNaming:
        """Gives the items their names."""
        assert isinstance(self._naming, TreeNaming)
        return self._naming

    def follow(self, round_: Round, slot: ActionSlot, behind: Sequence[Slot]) -> list[Event]:
        """Put items behind an action that was carried out, and return what can be told now."""
        self._ledger.replace(slot, self._charge(slot))
        at = round_.queue.index(slot) + 1
        for offset, follower in enumerate(behind):
            self._mark(follower, round_)
            self._ledger.replace(follower, self._charge(follower))
            follower.close()
            round_.queue.insert(at + offset, follower)
        return self._announcer.conclude(round_)

    def leave(self, round_: Round) -> list[Event]:
        """End a round that its engine will not end, and return what is owed of it; items still open are dropped."""
        for slot in round_.queue:
            self._ledger.replace(slot, 0)
        dropped = set(round_.queue)
        round_.queue.clear()
        round_.slots = [slot for slot in round_.slots if slot not in dropped]
        round_.ended, round_.flow = True, None
        round_.status = "completed"
        return [*self._announcer.abandon(round_), *self._announcer.conclude(round_)]

    def _open(self, round_: Round, slot: Slot, item_id: str | None, index: int | None) -> Slot:
        self._mark(slot, round_)
        self._ledger.grow(slot, slot.opening_charge() + self._marks[slot])
        round_.take(slot, item_id, index)
        return slot

    def _charge(self, slot: Slot, status: Status = "completed") -> int:
        return super()._charge(slot, status) + self._marks[slot]

    def _mark(self, slot: Slot, round_: Round) -> None:
        agent = slot.agent if isinstance(slot, MailSlot) else round_.agent
        phase = _PHASE_BYTES if isinstance(slot, SpeechSlot) else 0
        self._marks[slot] = 0 if slot.hidden else 2 * VALUE_BYTES + text_bytes(agent) + phase
