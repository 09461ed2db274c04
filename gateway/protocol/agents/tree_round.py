"""One upstream inference of one agent of a tree, and what of it the client has not been told."""

from gateway.protocol.announcer import Round
from gateway.protocol.items import AgentRef, Status
from gateway.protocol.slots import MessageSlot, Slot


class SpeechSlot(MessageSlot):
    """A message of an agent. Its phase is what its round makes of it, whatever the engine calls it."""

    __slots__ = ()

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing."""
        return not any(part.text.strip() for part in self.texts())

    def adopt(self, item: dict[str, object]) -> int:  # noqa: ARG002 - as above
        """Take nothing from a snapshot."""
        return 0


class TreeRound(Round):
    """A round of a tree.

    Attributes:
        ref: the agent, as items and events name it.
        goes_on: what the agent has said is not its final answer: it has called a tool, or was cut.
        unsaid: messages that are whole, and what they end as; what they are is not known yet.
    """

    __slots__ = ("goes_on", "ref", "unsaid")

    ref: AgentRef

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.ref = AgentRef(agent_name=agent)
        self.goes_on = False
        self.unsaid: list[tuple[Slot, Status]] = []

    @property
    def is_between_items(self) -> bool:
        """Whether the engine is within no item, so that the round can be cut without losing any."""
        return self.last is None or self.last.closed
