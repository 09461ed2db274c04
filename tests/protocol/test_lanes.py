"""Which create of a connection is next, and which is refused; what holds for any schedule is stated as properties."""

import pytest

from gateway.protocol.errors import GatewayError, RateLimitExceeded, StreamLimitReached
from gateway.protocol.lanes import LaneLimits, LaneScheduler, Ticket

LIMITS = {"max_active": 16, "max_named_lanes": 32, "max_outstanding": 64, "max_outstanding_bytes": 1000}


def schedule(**limits):
    return LaneScheduler(LaneLimits(**{**LIMITS, **limits}))


def admit_all(scheduler, *lanes):
    """Admit one create for each name, numbered from 0; `-` is the default lane."""
    return [scheduler.admit(None if lane == "-" else lane, 1, number) for number, lane in enumerate(lanes)]


def payloads(tickets):
    return [ticket.payload for ticket in tickets]


def counts(scheduler):
    return scheduler.active, scheduler.waiting, scheduler.outstanding_bytes, scheduler.named_lanes


def test_nothing_is_idle():
    scheduler = schedule()
    assert scheduler.idle
    assert counts(scheduler) == (0, 0, 0, 0)
    assert scheduler.start() == []


def test_a_create_is_admitted_started_and_finished():
    scheduler = schedule()
    ticket = scheduler.admit("a", 7, "create")
    assert (ticket.lane, ticket.size, ticket.payload) == ("a", 7, "create")
    assert counts(scheduler) == (0, 1, 7, 1)
    assert not scheduler.idle
    assert scheduler.start() == [ticket]
    assert counts(scheduler) == (1, 0, 7, 1)
    assert not scheduler.idle
    assert scheduler.finish(ticket) == []
    assert counts(scheduler) == (0, 0, 0, 1)
    assert scheduler.idle


@pytest.mark.parametrize("lane", ["a", "-"])
def test_creates_of_one_lane_follow_each_other(lane):
    scheduler = schedule()
    first, second, third = admit_all(scheduler, lane, lane, lane)
    assert scheduler.start() == [first]
    assert scheduler.start() == []
    assert scheduler.finish(first) == [second]
    assert scheduler.finish(second) == [third]
    last = scheduler.admit(third.lane, 1, "last")
    assert scheduler.start() == []
    assert scheduler.finish(third) == [last]
    assert scheduler.finish(last) == []


def test_lanes_run_side_by_side_and_the_default_lane_is_one_of_them():
    scheduler = schedule()
    admit_all(scheduler, "a", "-", "b", "a", "-")
    assert payloads(scheduler.start()) == [0, 1, 2]
    assert counts(scheduler) == (3, 2, 5, 2)


def test_what_is_above_the_active_creates_waits():
    scheduler = schedule(max_active=2)
    first, second, third, *_ = admit_all(scheduler, "a", "b", "c", "d")
    assert scheduler.start() == [first, second]
    assert scheduler.finish(second) == [third]
    assert payloads(scheduler.finish(first)) == [3]


def test_a_lane_with_much_to_do_holds_up_no_other():
    scheduler = schedule(max_active=1)
    admit_all(scheduler, "a", "a", "a", "b", "b", "c")
    order, started = [], scheduler.start()
    while started:
        order += payloads(started)
        started = scheduler.finish(started[0])
    assert order == [0, 3, 5, 1, 4, 2]


def test_a_successor_keeps_the_lane_and_the_place():
    scheduler = schedule(max_active=1)
    first, second, other = admit_all(scheduler, "a", "a", "b")
    scheduler.start()
    successor = Ticket(lane="a", size=50, payload="successor")
    assert scheduler.finish(first, successor=successor) == [successor]
    assert counts(scheduler) == (1, 2, 52, 2)
    assert scheduler.start() == []
    assert scheduler.finish(successor) == [other]
    assert scheduler.finish(other) == [second]


def test_no_limit_refuses_a_successor():
    scheduler = schedule(max_outstanding=1, max_outstanding_bytes=1)
    [first] = scheduler.start() or [scheduler.admit("a", 1, None)]
    scheduler.start()
    successor = Ticket(lane="a", size=2, payload=None)
    assert scheduler.finish(first, successor=successor) == [successor]
    assert scheduler.outstanding_bytes == 2
    assert scheduler.finish(successor) == []
    assert scheduler.outstanding_bytes == 0


