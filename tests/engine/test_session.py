"""What a connection remembers, within which bounds, and when it forgets."""

import asyncio
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs

from gateway.engine.session import Checkpoint, Session, SessionBounds
from gateway.ports import StoredItem
from gateway.protocol.errors import ResourceLimitExceeded
from gateway.telemetry.metrics import Metrics

BOUNDS = SessionBounds(
    max_checkpoint_bytes=100, max_checkpoint_items=3, max_session_bytes=250, evict_parent_on_failure="same_lane"
)


def checkpoint(response_id, *sizes, stored=False):
    items = [StoredItem(role="input", type="message", id="msg_1", data=b"x" * size) for size in sizes or (10,)]
    return Checkpoint(response_id, items, stored=stored)


def leave(continuation, end):
    """End a create by an exception, which it passes on."""
    with pytest.raises(end), continuation:
        raise end


class Memory:
    """A session and what is measured of it."""

    def __init__(self, **bounds):
        self.metrics = Metrics()
        self.session = Session(structs.replace(BOUNDS, **bounds), self.metrics)

    def remember(self, lane, response_id, *sizes, stored=False, parent=None):
        with self.session.begin(lane, parent) as continuation:
            continuation.prepare(checkpoint(response_id, *sizes, stored=stored))
            continuation.publish()

    @contextmanager
    def failing(self, lane, parent):
        with self.session.begin(lane, parent) as continuation:
            yield continuation

    def sample(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"gateway_{name}", labels)

    def outcomes(self):
        names = ("kept", "too_large", "evicted")
        return tuple(self.sample("websocket_checkpoints_total", outcome=name) or 0 for name in names)


@pytest.fixture
def memory():
    return Memory()


# ---------------------------------------------------------------- what is remembered


@pytest.mark.parametrize("lane", [None, "a"])
def test_a_lane_has_one_latest_response(memory, lane):
    assert memory.session.latest(lane) is None
    memory.remember(lane, "resp_1", 10)
    assert memory.session.latest(lane).response_id == "resp_1"
    memory.remember(lane, "resp_2", 20)
    assert memory.session.latest(lane).response_id == "resp_2"
    assert memory.session.find("resp_1") is None
    assert memory.session.bytes == 20
    assert memory.outcomes() == (2, 0, 0)


def test_the_latest_of_every_lane_can_be_found_from_any(memory):
    for lane in (None, "a", "b"):
        memory.remember(lane, f"resp_{lane}")
    for name in (None, "a", "b"):
        with memory.session.begin("another", None) as continuation:
            assert continuation.find_parent(f"resp_{name}").response_id == f"resp_{name}"


@pytest.mark.parametrize("odd", [None, 5, "", [], {}, ["resp_1"]])
def test_what_is_no_id_finds_nothing(memory, odd):
    memory.remember(None, "resp_1")
    assert memory.session.find(odd) is None
    with memory.failing(None, odd):
        pass
    assert memory.session.find("resp_1") is not None


def test_lookups_are_counted(memory):
    memory.remember(None, "resp_1")
    with memory.session.begin("a", "resp_1") as continuation:
        assert continuation.find_parent("resp_1") is memory.session.find("resp_1")
    with memory.session.begin("a", "resp_9") as continuation:
        assert continuation.find_parent("resp_9") is None
    found = [memory.sample("websocket_parent_lookups_total", outcome=outcome) for outcome in ("hit", "miss")]
    assert found == [1, 1]


def test_the_end_of_the_connection_is_the_end_of_its_memory(memory):
    memory.remember(None, "resp_1")
    memory.remember("a", "resp_2")
    assert memory.sample("websocket_session_bytes") == 20
    memory.session.close()
    memory.session.close()
    assert (memory.session.bytes, memory.session.find("resp_1"), memory.session.latest("a")) == (0, None, None)
    assert memory.sample("websocket_session_bytes") == 0
    assert memory.outcomes() == (2, 0, 0), "what is forgotten at the end is not evicted"


def test_the_gauge_is_the_sum_over_connections():
    metrics = Metrics()
    sessions = [Session(BOUNDS, metrics), Session(BOUNDS, metrics)]
    for session in sessions:
        with session.begin(None, None) as continuation:
            continuation.prepare(checkpoint("resp_1", 40))
            continuation.publish()
    assert metrics.socket_load.session_bytes == 80
    sessions[0].close()
    assert (metrics.socket_load.session_bytes, sessions[1].bytes) == (40, 40)


# ---------------------------------------------------------------- what is in use


def test_a_parent_in_use_outlives_the_advance_of_its_lane(memory):
    memory.remember("a", "resp_1", 30)
    with memory.session.begin("b", "resp_1") as fork:
        parent = fork.find_parent("resp_1")
        memory.remember("a", "resp_2", 20)
        assert memory.session.find("resp_1") is None, "a later fork comes too late"
        assert (memory.session.bytes, len(parent.items)) == (50, 1)
        fork.prepare(checkpoint("resp_3", 40))
        assert memory.session.bytes == 90
        fork.publish()
    assert memory.session.bytes == 60
    assert {memory.session.latest(lane).response_id for lane in "ab"} == {"resp_2", "resp_3"}


