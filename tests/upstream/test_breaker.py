import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.protocol.errors import Unavailable
from gateway.upstream.breaker import Breaker, State

OPEN_SECONDS = 5.0


class Setup:
    def __init__(self, failures: int = 3) -> None:
        self.now = 100.0
        self.told: list[State] = []
        self.breaker = Breaker(
            "gpu", failures=failures, open_seconds=OPEN_SECONDS, clock=lambda: self.now, tell=self.told.append
        )

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            self.call(False)

    def answer(self) -> None:
        self.call(True)

    def call(self, answered: bool | None) -> None:
        self.breaker.settle(self.breaker.admit(), answered)

    def refusal(self) -> Unavailable:
        with pytest.raises(Unavailable) as caught:
            self.breaker.admit()
        return caught.value


@pytest.fixture
def setup():
    return Setup()


def test_failures_in_a_row_open_it(setup):
    setup.fail(2)
    assert setup.breaker.state is State.CLOSED
    setup.fail()
    assert setup.breaker.state is State.OPEN
    assert setup.told == [State.OPEN]


def test_an_answer_in_between_ends_the_row(setup):
    setup.fail(2)
    setup.answer()
    setup.fail(2)
    assert setup.breaker.state is State.CLOSED


def test_calls_without_a_verdict_neither_end_the_row_nor_lengthen_it(setup):
    setup.fail(2)
    for _ in range(5):
        setup.call(None)
    assert setup.breaker.state is State.CLOSED
    setup.fail()
    assert setup.breaker.state is State.OPEN


@pytest.mark.parametrize(("later", "seconds"), [(0, 5), (0.5, 5), (3.9, 2), (4.99, 1)])
def test_a_refusal_says_when_to_come_back(setup, later, seconds):
    setup.fail(3)
    setup.now += later
    refusal = setup.refusal()
    assert (refusal.status, refusal.type, refusal.code) == (503, "service_unavailable_error", "server_is_overloaded")
    assert refusal.retry_after == seconds
    assert "'gpu'" in refusal.message
    assert f"in {seconds} second" in refusal.message


def test_one_call_at_a_time_is_tried_and_its_answer_closes_it(setup):
    setup.fail(3)
    setup.now += OPEN_SECONDS
    assert setup.breaker.state is State.HALF_OPEN
    trial = setup.breaker.admit()
    assert setup.refusal().retry_after == 1
    setup.breaker.settle(trial, True)
    assert setup.breaker.state is State.CLOSED
    assert setup.told == [State.OPEN, State.CLOSED]
    setup.fail(2)
    assert setup.breaker.state is State.CLOSED


def test_a_failed_trial_opens_it_again(setup):
    setup.fail(3)
    setup.now += OPEN_SECONDS
    setup.fail()
    assert setup.breaker.state is State.OPEN
    assert setup.refusal().retry_after == OPEN_SECONDS


def test_a_trial_without_a_verdict_leaves_its_place_to_the_next(setup):
    setup.fail(3)
    setup.now += OPEN_SECONDS
    setup.call(None)
    assert setup.breaker.state is State.HALF_OPEN
    setup.answer()
    assert setup.breaker.state is State.CLOSED


@pytest.mark.parametrize("answered", [True, False, None])
def test_calls_that_began_before_it_opened_have_no_say(setup, answered):
    early = [setup.breaker.admit() for _ in range(4)]
    setup.fail(3)
    setup.breaker.settle(early.pop(), answered)
    assert setup.breaker.state is State.OPEN
    setup.now += OPEN_SECONDS
    setup.breaker.settle(early.pop(), answered)
    assert setup.breaker.state is State.HALF_OPEN
    trial = setup.breaker.admit()
    setup.breaker.settle(early.pop(), answered)
    assert setup.refusal().retry_after == 1
    setup.breaker.settle(trial, True)
    setup.breaker.settle(early.pop(), answered)
    setup.fail(2)
    assert setup.breaker.state is State.CLOSED
    setup.fail()
    assert setup.breaker.state is State.OPEN