def test_only_what_runs_can_end_and_only_once():
    scheduler = schedule()
    first, second = admit_all(scheduler, "a", "a")
    before = counts(scheduler)
    for ticket in (first, Ticket(lane="never", size=1, payload=None)):
        with pytest.raises(ValueError, match="only what runs"):
            scheduler.finish(ticket)
    assert counts(scheduler) == before
    scheduler.start()
    for ticket in (second, Ticket(lane="a", size=1, payload=0)):
        with pytest.raises(ValueError, match="only what runs"):
            scheduler.finish(ticket)
    scheduler.finish(first)
    with pytest.raises(ValueError, match="only what runs"):
        scheduler.finish(first)
    assert counts(scheduler) == (1, 0, 1, 1)


def test_a_successor_of_another_lane_is_none():
    scheduler = schedule()
    [first] = admit_all(scheduler, "a")
    scheduler.start()
    with pytest.raises(ValueError, match="stays on the lane"):
        scheduler.finish(first, successor=Ticket(lane="b", size=1, payload=None))
    assert counts(scheduler) == (1, 0, 1, 1)
    assert scheduler.finish(first) == []


# ---------------------------------------------------------------- refusals


def refusal_of(scheduler, lane, size=1):
    before = counts(scheduler)
    with pytest.raises(GatewayError) as refused:
        scheduler.admit(lane, size, None)
    assert counts(scheduler) == before
    return refused.value


def test_names_of_lanes_are_counted_and_never_given_back():
    scheduler = schedule(max_named_lanes=2)
    tickets = admit_all(scheduler, "a", "b", "-", "a")
    error = refusal_of(scheduler, "c")
    assert isinstance(error, StreamLimitReached)
    assert (error.status, error.type) == (400, "invalid_request_error")
    assert (error.code, error.param) == ("websocket_stream_limit_reached", "stream_id")
    assert error.message == (
        "This WebSocket connection has reached its maximum number of distinct stream IDs (2). "
        "Reuse an existing stream_id or open a new WebSocket connection."
    )
    started = scheduler.start()
    while started:
        started = [*started[1:], *scheduler.finish(started[0])]
    assert scheduler.idle
    assert refusal_of(scheduler, "c").code == "websocket_stream_limit_reached"
    assert scheduler.admit("b", 1, None) not in tickets
    assert scheduler.admit(None, 1, None)


def test_creates_that_wait_or_run_are_counted():
    scheduler = schedule(max_outstanding=3)
    first, *_ = admit_all(scheduler, "a", "a", "b")
    scheduler.start()
    error = refusal_of(scheduler, "new")
    assert isinstance(error, RateLimitExceeded)
    assert (error.status, error.type, error.code) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert "3 creates" in error.message
    assert "[websocket] max_outstanding)" in error.message
    scheduler.finish(first)
    assert scheduler.admit("new", 1, None)


def test_bytes_that_wait_or_run_are_counted():
    scheduler = schedule(max_outstanding_bytes=10)
    first = scheduler.admit("a", 6, None)
    scheduler.start()
    scheduler.admit("b", 4, None)
    error = refusal_of(scheduler, "new", 1)
    assert (error.status, error.type, error.code) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert "11 bytes; 10 are accepted ([websocket] max_outstanding_bytes)" in error.message
    scheduler.finish(first)
    assert refusal_of(scheduler, "new", 7).code == "rate_limit_exceeded"
    assert scheduler.admit("new", 6, None)


def test_a_refusal_that_waiting_mends_uses_up_no_name():
    scheduler = schedule(max_named_lanes=1, max_outstanding=1)
    ticket = scheduler.admit(None, 1, None)
    assert refusal_of(scheduler, "a").status == 429
    scheduler.start()
    scheduler.finish(ticket)
    assert scheduler.admit("b", 1, None).lane == "b"


def test_what_waiting_does_not_mend_is_told_first():
    scheduler = schedule(max_named_lanes=0, max_outstanding=0)
    assert refusal_of(scheduler, "a").status == 400
    assert refusal_of(scheduler, None).status == 429
