"""How much a principal may keep: what is known of it, when it is asked again, and what is refused."""

import asyncio

import pytest
from engine.doubles import Bench, SettableClock, streamed, whole
from harness.engine import says
from msgspec import structs

from gateway.config.schema import GatewayConfig, LimitsConfig, StorageConfig
from gateway.engine.room import Room
from gateway.protocol.errors import InsufficientQuota, StorageUnavailable
from gateway.storage.memory import MemoryStore


class Sums(MemoryStore):
    """A store that says what a test makes it say, once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, int] = {}
        self.asked: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.down = False

    async def stored_bytes(self, principal: str) -> int:
        self.asked.append(principal)
        found = self.sums.get(principal, 0)
        await self.answers.wait()
        if self.down:
            raise StorageUnavailable("Down.")
        return found


class Place:
    """Room with a store and a clock of the test's own."""

    def __init__(self, max_principals=10, **storage) -> None:
        self.store, self.clock = Sums(), SettableClock()
        config = GatewayConfig(
            storage=StorageConfig(**{"max_bytes_per_principal": 100, **storage}),
            limits=LimitsConfig(max_principals=max_principals),
        )
        self.room = Room(self.store, self.clock, config)

    async def refuses(self, principal="ada") -> bool:
        try:
            await self.room.check(principal)
        except InsufficientQuota:
            return True
        return False


def test_nothing_is_limited_unless_asked_for():
    assert not Room(Sums(), SettableClock(), GatewayConfig()).is_limited


async def test_what_is_full_is_refused_by_the_name_of_its_key():
    place = Place()
    place.store.sums["ada"] = 100
    with pytest.raises(InsufficientQuota) as refusal:
        await place.room.check("ada")
    error = refusal.value
    assert (error.status, error.type, error.code, error.hints) == (
        *(429, "insufficient_quota", "insufficient_quota"),
        {"x-should-retry": "false"},
    )
    assert error.bound == "storage.max_bytes_per_principal"
    assert "max_bytes_per_principal" in error.message
    assert "DELETE" in error.message
    assert not await place.refuses("bob")


async def test_the_database_is_asked_now_and_then_and_what_is_stored_counts_at_once():
    place = Place()
    place.store.sums["ada"] = 99
    assert not await place.refuses()
    place.room.add("ada", 1)
    place.room.add("bob", 1000)
    assert await place.refuses()
    assert place.store.asked == ["ada"]
    place.store.sums["ada"] = 10
    place.clock.seconds += 59
    assert await place.refuses()
    place.clock.seconds += 1
    assert not await place.refuses()
    assert place.store.asked == ["ada", "ada"]


async def test_while_the_database_is_asked_others_go_by_what_is_known():
    place = Place()
    place.store.sums["ada"] = 60
    place.store.answers.clear()
    first = asyncio.create_task(place.refuses())
    await asyncio.sleep(0)
    assert not await place.refuses()
    place.room.add("ada", 40)
    place.store.answers.set()
    assert await first
    assert place.store.asked == ["ada"]


async def test_sums_asked_for_at_once_count_once():
    place = Place(quota_revalidate_seconds=0)
    place.store.sums["ada"] = 60
    assert await asyncio.gather(*(place.refuses() for _ in range(3))) == [False] * 3
    assert not await place.refuses()
    assert len(place.store.asked) == 4


async def test_a_database_that_does_not_answer_is_asked_again():
    place = Place()
    place.store.down = True
    with pytest.raises(StorageUnavailable):
        await place.room.check("ada")
    place.store.down = False
    place.store.sums["ada"] = 100
    assert await place.refuses()


async def test_only_so_many_principals_are_remembered():
    place = Place(max_principals=2)
    for principal in ("ada", "bob", "ada", "cid", "ada", "bob"):
        assert not await place.refuses(principal)
    assert place.store.asked == ["ada", "bob", "cid", "bob"]


async def test_only_what_is_to_be_stored_is_refused_and_before_its_inference():
    bench = Bench()
    await bench.answer(whole(says("hi")))
    limited = structs.replace(bench.config, storage=StorageConfig(max_bytes_per_principal=1))
    bench.engine.reconfigure(limited)
    for transport in ("json", "sse"):
        with pytest.raises(InsufficientQuota):
            await bench.plan(transport=transport)
    assert len(bench.upstream.calls) == 1
    assert (await bench.stream(streamed(says("hi")), store=False))[-1]["type"] == "response.completed"
    await bench.answer(whole(says("hi")), principal="bob")
    with pytest.raises(InsufficientQuota):
        await bench.plan("bob")
    bench.engine.reconfigure(bench.config)
    await bench.answer(whole(says("hi")))