def test_forks_share_what_they_use(memory):
    memory.remember("a", "resp_1", 90)
    with memory.session.begin("b", "resp_1") as first, memory.session.begin("c", "resp_1") as second:
        assert first.find_parent("resp_1") is second.find_parent("resp_1")
        assert memory.session.bytes == 90


def test_a_lane_moves_on_with_both_in_memory_only_until_it_has(memory):
    memory.remember(None, "resp_1", 60)
    with memory.session.begin(None, "resp_1") as continuation:
        continuation.find_parent("resp_1")
        continuation.prepare(checkpoint("resp_2", 70))
        assert memory.session.bytes == 130
        continuation.publish()
        assert memory.session.bytes == 130
    assert memory.session.bytes == 70


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("resource", "limit", "fits", "passes"),
    [
        ("max_checkpoint_bytes", 100, (60, 40), (60, 41)),
        ("max_checkpoint_items", 3, (1, 1, 1), (1, 1, 1, 1)),
        ("max_session_bytes", 250, (70,), (71,)),
    ],
)
def test_the_bounds_themselves_are_allowed_and_one_more_is_not(memory, resource, limit, fits, passes):
    if resource == "max_session_bytes":
        memory.remember("a", "resp_a", 100)
        memory.remember("b", "resp_b", 80)
    held = memory.session.bytes
    with pytest.raises(ResourceLimitExceeded) as refused, memory.session.begin(None, None) as continuation:
        continuation.prepare(checkpoint("resp_1", *passes))
    assert (refused.value.resource, refused.value.limit, refused.value.status) == (resource, limit, 502)
    assert resource in refused.value.message
    assert str(limit) in refused.value.message
    assert (memory.session.bytes, memory.session.latest(None)) == (held, None)
    assert memory.outcomes()[1] == 1
    memory.remember(None, "resp_2", *fits)
    assert memory.session.bytes == held + sum(fits)


def test_a_message_about_items_counts_items(memory):
    with pytest.raises(ResourceLimitExceeded, match=r"max_checkpoint_items \(3 items\)"):
        memory.remember(None, "resp_1", 1, 1, 1, 1)


def test_what_is_stored_but_too_large_is_left_to_the_database(memory):
    memory.remember(None, "resp_1", 30)
    memory.remember("a", "resp_a", 30)
    memory.remember(None, "resp_2", 101, stored=True, parent="resp_1")
    assert memory.session.latest(None) is None, "what came before is no longer the latest"
    assert memory.session.latest("a").response_id == "resp_a"
    assert memory.session.bytes == 30
    assert memory.outcomes() == (2, 1, 0)


def test_what_is_in_use_counts(memory):
    memory.remember("a", "resp_1", 100)
    with memory.session.begin("b", "resp_1") as fork:
        fork.find_parent("resp_1")
        memory.remember("a", "resp_2", 100)
        with pytest.raises(ResourceLimitExceeded) as refused:
            memory.remember("c", "resp_3", 51)
        assert refused.value.resource == "max_session_bytes"
        memory.remember("c", "resp_3", 50)
    memory.remember("b", "resp_4", 100)
    assert memory.session.bytes == 250


def test_what_is_made_ready_counts_until_it_is_given_up(memory):
    with memory.failing("a", None) as continuation:
        continuation.prepare(checkpoint("resp_1", 100))
        with memory.failing("b", None) as other:
            other.prepare(checkpoint("resp_2", 100))
            with pytest.raises(ResourceLimitExceeded):
                memory.remember(None, "resp_3", 51)
        memory.remember(None, "resp_3", 51)
    assert memory.session.bytes == 51
    assert memory.session.latest("a") is None


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("failure", [None, ValueError, ResourceLimitExceeded("max_retained_bytes", 1)], ids=repr)
def test_a_failed_continuation_takes_its_parent_along(memory, failure):
    memory.remember("a", "resp_1")
    try:
        with memory.failing("a", "resp_1") as continuation:
            continuation.find_parent("resp_1")
            if failure is not None:
                raise failure
    except (ValueError, ResourceLimitExceeded):
        pass
    assert memory.session.find("resp_1") is None
    assert (memory.session.bytes, memory.outcomes()) == (0, (1, 0, 1))


def test_a_create_that_fails_before_it_has_looked_takes_its_parent_along(memory):
    memory.remember("a", "resp_1")
    with memory.failing("a", "resp_1"):
        pass
    assert memory.session.find("resp_1") is None


@pytest.mark.parametrize(("lane", "parent"), [("b", "resp_1"), (None, "resp_1"), ("a", "resp_9"), ("a", None)], ids=str)
def test_a_failed_fork_and_the_failure_of_another_keep_it(memory, lane, parent):
    memory.remember("a", "resp_1")
    with memory.failing(lane, parent) as continuation:
        continuation.find_parent("resp_1")
    assert memory.session.find("resp_1") is not None
    assert (memory.session.bytes, memory.outcomes()) == (10, (1, 0, 0))


