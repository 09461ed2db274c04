"""The short way of a text that grows: most of what an engine sends goes on with what it sent last."""

from typing import Any

from msgspec import UNSET, UnsetType

from gateway.protocol.codec import encode, encode_ascii
from gateway.protocol.events import NAMES
from gateway.protocol.items import AgentRef
from gateway.protocol.ledger import Ledger, text_bytes
from gateway.protocol.numbering import Numbering
from gateway.protocol.parts import Part, ReasoningPart, RefusalPart, SummaryPart, TextPart
from gateway.protocol.slots import Slot
from gateway.protocol.upstream_events import ReasoningDelta, RefusalDelta, SummaryDelta, TextDelta, UpstreamEvent

DELTAS: dict[type[Part], type[UpstreamEvent]] = {
    TextPart: TextDelta,
    RefusalPart: RefusalDelta,
    ReasoningPart: ReasoningDelta,
    SummaryPart: SummaryDelta,
}
"""What a part is expected to grow by once the engine has added it."""

# What stands for number and text in the JSON of an event that has neither; the ids in it are ours, and hold no such.
_NO_NUMBER = b":-1,"
_NO_TEXT = b'""'


class Flow:
    """A text of which the client has seen everything, so that its next delta is all there is to tell.

    Such a delta is neither looked up nor compared with the state of its part again, so anything else that the engine
    says in the round ends the flow. All its events are the same JSON but for number and text, and are written as that.

    Args:
        kind: the class of its deltas, as the engine sends them.
        first: what it begins with and has been told: a delta, or that the part was added.
        slot: the item.
        part: the part that grows.
        ledger: charged for the text.
        numbers: of the events.
        agent: whose text it is, in a tree of agents.
    """

    __slots__ = (
        "_append", "_head", "_index", "_item_id", "_kind", "_ledger", "_middle", "_name", "_numbers", "_output_index",
        "_slot", "_tail",
    )  # fmt: skip

    def __init__(
        self,
        kind: type[Any],
        first: Any,
        slot: Slot,
        part: Part,
        ledger: Ledger,
        numbers: Numbering,
        agent: AgentRef | UnsetType = UNSET,
    ) -> None:
        self._kind = kind
        self._item_id = first.item_id
        self._output_index = first.output_index
        self._index = first.index
        self._slot = slot
        self._append = part.append
        self._ledger = ledger
        self._numbers = numbers
        form = part.empty_delta(slot)
        form.agent = agent
        self._name = NAMES[type(form)]
        self._head, _, rest = encode(form).partition(_NO_NUMBER)
        self._middle, _, self._tail = rest.rpartition(_NO_TEXT)

    def tell(self, event: Any) -> tuple[bytes, bytes] | None:
        """Take an engine's event that goes on with the text; returns `type` and JSON of the client's event, numbered.

        For any other event it is None, and nothing is done: `Turn.ingest` takes it.

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
        if not delta:
            return None
        if delta.isascii():
            size, text = len(delta), encode_ascii(delta)
        elif delta[-1] >= "\ud800":
            return None  # perhaps half a character
        else:
            size, text = text_bytes(delta), encode(delta)
        self._ledger.grow(self._slot, size)
        self._append(delta)
        numbers = self._numbers
        number = numbers.next
        numbers.next = number + 1
        return self._name, b"%b:%d,%b%b%b" % (self._head, number, self._middle, text, self._tail)
