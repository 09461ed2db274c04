"""The sequence numbers of what one response tells."""

from gateway.protocol.events import Event


class Numbering:
    """Counts the events of one response.

    Attributes:
        next: the number of the next event.
    """

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0

    def give(self, out: list[Event]) -> list[Event]:
        """Number events that are told now, and return them."""
        number = self.next
        for event in out:
            event.sequence_number = number
            number += 1
        self.next = number
        return out
