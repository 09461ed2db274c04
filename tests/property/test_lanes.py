"""Lanes under any schedule: against a slow model step by step, and in virtual time from first to last."""

import heapq
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.protocol.errors import GatewayError
from gateway.protocol.lanes import LaneLimits, LaneScheduler, Ticket

LIMITS = LaneLimits(max_active=2, max_named_lanes=3, max_outstanding=8, max_outstanding_bytes=40)
lanes = st.sampled_from([None, "a", "b", "c", "d"])
sizes = st.integers(1, 9)


class Schedules(RuleBasedStateMachine):
    """Creates come, run, end and hand over in any order; a list in order of admission says what must be."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: LaneScheduler[int] = LaneScheduler(LIMITS)
        self.numbers = count()
        self.waiting: list[Ticket[int]] = []
        self.active: list[Ticket[int]] = []
        self.names: set[str] = set()
        self.passed: set[tuple[Ticket[int], str | None]] = set()

    def allowed(self, lane: str | None, size: int) -> bool:
        outstanding = [*self.waiting, *self.active]
        return (
            len({*self.names, lane} - {None}) <= LIMITS.max_named_lanes
            and len(outstanding) < LIMITS.max_outstanding
            and sum(ticket.size for ticket in outstanding) + size <= LIMITS.max_outstanding_bytes
        )

    def begin(self, started: list[Ticket[int]]) -> None:
        """Take note of what starts: the head of a free lane, and no lane passes another's head twice."""
        for ticket in started:
            heads = self.heads()
            assert ticket in heads
            self.waiting.remove(ticket)
            self.active.append(ticket)
            passed = {(other, ticket.lane) for other in heads if other is not ticket}
            assert not passed & self.passed
            self.passed |= passed

    def heads(self) -> list[Ticket[int]]:
        """The first of each lane on which nothing runs."""
        first = {ticket.lane: ticket for ticket in reversed(self.waiting)}
        busy = {ticket.lane for ticket in self.active}
        return [ticket for lane, ticket in first.items() if lane not in busy]

    @rule(lane=lanes, size=sizes)
    def admit(self, lane: str | None, size: int) -> None:
        if not self.allowed(lane, size):
            with pytest.raises(GatewayError):
                self.scheduler.admit(lane, size, 0)
            return
        ticket = self.scheduler.admit(lane, size, next(self.numbers))
        self.waiting.append(ticket)
        self.names |= {lane} - {None}

    @rule()
    def start(self) -> None:
        self.begin(self.scheduler.start())
        self.check_that_nobody_idles()

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if not self.active:
            return
        ticket = data.draw(st.sampled_from(self.active))
        self.active.remove(ticket)
        self.begin(self.scheduler.finish(ticket))
        self.check_that_nobody_idles()

    @rule(data=st.data(), size=sizes)
    def hand_over(self, data: st.DataObject, size: int) -> None:
        if not self.active:
            return
        ticket = data.draw(st.sampled_from(self.active))
        successor = Ticket(lane=ticket.lane, size=size, payload=next(self.numbers))
        assert self.scheduler.finish(ticket, successor=successor) == [successor]
        self.active[self.active.index(ticket)] = successor

    def check_that_nobody_idles(self) -> None:
        assert len(self.active) == LIMITS.max_active or not self.heads()

    @invariant()
    def the_bounds_hold(self) -> None:
        assert len(self.active) <= LIMITS.max_active
        assert len({ticket.lane for ticket in self.active}) == len(self.active)

    @invariant()
    def the_numbers_agree(self) -> None:
        outstanding = [*self.waiting, *self.active]
        assert self.scheduler.active == len(self.active)
        assert self.scheduler.waiting == len(self.waiting)
        assert self.scheduler.outstanding_bytes == sum(ticket.size for ticket in outstanding)
        assert self.scheduler.named_lanes == len(self.names)
        assert self.scheduler.idle is not bool(outstanding)

    def teardown(self) -> None:
        self.begin(self.scheduler.start())
        while self.active:
            self.begin(self.scheduler.finish(self.active.pop()))
        assert not self.waiting
        assert self.scheduler.idle
        assert self.scheduler.outstanding_bytes == 0


TestSchedules: Any = Schedules.TestCase


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, str | None, int]]:
    """When creates come, for which lane, and how long each runs."""
    several = st.lists(st.tuples(st.integers(0, 5), lanes, st.integers(0, 9)), max_size=40)
    moment, timed = 0, []
    for pause, lane, duration in draw(several):
        moment += pause
        timed.append((moment, lane, duration))
    return timed


@given(arrivals(), st.integers(1, 4))
def test_in_time_every_create_runs_in_the_order_of_its_lane(timed, max_active):
    limits = LaneLimits(max_active=max_active, max_named_lanes=9, max_outstanding=99, max_outstanding_bytes=99)
    scheduler: LaneScheduler[tuple[int, int]] = LaneScheduler(limits)
    # Ends come before arrivals of the same moment.
    agenda: list[tuple[int, int, int, Any]] = [
        (moment, 1, number, (lane, duration)) for number, (moment, lane, duration) in enumerate(timed)
    ]
    heapq.heapify(agenda)
    order: list[Ticket[tuple[int, int]]] = []
    waits: dict[int, int] = {}
    while agenda:
        now, arrives, number, what = heapq.heappop(agenda)
        if arrives:
            lane, duration = what
            scheduler.admit(lane, 1, (number, duration))
            started = scheduler.start()
        else:
            started = scheduler.finish(what)
        for ticket in started:
            order.append(ticket)
            number, duration = ticket.payload
            waits[number] = now - timed[number][0]
            heapq.heappush(agenda, (now + duration, 0, number, ticket))
        assert scheduler.active <= max_active
        # Whoever waits does so for a lane that is busy or for a place, never for nothing.
        assert scheduler.active or not scheduler.waiting
    assert scheduler.idle
    for lane in {lane for _, lane, _ in timed}:
        numbers = [ticket.payload[0] for ticket in order if ticket.lane == lane]
        assert numbers == [number for number, (_, other, _) in enumerate(timed) if other == lane]
    # Nobody waits longer than all work that was there before or beside it can take.
    assert all(wait <= sum(duration for _, _, duration in timed) for wait in waits.values())
