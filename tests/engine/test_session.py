"""What a connection remembers, within which bounds, and when it forgets."""

import asyncio

import pytest
from engine.memories import BOUNDS, Memory, checkpoint, leave

from gateway.engine.session import Session
from gateway.protocol.errors import ResourceLimitExceeded, StorageUnavailable, Unavailable
from gateway.telemetry.metrics import Metrics


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
    assert metrics.socket_load.session_bytes.now == 80
    sessions[0].close()
    assert (metrics.socket_load.session_bytes.now, sessions[1].bytes) == (40, 40)


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


@pytest.mark.parametrize("end", [Unavailable("Later."), StorageUnavailable("Down.")], ids=repr)
def test_what_could_not_be_begun_is_no_failure_either(memory, end):
    memory.remember("a", "resp_1")
    continuation = memory.session.begin("a", "resp_1")
    continuation.find_parent("resp_1")
    leave(continuation, end)
    assert memory.session.latest("a").response_id == "resp_1"
    assert (memory.session.bytes, memory.outcomes()) == (10, (1, 0, 0))


def test_what_is_deleted_is_forgotten_and_what_uses_it_goes_on(memory):
    memory.remember("a", "resp_1", 30)
    memory.remember("b", "resp_2", 20)
    with memory.session.begin("a", "resp_1") as continuation:
        continuation.find_parent("resp_1")
        memory.session.drop("resp_1")
        memory.session.drop("resp_1")
        memory.session.drop("resp_9")
        assert (memory.session.find("resp_1"), memory.session.bytes) == (None, 50)
        continuation.prepare(checkpoint("resp_3", 10))
        continuation.publish()
    assert [memory.session.latest(lane).response_id for lane in "ab"] == ["resp_3", "resp_2"]
    assert memory.session.bytes == 30


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


def test_what_is_deleted_while_it_is_committed_is_continued_nowhere(memory):
    memory.remember("a", "resp_1", 30)
    with memory.session.begin("a", "resp_1") as continuation:
        continuation.find_parent("resp_1")
        continuation.prepare(checkpoint("resp_2", 10, stored=True))
        memory.session.drop("resp_2")
        continuation.publish()
    assert (memory.session.find("resp_2"), memory.session.latest("a"), memory.session.bytes) == (None, None, 0)
    assert memory.session.committing == set()
