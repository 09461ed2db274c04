"""Documents of processes, as any could be."""

from bisect import bisect_left

from hypothesis import strategies as st

from gateway.telemetry.distribution import Distribution, distribute
from gateway.telemetry.status import BREAKERS, LastError, LimitUse, Outcome, Process, Status, UpstreamStatus, Use

BOUNDS = (1.0, 10.0, 100.0)
WORDS = st.sampled_from(["a", "b", "c"])
TIMES = st.integers(0, 20).map(float)
COUNTS = st.integers(0, 5)


def _distribute(values):
    counts = [0] * (len(BOUNDS) + 1)
    for value in values:
        counts[bisect_left(BOUNDS, value)] += 1
    return distribute(BOUNDS, counts, float(sum(values)), float(max(values, default=0)))


DISTRIBUTIONS = st.lists(st.integers(0, 1000), max_size=5).map(_distribute)
USES = st.builds(Use, now=COUNTS, high=COUNTS, limit=st.none() | COUNTS)
ERRORS = st.builds(
    LastError, time=TIMES, request_id=WORDS, response_id=st.none() | WORDS, route=WORDS, status=COUNTS, code=WORDS
)
st.register_type_strategy(Distribution, DISTRIBUTIONS)
st.register_type_strategy(Use, USES)

PROCESSES = st.builds(Process, pid=st.integers(1, 9), started=TIMES, responses=COUNTS)
UPSTREAMS = st.builds(
    UpstreamStatus,
    name=WORDS,
    url=WORDS,
    dialect=WORDS,
    detail=WORDS,
    checked_at=TIMES,
    breaker=st.sampled_from(BREAKERS),
)
LIMITS = st.builds(LimitUse, key=WORDS, limit=COUNTS, breaches=COUNTS)
OUTCOMES = st.builds(Outcome, transport=WORDS, status=WORDS, count=COUNTS)


def _some(parts, told_apart_by):
    return st.lists(parts, max_size=3, unique_by=told_apart_by).map(tuple)


STATUSES = st.builds(
    Status,
    time=TIMES,
    started=TIMES,
    version=WORDS,
    python=WORDS,
    auth=WORDS,
    processes=_some(PROCESSES, lambda one: one.pid),
    upstreams=_some(UPSTREAMS, lambda one: one.name),
    limits=_some(LIMITS, lambda one: one.key),
    responses=_some(OUTCOMES, lambda one: (one.transport, one.status)),
    last_errors=st.lists(ERRORS, max_size=3).map(tuple),
)
"""Documents of one process each, before they were merged with anything."""
