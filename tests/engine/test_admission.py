"""Who may start: places for responses, seats at an inference server, and the drain."""

import asyncio
from contextlib import ExitStack

import pytest
from engine.doubles import LONG, settle
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.engine.admission import Admission, Seats
from gateway.protocol.errors import Unavailable
from gateway.telemetry.metrics import Metrics


@pytest.fixture
def metrics():
    return Metrics()


def test_one_response_too_many_is_refused_and_told_to_come_back(metrics):
    admission = Admission(2, metrics)
    with admission.admit(), admission.admit(), pytest.raises(Unavailable, match="max_concurrent_requests") as refused:
        admission.admit().__enter__()
    assert (refused.value.status, refused.value.retry_after) == (503, 1.0)


def test_a_place_is_free_again_after_any_end(metrics):
    admission = Admission(1, metrics)
    with admission.admit():
        assert (admission.active, metrics.registry.get_sample_value("gateway_active_responses")) == (1, 1)
    with pytest.raises(ZeroDivisionError), admission.admit():
        raise ZeroDivisionError
    assert (admission.active, metrics.registry.get_sample_value("gateway_active_responses")) == (0, 0)
    with admission.admit():
        assert admission.active == 1


def test_a_draining_gateway_takes_nothing_new_and_lets_the_rest_go_on(metrics):
    admission = Admission(5, metrics)
    with admission.admit():
        admission.begin_drain()
        with pytest.raises(Unavailable, match="shutting down"):
            admission.admit().__enter__()
        assert admission.active == 1


async def test_an_idle_gateway_is_drained_at_once(metrics):
    assert await Admission(1, metrics).drained(0)


async def test_the_drain_waits_for_the_last_response(metrics):
    admission = Admission(5, metrics)
    with ExitStack() as running:
        running.enter_context(admission.admit())
        with admission.admit():
            waiting = [asyncio.create_task(admission.drained(LONG)) for _ in range(2)]
        await settle()
        assert not any(task.done() for task in waiting)
    assert await asyncio.gather(*waiting) == [True, True]


async def test_the_drain_gives_up_in_time(metrics):
    admission = Admission(5, metrics)
    with admission.admit():
        assert not await admission.drained(0.01)


async def test_seats_are_taken_without_waiting_while_there_are_any():
    seats = Seats("gpu", 2, LONG)
    with await seats.take(), await seats.take():
        pass


@pytest.mark.parametrize("wait_seconds", [0, 0.02])
async def test_a_seat_is_waited_for_no_longer_than_configured(wait_seconds):
    seats = Seats("gpu", 1, wait_seconds)
    with await seats.take():
        with pytest.raises(Unavailable, match=r"'gpu' is at its limit of 1 .*max_concurrent"):
            await seats.take()
        assert (seats.running.now, seats.waiting.now) == (1, 0)
    with await seats.take():
        pass


async def sit(seats, until, taken=None):
    with await seats.take():
        if taken is not None:
            taken.append(asyncio.current_task().get_name())
        await until.wait()


async def test_those_who_wait_get_seats_in_order():
    seats, leave, taken = Seats("gpu", 1, LONG), asyncio.Event(), []
    tasks = [asyncio.create_task(sit(seats, leave, taken), name=str(number)) for number in range(3)]
    await settle()
    assert taken == ["0"]
    assert (seats.running.now, seats.waiting.now) == (1, 2)
    leave.set()
    await asyncio.gather(*tasks)
    assert taken == ["0", "1", "2"]
    assert (seats.running.now, seats.waiting.now) == (0, 0)


async def test_an_error_frees_the_seat():
    seats = Seats("gpu", 1, 0)
    with pytest.raises(ZeroDivisionError), await seats.take():
        raise ZeroDivisionError
    with await seats.take():
        pass


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_frees_the_seat_whenever_it_comes(turns):
    seats, leave, never = Seats("gpu", 1, LONG), asyncio.Event(), asyncio.Event()
    holder = asyncio.create_task(sit(seats, leave))
    await settle()
    waiter = asyncio.create_task(sit(seats, never))
    await settle()
    leave.set()
    await settle(turns)
    waiter.cancel()
    await asyncio.wait([waiter], timeout=1)
    assert waiter.cancelled(), "the cancellation was lost"
    await holder
    assert (seats.running.now, seats.waiting.now) == (0, 0)
    with await seats.take():
        pass


# ---------------------------------------------------------------- limits that change


def test_a_lower_limit_waits_for_responses_to_end(metrics):
    admission = Admission(3, metrics)
    with admission.admit(), ExitStack() as ending:
        ending.enter_context(admission.admit())
        admission.resize(1)
        with pytest.raises(Unavailable, match="limit of 1 "):
            admission.admit().__enter__()
        ending.close()
        with pytest.raises(Unavailable):
            admission.admit().__enter__()
        assert admission.active == 1
        admission.resize(2)
        with admission.admit():
            assert admission.active == 2


async def test_more_seats_are_given_at_once_to_those_who_wait():
    seats, leave, taken = Seats("gpu", 1, LONG), asyncio.Event(), []
    tasks = [asyncio.create_task(sit(seats, leave, taken), name=str(number)) for number in range(4)]
    await settle()
    seats.resize(3, LONG)
    await settle()
    assert (taken, seats.running.now, seats.waiting.now) == (["0", "1", "2"], 3, 1)
    leave.set()
    await asyncio.gather(*tasks)


async def test_fewer_seats_hold_across_the_change():
    seats, taken = Seats("gpu", 3, LONG), []
    leave = [asyncio.Event() for _ in range(4)]
    tasks = [asyncio.create_task(sit(seats, leave[number], taken), name=str(number)) for number in range(4)]
    await settle()
    seats.resize(1, LONG)
    for number, seated in enumerate((3, 2, 1)):
        assert (seats.running.now, seats.waiting.now) == (seated, 1)
        leave[number].set()
        await settle()
    assert (taken[-1], seats.running.now, seats.waiting.now) == ("3", 1, 0)
    leave[3].set()
    await asyncio.gather(*tasks)


async def test_a_changed_wait_holds_for_those_who_come_later():
    seats = Seats("gpu", 1, LONG)
    with await seats.take():
        patient = asyncio.create_task(sit(seats, asyncio.Event()))
        await settle()
        seats.resize(1, 0)
        with pytest.raises(Unavailable, match="max_concurrent"):
            await seats.take()
        assert not patient.done()
        patient.cancel()
        await asyncio.wait([patient])


class Seating(RuleBasedStateMachine):
    """Calls come, wait, give up and leave while the number of seats changes."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.seats = Seats("gpu", 2, LONG)
        self.limit = 2
        self.calls = []

    def run(self, action=lambda: None):
        async def turn():
            action()
            await settle(8)

        self.loop.run_until_complete(turn())
        self.calls = [call for call in self.calls if not call[0].done()]

    @rule()
    def come(self):
        def begin():
            leave, taken = asyncio.Event(), []
            self.calls.append((asyncio.create_task(sit(self.seats, leave, taken)), leave, taken))

        free = self.seats.running.now < self.limit
        before = self.seats.running.now
        self.run(begin)
        assert self.seats.running.now == before + free

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), cancelled=st.booleans())
    def go(self, data, cancelled):
        task, leave, _ = data.draw(st.sampled_from(self.calls))
        self.run(task.cancel if cancelled else leave.set)

    @rule(limit=st.integers(1, 5))
    def resize(self, limit):
        before, self.limit = self.seats.running.now, limit
        self.run(lambda: self.seats.resize(limit, LONG))
        assert self.seats.running.now <= max(before, limit)

    @invariant()
    def nobody_waits_beside_a_free_seat(self):
        seated = sum(bool(taken) for _, _, taken in self.calls)
        assert (self.seats.running.now, self.seats.waiting.now) == (seated, len(self.calls) - seated)
        assert not self.seats.waiting.now or self.seats.running.now >= self.limit

    def teardown(self):
        for _, leave, _ in self.calls:
            leave.set()
        self.seats.resize(len(self.calls) + 1, LONG)
        self.run()
        assert self.calls == []
        self.loop.close()


TestSeating = Seating.TestCase
TestSeating.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
