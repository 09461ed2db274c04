import gc
import tracemalloc

import pytest

from gateway.storage.chains import HistoryCache, Link
from tests.storage.samples import make_item


def grow(length, size=100):
    """A chain of links, each with one item."""
    links = []
    for place in range(length):
        links.append(Link([make_item(data=b"%05d" % place * size)], links[-1] if links else None))
    return links


def keep_all(cache, links):
    for place, link in enumerate(links):
        cache.keep(("ann", f"resp_{place}"), link, 0.0)


def test_a_history_is_all_of_its_chain_in_order():
    *_, last = grow(40)
    history = last.build_history("resp_39")
    assert history.response_id == "resp_39"
    assert history.responses == last.responses == 40
    assert [item.data[:5] for item in history.items] == [b"%05d" % place for place in range(40)]
    assert last.item_bytes == sum(len(item.data) for item in history.items)


def test_a_history_that_was_read_counts_all_its_responses():
    read = Link([make_item(), make_item()], responses=7)
    assert Link([make_item()], read).responses == 8


def test_what_is_shared_counts_once():
    root, *_ = links = grow(3)
    fork = Link([make_item("fork")], root)
    cache = HistoryCache(1 << 20)
    keep_all(cache, [*links, fork])
    entries = cache.bytes - sum(link.weight for link in (*links, fork))
    assert 0 < entries < 4 * 1024


def test_what_is_dropped_gives_back_all_but_what_others_share():
    links = grow(3)
    cache = HistoryCache(1 << 20)
    keep_all(cache, links)
    full = cache.bytes
    cache.drop(("ann", "resp_1"))
    assert cache.bytes < full
    assert cache.bytes > sum(link.weight for link in links)
    cache.drop(("ann", "resp_2"))
    assert links[0].weight < cache.bytes < links[0].weight + links[1].weight
    cache.drop(("ann", "resp_0"))
    cache.drop(("ann", "resp_0"))
    assert cache.bytes == 0


def test_the_least_recently_used_goes_first():
    links = [Link([make_item(data=b"x" * 5000)]) for _ in range(4)]
    cache = HistoryCache(3 * (links[0].weight + 1024))
    keep_all(cache, links[:3])
    assert cache.find(("ann", "resp_0"))
    cache.keep(("ann", "resp_3"), links[3], 0.0)
    assert [cache.find(("ann", f"resp_{place}")) is not None for place in range(4)] == [True, False, True, True]
    assert cache.evictions == 1


def test_a_history_above_the_whole_bound_is_not_kept_and_costs_nobody_a_place():
    small, large = Link([make_item()]), Link([make_item(data=b"x" * 10_000)])
    cache = HistoryCache(10_000)
    cache.keep(("ann", "small"), small, 0.0)
    cache.keep(("ann", "large"), large, 0.0)
    assert cache.find(("ann", "small"))
    assert cache.find(("ann", "large")) is None
    assert cache.evictions == 0


def test_keeping_again_replaces():
    cache = HistoryCache(1 << 20)
    cache.keep(("ann", "resp_0"), Link([make_item()]), 1.0)
    before = cache.bytes
    cache.keep(("ann", "resp_0"), Link([make_item()]), 2.0)
    assert (len(cache), cache.bytes) == (1, before)
    assert cache.find(("ann", "resp_0")).proven_at == 2.0


@pytest.mark.parametrize(("length", "size"), [(2000, 1), (50, 4000)])
def test_the_account_is_not_below_what_python_takes(length, size):
    cache = HistoryCache(1 << 30)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        keep_all(cache, grow(length, size))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cache) == length
    assert (after - before) * 0.5 < cache.bytes
    assert after - before <= cache.bytes * 1.01


def test_a_very_long_chain_can_be_dropped():
    links = grow(100_000, size=1)
    cache = HistoryCache(1 << 30)
    cache.keep(("ann", "resp"), links[-1], 0.0)
    del links[:]
    assert cache.find(("ann", "resp")).link.build_history("resp").responses == 100_000
    cache.drop(("ann", "resp"))
    assert cache.bytes == 0