def test_a_healthy_probe_closes_it_only_when_the_time_is_up(setup):
    setup.fail(3)
    setup.breaker.note_healthy()
    assert setup.breaker.state is State.OPEN
    setup.now += OPEN_SECONDS
    setup.breaker.note_healthy()
    assert setup.breaker.state is State.CLOSED


def test_after_a_probe_closed_it_one_failure_is_enough(setup):
    setup.fail(3)
    setup.now += OPEN_SECONDS
    setup.breaker.note_healthy()
    setup.fail()
    assert setup.breaker.state is State.OPEN


def test_a_healthy_probe_spares_nobody_a_failure_while_it_is_closed(setup):
    setup.fail(2)
    setup.breaker.note_healthy()
    setup.fail()
    assert setup.breaker.state is State.OPEN


def test_a_trial_that_a_probe_overtook_counts_as_any_call(setup):
    setup.fail(3)
    setup.now += OPEN_SECONDS
    trial = setup.breaker.admit()
    setup.breaker.note_healthy()
    setup.breaker.admit()
    setup.breaker.settle(trial, True)
    setup.fail(2)
    assert setup.breaker.state is State.CLOSED


def test_none_is_never_too_many():
    setup = Setup(failures=0)
    setup.fail(100)
    setup.breaker.note_healthy()
    assert setup.breaker.state is State.CLOSED
    assert setup.told == []


class AnyHistory(RuleBasedStateMachine):
    """Calls that overlap, end in any order or never, probes and time: what must hold throughout."""

    @initialize(failures=st.integers(1, 4))
    def begin(self, failures):
        self.failures = failures
        self.setup = Setup(failures)
        self.running: list[tuple[int, bool]] = []
        self.trial = False  # whether one is being made that no probe overtook
        self.opened_at = 0.0
        self.openings = 0
        self.unanswered = 0  # failures since the last answer, of calls of any age

    @rule(seconds=st.sampled_from([0.1, 1.0, OPEN_SECONDS]))
    def wait(self, seconds):
        self.setup.now += seconds

    @rule()
    def call(self):
        state = self.setup.breaker.state
        if state is State.OPEN or (state is State.HALF_OPEN and self.trial):
            refusal = self.setup.refusal()
            assert 1 <= refusal.retry_after <= OPEN_SECONDS
            return
        self.trial = self.trial or state is State.HALF_OPEN
        self.running.append((self.setup.breaker.admit(), state is State.HALF_OPEN))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), answered=st.sampled_from([True, False, None]))
    def end(self, data, answered):
        round_, tried = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        began, before, told = self.openings, self.setup.breaker.state, len(self.setup.told)
        was_trial = tried and self.trial and round_ == began
        self.setup.breaker.settle(round_, answered)
        self.unanswered += answered is False
        after = self.setup.breaker.state
        if len(self.setup.told) > told and after is State.OPEN:
            assert answered is False
            assert was_trial or self.unanswered >= self.failures or self.on_probation
            self.opened_at = self.setup.now
            self.openings += 1
            self.trial = False
        if was_trial:
            self.trial = False
            assert after is {None: before, True: State.CLOSED, False: State.OPEN}[answered]
        if answered and round_ == began:
            # What was asked before it last opened tells of the past.
            self.unanswered = 0
            self.on_probation = False

    @rule()
    def probe(self):
        before = self.setup.breaker.state
        self.setup.breaker.note_healthy()
        if before is State.HALF_OPEN:
            assert self.setup.breaker.state is State.CLOSED
            self.trial = False
            self.on_probation = True
        else:
            assert self.setup.breaker.state is before

    on_probation = False

    @invariant()
    def open_for_as_long_as_it_says(self):
        state = self.setup.breaker.state
        if state is not State.CLOSED:
            assert (state is State.OPEN) == (self.setup.now - self.opened_at < OPEN_SECONDS)


AnyHistory.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase
