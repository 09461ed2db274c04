"""The numbers that one response gives to what it tells."""

from gateway.protocol.events import ResponseInProgress
from gateway.protocol.numbering import Numbering
from gateway.protocol.response import Response


def test_events_are_numbered_as_they_are_told_and_numbers_can_be_taken_back():
    numbers = Numbering()
    response = Response(id="resp_1", created_at=1, status="in_progress", model="m")
    events = [ResponseInProgress(response=response) for _ in range(4)]
    assert numbers.give(events[:2]) == events[:2]
    assert numbers.give([]) == []
    numbers.give(events[2:3])
    numbers.next = 2
    numbers.give(events[3:])
    assert ([event.sequence_number for event in events], numbers.next) == ([0, 1, 2, 2], 3)