def test_the_operator_may_keep_parents():
    memory = Memory(evict_parent_on_failure="never")
    memory.remember("a", "resp_1")
    with memory.failing("a", "resp_1") as continuation:
        continuation.find_parent("resp_1")
    assert memory.session.find("resp_1") is not None
    assert (memory.session.bytes, memory.outcomes()) == (10, (1, 0, 0))


@pytest.mark.parametrize("end", [asyncio.CancelledError, KeyboardInterrupt, GeneratorExit])
def test_what_is_cancelled_is_no_failure(memory, end):
    memory.remember("a", "resp_1")
    continuation = memory.session.begin("a", "resp_1")
    continuation.find_parent("resp_1")
    continuation.prepare(checkpoint("resp_2"))
    leave(continuation, end)
    assert memory.session.latest("a").response_id == "resp_1"
    assert memory.session.bytes == 10


def test_what_fails_after_it_was_published_keeps_it(memory):
    memory.remember("a", "resp_1")
    continuation = memory.session.begin("a", "resp_1")
    continuation.find_parent("resp_1")
    continuation.prepare(checkpoint("resp_2", 20))
    continuation.publish()
    leave(continuation, ValueError)
    assert memory.session.latest("a").response_id == "resp_2"
    assert (memory.session.bytes, memory.outcomes()) == (20, (2, 0, 0))


def test_an_evicted_parent_counts_as_long_as_another_create_uses_it(memory):
    memory.remember("a", "resp_1")
    with memory.session.begin("b", "resp_1") as fork:
        fork.find_parent("resp_1")
        with memory.failing("a", "resp_1"):
            pass
        assert (memory.session.find("resp_1"), memory.session.bytes) == (None, 10)
        fork.prepare(checkpoint("resp_2", 20))
        fork.publish()
    assert memory.session.bytes == 20


# ---------------------------------------------------------------- under any sequence

lanes = st.sampled_from([None, "a", "b"])
sizes = st.lists(st.integers(1, 60), min_size=1, max_size=4)


class Sessions(RuleBasedStateMachine):
    """Creates begin, look, reserve, publish, fail and are cancelled in any order; a slow model holds what they hold."""

    def __init__(self):
        super().__init__()
        self.memory = Memory(max_session_bytes=150)
        self.session = self.memory.session
        self.latest = {}
        self.running = {}
        self.made = 0

    @rule(lane=lanes, own=st.booleans(), other=lanes)
    def begin(self, lane, own, other):
        if lane in self.running:
            return
        named = self.latest.get(lane if own else other)
        parent_id = named.response_id if named else None
        self.running[lane] = (self.session.begin(lane, parent_id), parent_id, [])
        if parent_id is not None:
            held = self.running[lane][0].find_parent(parent_id)
            assert held is named
            self.running[lane][2].append(held)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), sizes=sizes, stored=st.booleans())
    def finish(self, data, sizes, stored):
        lane, continuation, _, held = self._take(data)
        self.made += 1
        made = checkpoint(f"resp_{self.made}", *sizes, stored=stored)
        before = self.session.bytes
        fits = made.bytes <= 100 and len(sizes) <= 3 and before + made.bytes <= 150
        if not (fits or stored):
            with pytest.raises(ResourceLimitExceeded), continuation:
                continuation.prepare(made)
            self._evict(lane, held)
            return
        with continuation:
            continuation.prepare(made)
            assert self.session.bytes == before + fits * made.bytes
            continuation.publish()
        self.latest.pop(lane, None)
        if fits:
            self.latest[lane] = made

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cancelled=st.booleans(), size=st.none() | st.integers(0, 60))
    def fail(self, data, cancelled, size):
        lane, continuation, _, held = self._take(data)
        if size is not None:
            continuation.prepare(checkpoint("resp_lost", size, stored=True))
        leave(continuation, asyncio.CancelledError if cancelled else ValueError)
        if not cancelled:
            self._evict(lane, held)

    def _take(self, data):
        lane = data.draw(st.sampled_from(sorted(self.running, key=str)))
        return (lane, *self.running.pop(lane))

    def _evict(self, lane, held):
        if held and self.latest.get(lane) is held[0]:
            del self.latest[lane]

    @invariant()
    def what_is_held_is_what_counts(self):
        held = {*self.latest.values(), *(kept for _, _, holds in self.running.values() for kept in holds)}
        assert self.session.bytes == sum(kept.bytes for kept in held) <= 150
        assert self.memory.sample("websocket_session_bytes") == self.session.bytes
        assert {lane: self.session.latest(lane) for lane in (None, "a", "b")} == {
            lane: self.latest.get(lane) for lane in (None, "a", "b")
        }

    def teardown(self):
        self.session.close()
        for continuation, _, _ in self.running.values():
            leave(continuation, asyncio.CancelledError)
        assert self.session.bytes == 0
        assert self.memory.metrics.socket_load.session_bytes == 0


TestAnySequence = Sessions.TestCase
