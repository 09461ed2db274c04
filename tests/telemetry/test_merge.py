"""Documents of several processes become one."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from telemetry.status_samples import ERRORS, STATUSES

from gateway.telemetry.distribution import add_up
from gateway.telemetry.merge import merge, select_newest
from gateway.telemetry.status import BREAKERS, LAST_ERRORS, Status

SEVERAL = st.lists(STATUSES, min_size=1, max_size=3)
# A document has a hundred parts to draw.
few = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@few
@given(SEVERAL, st.randoms())
def test_the_order_does_not_matter(documents, random):
    shuffled = [*documents]
    random.shuffle(shuffled)
    assert merge(shuffled) == merge(documents)


@few
@given(SEVERAL, SEVERAL)
def test_documents_of_several_may_be_merged_again(some, others):
    assert merge([merge(some), merge(others)]) == merge([*some, *others])


@few
@given(STATUSES)
def test_merging_one_changes_nothing_but_the_order(document):
    once = merge([document])
    assert merge([once]) == once
    for name in ("time", "version", "started", "draining", "storage", "clients", "lanes", "latency"):
        assert getattr(once, name) == getattr(document, name)
    for name in ("processes", "upstreams", "limits", "rejections", "responses", "tokens", "principals", "last_errors"):
        assert _as_set(getattr(once, name)) == _as_set(getattr(document, name))


@few
@given(SEVERAL)
def test_numbers_add_up(documents):
    merged = merge(documents)
    for name in ("connections", "responses", "delivery_bytes"):
        uses = [getattr(document.clients, name) for document in documents]
        assert getattr(merged.clients, name).now == sum(use.now for use in uses)
        assert getattr(merged.clients, name).high == sum(use.high for use in uses)
    limits = [
        document.lanes.connections.limit for document in documents if document.lanes.connections.limit is not None
    ]
    assert merged.lanes.connections.limit == (sum(limits) if limits else None)
    assert merged.latency.first_token == add_up([document.latency.first_token for document in documents])
    assert merged.storage.failures == sum(document.storage.failures for document in documents)
    for field, number in (
        ("limits", "breaches"),
        ("rejections", "count"),
        ("responses", "count"),
        ("tokens", "output"),
        ("principals", "input"),
    ):
        counted = sum(getattr(part, number) for document in documents for part in getattr(document, field))
        assert sum(getattr(part, number) for part in getattr(merged, field)) == counted


@few
@given(SEVERAL)
def test_of_what_processes_disagree_on_the_worst_is_told(documents):
    merged = merge(documents)
    assert merged.storage.healthy == all(document.storage.healthy for document in documents)
    assert merged.draining == any(document.draining for document in documents)
    assert (merged.time, merged.started) == (max(one.time for one in documents), min(one.started for one in documents))
    for server in merged.upstreams:
        told = [one for document in documents for one in document.upstreams if one.name == server.name]
        assert server.healthy == all(one.healthy for one in told)
        assert server.breaker == max((one.breaker for one in told), key=BREAKERS.index)


@given(st.lists(ERRORS, max_size=2 * LAST_ERRORS))
def test_the_newest_errors_are_kept_newest_first(errors):
    kept = select_newest(errors)
    times = sorted((error.time for error in errors), reverse=True)
    assert [error.time for error in kept] == times[:LAST_ERRORS]


@few
@given(STATUSES)
def test_a_document_survives_the_wire(document):
    assert msgspec.json.decode(msgspec.json.encode(document), type=Status) == document


def test_nothing_cannot_be_merged():
    with pytest.raises(ValueError, match="no document"):
        merge([])


@few
@given(STATUSES)
def test_uptime_is_counted_from_the_start(document):
    assert document.uptime == max(0, document.time - document.started)


def _as_set(parts):
    return sorted(map(repr, parts))
