"""A session under any sequence of creates, step by step against a slow model."""

import asyncio

import pytest
from engine.memories import Memory, checkpoint, leave
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.protocol.errors import ResourceLimitExceeded

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
        assert self.memory.metrics.socket_load.session_bytes.now == 0


TestAnySequence = Sessions.TestCase
