"""Turns what engines send into the items of one response and into the events that tell a client of them.

Engines number, name and order things in their own ways, leave events out and repeat them. Here every event changes the
state of a slot, and the client's events are the difference between that state and what it has been told; the
`announcer` decides when.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

from gateway.protocol import upstream_events as up
from gateway.protocol.announcer import Announcer, Round
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.carriage import Carriage
from gateway.protocol.citations import Sources
from gateway.protocol.errors import UpstreamError
from gateway.protocol.events import Event, read_hosted
from gateway.protocol.flow import DELTAS, Flow
from gateway.protocol.items import OutputItem, Status
from gateway.protocol.ledger import VALUE_BYTES, Ledger, charge, text_bytes
from gateway.protocol.naming import Naming
from gateway.protocol.numbering import Numbering
from gateway.protocol.parts import OpaquePart, Part, ReasoningPart, RefusalPart, SummaryPart, TextPart, part_text
from gateway.protocol.slots import MessageSlot, OpaqueSlot, ReasoningSlot, Slot, kind_of_part
from gateway.protocol.upstream_events import text_of

SummaryMode = Literal["off", "instead", "both"]
PartEvent = (
    up.PartAdded | up.PartDone | up.ReasoningPartAdded | up.ReasoningPartDone | up.SummaryPartAdded | up.SummaryPartDone
)


class Accumulator:
    """The items of one response.

    Args:
        ledger: charged for everything retained.
        numbers: of the events, for those that are written without coming back here.
        mint: returns a new id for a prefix.
        carriage: names of carried tools.
        used_call_ids: call ids of the effective input; those of new calls are added.
        summary_mode: whether reasoning text is told as reasoning, as summaries, or as both.

    Attributes:
        sources: what texts from now on may cite, None for nothing.
    """

    NAMING: ClassVar[type[Naming]] = Naming
    ANNOUNCER: ClassVar[type[Announcer]] = Announcer

    def __init__(
        self,
        ledger: Ledger,
        numbers: Numbering,
        mint: Callable[[str], str],
        carriage: Carriage,
        used_call_ids: set[str],
        summary_mode: SummaryMode = "off",
    ) -> None:
        self._ledger = ledger
        self._numbers = numbers
        self._naming = self.NAMING(mint, carriage, used_call_ids)
        self._summary_mode = summary_mode
        self._announcer = self.ANNOUNCER()
        self.sources: Sources | None = None

    @property
    def naming(self) -> Naming:
        """Gives the items their names."""
        return self._naming

    # ------------------------------------------------------------ what the turn calls

    def adopt(self, round_: Round, index: int, item: Any) -> list[Event]:
        """Take an item of a round's final snapshot that was not streamed, or whose stream was never finished."""
        if not isinstance(item, dict):
            return []
        slot = round_.by_id.get(text_of(item.get("id")) or "") or round_.by_index.get(index)
        if slot.closed if slot is not None else index < len(round_.slots):
            if isinstance(slot, CallSlot):
                self._take_name(slot, item.get("name"))
            return []
        return self.take_item(round_, up.ItemDone(item=item, output_index=index))

    def take_item(self, round_: Round, event: up.ItemDone) -> list[Event]:
        """Take a whole item, whether it has been told in part or not at all."""
        item_id = text_of(event.item.get("id"))
        slot = round_.find(item_id, event.output_index)
        if slot is None or (slot.closed and round_.is_another(item_id, event.output_index)):
            if not isinstance(event.item.get("type"), str):
                return []
            slot = self._open(round_, self._naming.slot_for(event.item), item_id, event.output_index)
        if slot.closed:
            return []
        self._take_snapshot(slot, event.item)
        self._close(slot)
        return self._announcer.advance(round_, slot)

    def end(self, round_: Round, *, truncated: bool) -> list[Event]:
        """Close what a round left open; the last item of a truncated round becomes `incomplete`.

        Raises:
            UpstreamError: a call has no name, so that no client could answer it.
        """
        last = round_.last
        if truncated and last is not None and not last.cut():
            # It is no call yet; what came before it is whole.
            self._ledger.replace(round_.slots.pop(), 0)
            if not last.hidden:
                round_.queue.pop()
            truncated = False
        for slot in round_.queue:
            self._close(slot)
            slot.end()
        for slot in round_.queue:
            if not slot.ready:
                raise UpstreamError("The upstream sent a tool call without a name.", code="upstream_invalid_event")
        if truncated and last is not None:
            self._ledger.replace(last, self._charge(last, "incomplete"))
        return self._announcer.end(round_, "incomplete" if truncated else "completed")

    def open(self, round_: Round, slots: Iterable[Slot]) -> list[Event]:
        """Take items of the gateway's own, which no engine wrote, as those of a round that is at its end."""
        for slot in slots:
            self._open(round_, slot, None, None)
            self._close(slot)
        round_.ended = True
        return self._announcer.end(round_, "completed")

    def conclude(self, round_: Round, slot: Slot) -> list[Event]:
        """Return what can be told now that nothing is awaited for an item any more."""
        self._ledger.replace(slot, self._charge(slot))
        return self._announcer.conclude(round_)

    def abandon(self, round_: Round) -> list[Event]:
        """Tell what is known already; open items stay open, as in a failed response."""
        return self._announcer.abandon(round_)

    def output(self) -> list[OutputItem]:
        """Return the items the client has been told of, those still open as `incomplete`."""
        return self._announcer.output()

    # ------------------------------------------------------------ items

    def _on_item_added(self, round_: Round, event: up.ItemAdded) -> list[Event]:
        if not isinstance(event.item.get("type"), str):
            return []
        item_id = text_of(event.item.get("id"))
        known = round_.by_index.get(event.output_index) if event.output_index is not None else None
        if known is None and item_id:
            known = round_.by_id.get(item_id)
        if known is not None and not known.closed and (item_id is None or known.engine_id in (None, item_id)):
            return []
        slot = self._open(round_, self._naming.slot_for(event.item), item_id, event.output_index)
        for kind, index, value in slot.read_parts(event.item):
            if kind is OpaquePart or part_text(value):
                self._begin_part(slot, self._part(slot, kind, index), value)
        return self._announcer.advance(round_, slot)

    def _open(self, round_: Round, slot: Slot, item_id: str | None, index: int | None) -> Slot:
        self._ledger.grow(slot, slot.opening_charge())
        round_.take(slot, item_id, index)
        return slot

    def _charge(self, slot: Slot, status: Status = "completed") -> int:
        return slot.charge(status)

    def _close(self, slot: Slot) -> None:
        for part in slot.texts():
            self._end_part(slot, part)
        slot.close()
        if isinstance(slot, CallSlot) and slot.carried is not None:
            self._ledger.replace(slot, self._charge(slot))

    def _take_snapshot(self, slot: Slot, item: dict[str, Any]) -> None:
        if item.get("type") != slot.engine_type:
            return
        for kind, index, value in slot.read_parts(item):
            self._take_part(slot, self._part(slot, kind, index), value)
        if isinstance(slot, (MessageSlot, ReasoningSlot)):
            if grown := slot.adopt(item):
                self._ledger.grow(slot, grown)
        elif isinstance(slot, CallSlot):
            self._take_name(slot, item.get("name"))
        else:
            assert isinstance(slot, OpaqueSlot)
            slot.item = {**item, "id": slot.id}
            self._ledger.replace(slot, self._charge(slot))

    def _take_part(self, slot: Slot, part: Part, value: dict[str, Any]) -> None:
        if type(part) is OpaquePart:
            if not part.closed:
                self._ledger.grow(slot, charge(value) - charge(part.value))
                part.value = value
            return
        if not part.settled:
            self._push(slot, part, part.missing(part_text(value)))
        if isinstance(part, TextPart) and (grown := part.adopt(value.get("annotations"), value.get("logprobs"))):
            self._ledger.grow(slot, grown)

    def _begin_part(self, slot: Slot, part: Part, value: dict[str, Any]) -> None:
        """Keep what a part holds when it is added until it ends: the engine may say it again, or go on from there."""
        if type(part) is OpaquePart:
            self._take_part(slot, part, value)
        elif part.opening is None and part_text(value) and not part.text:
            self._ledger.grow(slot, charge(value))
            part.opening = value

    def _end_part(self, slot: Slot, part: Part) -> None:
        """Take what was kept of a part and never came again."""
        if part.opening is not None:
            value, part.opening = part.opening, None
            self._ledger.grow(slot, -charge(value))
            self._push(slot, part, part.missing(part_text(value)))
            if isinstance(part, TextPart):
                annotations, logprobs = value.get("annotations"), value.get("logprobs")
                self._ledger.grow(slot, part.adopt(part.annotations or annotations, part.logprobs or logprobs))
        if part.half:
            half, part.half = part.half, ""
            self._push(slot, part, half)
        if self.sources is not None and isinstance(part, TextPart) and not part.settled:
            self._ledger.grow(slot, part.cite(self.sources))

    def _take_name(self, slot: CallSlot, name: Any) -> None:
        if not slot.name and (known := self._naming.name_of(name)):
            self._ledger.grow(slot, text_bytes(known))
            slot.name = known

    # ------------------------------------------------------------ parts

    def _on_part_added(self, round_: Round, event: PartEvent, kind: type[Part] | None = None) -> list[Event]:
        slot, part = self._reach(round_, event, kind)
        if part is None:
            return []
        if event.part:
            self._begin_part(slot, part, event.part)
        out = self._announcer.tell_part(round_, slot, part)
        if part.flows and (delta := DELTAS.get(type(part))) is not None:
            round_.flow = Flow(delta, event, slot, part, self._ledger, self._numbers, round_.ref)
        return out

    def _on_part_done(self, round_: Round, event: PartEvent, kind: type[Part] | None = None) -> list[Event]:
        slot, part = self._reach(round_, event, kind)
        if part is None:
            return []
        if event.part:
            self._take_part(slot, part, event.part)
        return self._finish(round_, slot, part, close=True)

    def _on_text_delta(self, round_: Round, event: up.TextDelta) -> list[Event]:
        if event.logprobs:
            slot, part = self._reach(round_, event, TextPart)
            if isinstance(part, TextPart) and not part.settled:
                self._ledger.grow(slot, charge(event.logprobs) - VALUE_BYTES)
                part.push_logprobs(event.logprobs)
        return self._grow(round_, event, TextPart)

    def _on_text_done(self, round_: Round, event: up.TextDone) -> list[Event]:
        if event.logprobs:
            slot, part = self._reach(round_, event, TextPart)
            if isinstance(part, TextPart):
                self._ledger.grow(slot, part.adopt(None, event.logprobs))
        return self._settle(round_, event, TextPart, event.text)

    def _on_annotation(self, round_: Round, event: up.AnnotationAdded) -> list[Event]:
        slot, part = self._reach(round_, event, TextPart)
        if not isinstance(part, TextPart) or part.closed:
            return []
        self._ledger.grow(slot, charge(event.annotation))
        part.annotations.append(event.annotation)
        return self._announcer.tell_part(round_, slot, part)

    def _grow(self, round_: Round, event: Any, kind: type[Part]) -> list[Event]:
        slot, part = self._reach(round_, event, kind)
        if part is None:
            return []
        self._hear(slot, part, event.delta)
        out = self._announcer.tell_part(round_, slot, part)
        if part.flows:
            round_.flow = Flow(type(event), event, slot, part, self._ledger, self._numbers, round_.ref)
        return out

    def _settle(self, round_: Round, event: Any, kind: type[Part], text: str | None) -> list[Event]:
        slot, part = self._reach(round_, event, kind)
        if part is None:
            return []
        self._push(slot, part, part.missing(text))
        return self._finish(round_, slot, part, close=False)

    def _finish(self, round_: Round, slot: Slot, part: Part, *, close: bool) -> list[Event]:
        self._end_part(slot, part)
        part.settle(close=close)
        return self._announcer.tell_part(round_, slot, part)

    def _reach(self, round_: Round, event: Any, kind: type[Part] | None) -> tuple[Slot, Part | None]:
        """Return the part that an event is about, and its item; either is opened where it is not known yet.

        An item that was found but cannot hold that kind of part is another one. Of a closed item there is no part.
        """
        slot = round_.find(event.item_id, event.output_index)
        if kind is None:
            kind = kind_of_part(event.part, slot)
        fits = ReasoningSlot if kind is ReasoningPart or kind is SummaryPart else MessageSlot
        if not isinstance(slot, fits) or (slot.closed and event.item_id and event.item_id not in round_.by_id):
            slot = self._open(round_, self._naming.slot_for_part(kind), event.item_id, event.output_index)
        return slot, None if slot.closed else self._part(slot, kind, event.index or 0)

    def _part(self, slot: Slot, kind: type[Part], index: int) -> Part:
        if kind is ReasoningPart and self._summary_mode == "instead":
            kind = SummaryPart
        part = slot.find(kind, index)
        if part is None:
            part = self._open_part(slot, kind, index)
            if kind is ReasoningPart and self._summary_mode == "both" and slot.find(SummaryPart, index) is None:
                part.mirror = self._open_part(slot, SummaryPart, index)
        return part

    def _open_part(self, slot: Slot, kind: type[Part], index: int) -> Part:
        self._ledger.grow(slot, slot.part_charge(kind))
        return slot.open_part(kind, index)

    def _hear(self, slot: Slot, part: Part, delta: str) -> None:
        if part.opening is not None or part.half or delta[-1:] >= "\ud800":
            delta = part.hear(delta)
        self._push(slot, part, delta)

    def _push(self, slot: Slot, part: Part, text: str | None) -> None:
        if not text or part.settled:
            return
        mirror = part.mirror
        if mirror is None or mirror.settled:
            self._ledger.grow(slot, text_bytes(text))
        else:
            self._ledger.grow(slot, 2 * text_bytes(text))
            mirror.push(text)
        part.push(text)

    # ------------------------------------------------------------ calls and hosted tools

    def _on_arguments_delta(self, round_: Round, event: up.ArgumentsDelta | up.InputDelta) -> list[Event]:
        slot = round_.find(event.item_id, event.output_index)
        if not isinstance(slot, CallSlot) or slot.closed:
            return []
        part = self._part(slot, slot.text_kind, 0)
        self._hear(slot, part, event.delta)
        return self._announcer.tell_part(round_, slot, part) if slot.carried is None else []

    def _on_arguments_done(self, round_: Round, event: up.ArgumentsDone | up.InputDone) -> list[Event]:
        slot = round_.find(event.item_id, event.output_index)
        if not isinstance(slot, CallSlot) or slot.closed:
            return []
        part = self._part(slot, slot.text_kind, 0)
        if isinstance(event, up.ArgumentsDone):
            self._take_name(slot, event.name)
        self._push(slot, part, part.missing(event.arguments if isinstance(event, up.ArgumentsDone) else event.input))
        if slot.carried is not None:
            return []
        self._end_part(slot, part)
        part.settled = part.closed = True
        return self._announcer.tell_part(round_, slot, part)

    def _on_hosted(self, round_: Round, event: up.Hosted) -> list[Event]:
        slot = round_.find(event.item_id, event.output_index)
        if not isinstance(slot, OpaqueSlot) or slot.closed:
            return []
        # What waits is retained whole; what is told at once leaves only its text, until the snapshot comes.
        waits = round_.queue[0] is not slot
        delta = event.fields.get("delta")
        retained = charge(event.fields) if waits else text_bytes(delta) if isinstance(delta, str) else 0
        self._ledger.grow(slot, retained)
        slot.pending.append(read_hosted(event.fields, slot.id))
        return self._announcer.advance(round_, slot)

    # What takes each class of engine events and returns the client's events for one; where it raises
    # `ResourceLimitExceeded`, the client's events so far remain true. One table for all: handlers bound to an instance
    # would tie it into a reference cycle.
    EVENTS: ClassVar[dict[type[up.UpstreamEvent], Callable[["Accumulator", Round, Any], list[Event]]]] = {
        up.TextDelta: _on_text_delta,
        up.ReasoningDelta: lambda self, r, e: self._grow(r, e, ReasoningPart),
        up.RefusalDelta: lambda self, r, e: self._grow(r, e, RefusalPart),
        up.SummaryDelta: lambda self, r, e: self._grow(r, e, SummaryPart),
        up.ArgumentsDelta: _on_arguments_delta,
        up.InputDelta: _on_arguments_delta,
        up.ItemAdded: _on_item_added,
        up.ItemDone: take_item,
        up.PartAdded: _on_part_added,
        up.ReasoningPartAdded: lambda self, r, e: self._on_part_added(r, e, ReasoningPart),
        up.SummaryPartAdded: lambda self, r, e: self._on_part_added(r, e, SummaryPart),
        up.PartDone: _on_part_done,
        up.ReasoningPartDone: lambda self, r, e: self._on_part_done(r, e, ReasoningPart),
        up.SummaryPartDone: lambda self, r, e: self._on_part_done(r, e, SummaryPart),
        up.TextDone: _on_text_done,
        up.ReasoningDone: lambda self, r, e: self._settle(r, e, ReasoningPart, e.text),
        up.RefusalDone: lambda self, r, e: self._settle(r, e, RefusalPart, e.refusal),
        up.SummaryDone: lambda self, r, e: self._settle(r, e, SummaryPart, e.text),
        up.ArgumentsDone: _on_arguments_done,
        up.InputDone: _on_arguments_done,
        up.AnnotationAdded: _on_annotation,
        up.Hosted: _on_hosted,
    }
