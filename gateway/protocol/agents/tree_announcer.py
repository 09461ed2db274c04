"""Decides when the client of a tree hears of what the slots hold.

Which of its messages is an agent's final answer is known at the end of a round only: it is the last one that says
anything, if the model called nothing. So the `done` of a message waits, and that alone, until a call or another message
with words follows, or the round ends.
"""

from typing import Literal

from gateway.protocol.agents.action_slots import MailSlot
from gateway.protocol.agents.tree_round import SpeechSlot, TreeRound
from gateway.protocol.announcer import Announcer, Round
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.events import Event, OutputItemAdded, OutputItemDone
from gateway.protocol.items import AgentRef, Message, OutputItem, Status
from gateway.protocol.slots import Slot

Saying = Literal["commentary", "final_answer"]


class TreeAnnouncer(Announcer):
    """The items of one response of a tree in the order the client knows them."""

    __slots__ = ()

    def abandon(self, round_: Round) -> list[Event]:
        """Return what a round that broke off owes; nothing in it is a final answer."""
        assert isinstance(round_, TreeRound)
        round_.goes_on = True
        return super().abandon(round_)

    def conclude(self, round_: Round) -> list[Event]:
        """Return what can be told now that one more item is complete; at the round's end, what its messages are."""
        assert isinstance(round_, TreeRound)
        round_.goes_on = round_.goes_on or any(isinstance(slot, CallSlot) for slot in round_.slots)
        out = super().conclude(round_)
        if not round_.queue and round_.status is not None:
            for slot, status in round_.unsaid:
                blank = isinstance(slot, SpeechSlot) and slot.is_blank
                out.append(self._end(round_, slot, status, "commentary" if blank else "final_answer"))
            round_.unsaid.clear()
        return out

    def release(self, round_: Round, status: Status) -> list[Event]:
        """Return the `done` of the held item and of the messages of which it is known now what they are."""
        assert isinstance(round_, TreeRound)
        slot, round_.held = round_.held, None
        out: list[Event] = []
        if isinstance(slot, SpeechSlot):
            if not slot.is_blank:
                out += self._comment(round_)
            round_.unsaid.append((slot, status))
        elif slot is not None:
            out.append(self._end(round_, slot, status))
        return out + self._comment(round_) if round_.goes_on else out

    def output(self) -> list[OutputItem]:
        """Return the items of which the client knows that they are done."""
        return [slot.final for slot in self._told if slot.final is not None]

    def _begin(self, round_: Round, slot: Slot) -> list[Event]:
        assert isinstance(round_, TreeRound)
        out: list[Event] = []
        if isinstance(slot, CallSlot):
            round_.goes_on = True
            out += self.release(round_, "completed")
        ref = _owner_of(round_, slot)
        for event in super()._begin(round_, slot):
            assert isinstance(event, OutputItemAdded)
            event.agent, event.item = ref, _sign(event.item, ref)
            out.append(event)
        return out

    def _comment(self, round_: TreeRound) -> list[Event]:
        unsaid, round_.unsaid = round_.unsaid, []
        return [self._end(round_, slot, status, "commentary") for slot, status in unsaid]

    @staticmethod
    def _end(round_: TreeRound, slot: Slot, status: Status, phase: Saying | None = None) -> Event:
        ref = _owner_of(round_, slot)
        slot.final = _sign(slot.render(status), ref)
        if phase is not None and isinstance(slot.final, Message):
            slot.final.phase = phase
        return OutputItemDone(agent=ref, output_index=slot.output_index, item=slot.final)


def _owner_of(round_: TreeRound, slot: Slot) -> AgentRef:
    return AgentRef(agent_name=slot.agent) if isinstance(slot, MailSlot) else round_.ref


def _sign(item: OutputItem, ref: AgentRef) -> OutputItem:
    if isinstance(item, dict):
        return {**item, "agent": {"agent_name": ref.agent_name}}
    item.agent = ref
    return item
