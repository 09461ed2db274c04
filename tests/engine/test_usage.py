"""Tokens of principals: what is counted, what waits, and when the store gets it."""

import asyncio
from datetime import date

import pytest
from engine.doubles import NOW, Bench, CountingIds, SettableClock, settle, streamed, whole
from harness.engine import says

from gateway.config.schema import StorageConfig
from gateway.engine.usage import UsageBook
from gateway.ports import UsageCount, UsageFlush
from gateway.protocol.errors import StorageUnavailable
from gateway.protocol.response import InputDetails, OutputDetails, Usage
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import Metrics

TODAY = date(2026, 9, 21)
SOME = Usage(
    input_tokens=10,
    input_tokens_details=InputDetails(cached_tokens=4),
    output_tokens=5,
    output_tokens_details=OutputDetails(reasoning_tokens=2),
)
COUNTED = {"responses": 1, "input_tokens": 10, "cached_tokens": 4, "output_tokens": 5, "reasoning_tokens": 2}


class Ledger(MemoryStore):
    """A store that can refuse, and can keep what it says it refused."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes: list[UsageFlush] = []
        self.refuses = self.lies = False
        self.taken = asyncio.Event()

    async def add_usage(self, flush: UsageFlush) -> None:
        self.flushes.append(flush)
        self.taken.set()
        if not self.refuses or self.lies:
            await super().add_usage(flush)
        if self.refuses:
            raise StorageUnavailable("Down.")


class Desk:
    """A book with a store and a clock of the test's own."""

    def __init__(self, **settings) -> None:
        self.store, self.clock, self.metrics = Ledger(), SettableClock(), Metrics()
        config = StorageConfig(**{"usage_interval_seconds": 3600, **settings})
        self.book = UsageBook(self.store, self.clock, CountingIds(), self.metrics, config)

    def count(self, principal="ada", model="m", usage=SOME):
        self.book.count(principal, model, usage)

    def stored(self):
        return {key: (count.responses, count.input_tokens) for key, count in self.store.usage.items()}

    def sample(self, name):
        return self.metrics.registry.get_sample_value(f"gateway_usage_{name}")


async def test_counts_add_up_by_principal_day_and_model():
    desk = Desk()
    desk.count()
    desk.count()
    desk.count(model="other")
    desk.count("bob")
    desk.clock.seconds = NOW + 86_400
    desk.count()
    await desk.book.flush()
    tomorrow = date.fromordinal(TODAY.toordinal() + 1)
    assert desk.stored() == {
        ("ada", TODAY, "m"): (2, 20),
        ("ada", TODAY, "other"): (1, 10),
        ("bob", TODAY, "m"): (1, 10),
        ("ada", tomorrow, "m"): (1, 10),
    }
    bob = desk.store.usage["bob", TODAY, "m"]
    assert bob == UsageCount(principal="bob", day=TODAY, model="m", **COUNTED)
    await desk.book.flush()
    assert len(desk.store.flushes) == 1


async def test_what_the_store_refuses_is_handed_over_again_as_it_was():
    desk = Desk()
    desk.store.refuses = desk.store.lies = True
    desk.count()
    await desk.book.flush()
    desk.count()
    await desk.book.flush()
    assert desk.sample("failures_total") == 2
    desk.store.refuses = False
    await desk.book.flush()
    first, again, still, rest = desk.store.flushes
    assert first == again == still
    assert rest.id != first.id
    # Kept at the first try, although the store said otherwise, and counted once.
    assert desk.stored() == {("ada", TODAY, "m"): (2, 20)}


async def test_the_interval_and_the_end_hand_over_what_there_is():
    desk = Desk(usage_interval_seconds=0.01)
    await desk.book.start()
    desk.count()
    await asyncio.wait_for(desk.store.taken.wait(), 10)
    desk.book.reconfigure(StorageConfig(usage_interval_seconds=3600))
    desk.count()
    await desk.book.close()
    await desk.book.close()
    assert desk.stored() == {("ada", TODAY, "m"): (2, 20)}


async def test_a_full_book_is_handed_over_at_once_and_loses_what_comes_besides():
    desk = Desk(usage_max_entries=2)
    await desk.book.start()
    await settle()
    desk.store.taken.clear()
    for principal in ("ada", "bob", "cid"):
        desk.count(principal)
    # Whoever is in the book already goes on counting.
    desk.count("ada")
    assert desk.sample("lost_responses_total") == 1
    await asyncio.wait_for(desk.store.taken.wait(), 10)
    assert desk.stored() == {("ada", TODAY, "m"): (2, 20), ("bob", TODAY, "m"): (1, 10)}
    await desk.book.close()


async def test_nothing_is_counted_at_no_interval_and_a_reload_begins_and_ends_it():
    desk = Desk(usage_interval_seconds=0)
    desk.count()
    await desk.book.start()
    desk.book.reconfigure(StorageConfig(usage_interval_seconds=3600))
    desk.count("bob")
    desk.book.reconfigure(StorageConfig(usage_interval_seconds=0))
    desk.count("bob")
    await asyncio.wait_for(desk.store.taken.wait(), 10)
    assert desk.stored() == {("bob", TODAY, "m"): (1, 10)}
    await desk.book.close()


async def test_names_and_numbers_without_bounds_get_some():
    desk = Desk()
    desk.count(model="m" * 1000, usage=Usage(input_tokens=10**40, output_tokens=1))
    await desk.book.flush()
    ((key, count),) = desk.store.usage.items()
    assert key == ("ada", TODAY, "m" * 128)
    assert (count.input_tokens, count.output_tokens) == (10**12, 1)


async def test_the_largest_are_told_of_what_is_stored_and_what_waits():
    desk = Desk()
    desk.count("ada")
    desk.count("bob", usage=Usage(input_tokens=12))
    await desk.book.flush()
    desk.count("bob", "other", usage=Usage(output_tokens=4))
    desk.count("cid", usage=Usage(input_tokens=1))
    told = [(principal, tally.responses, tally.tokens) for principal, tally in desk.book.list_largest(2)]
    assert told == [("bob", 2, 16), ("ada", 1, 15)]


async def test_of_very_many_principals_the_large_ones_are_remembered():
    desk = Desk()
    for number in range(1001):
        desk.count(f"p{number}", usage=Usage(input_tokens=number + 1))
    await desk.book.flush()
    told = [principal for principal, _ in desk.book.list_largest(2000)]
    assert len(told) == 500
    assert told[0] == "p1000"


@pytest.mark.parametrize("store", [True, False])
async def test_a_response_counts_once_however_it_is_told_and_kept(store):
    bench = Bench()
    answer = says("hi")
    await bench.answer(whole(answer), principal="ada", store=store)
    told = await bench.stream(streamed(answer), principal="bob", store=store)
    assert told[-1]["response"]["usage"]["input_tokens"]
    await bench.engine.usage.flush()
    ada, bob = bench.store.usage.values()
    assert (ada.principal, bob.principal, ada.model) == ("ada", "bob", "m")
    assert (ada.responses, ada.input_tokens, ada.output_tokens) == (1, bob.input_tokens, bob.output_tokens)
    assert sum(count.input_tokens for count in (ada, bob)) == bench.sample("tokens_total", model="m", kind="input")
