"""The heartbeat of leases."""

import asyncio

import pytest

from gateway.engine.lease import LeaseKeeper
from gateway.ports import Lease
from gateway.protocol.errors import StorageUnavailable
from gateway.storage.leases import MemoryLeases

ONE, OTHER = Lease(name="one", holder="ada"), Lease(name="other", holder="ada")


class Sleeps:
    """Time that passes when the test says so."""

    def __init__(self):
        self.waits = []
        self.asked = asyncio.Event()
        self._wake = asyncio.Event()

    async def __call__(self, seconds):
        self.waits.append(seconds)
        self.asked.set()
        await self._wake.wait()
        self._wake.clear()

    async def beat(self):
        """Let one heartbeat happen, and return when the next is waited for."""
        await self.asked.wait()
        self.asked.clear()
        self.wake()
        await self.asked.wait()

    def wake(self):
        self._wake.set()


class Spied(MemoryLeases):
    def __init__(self):
        super().__init__(lambda: 0.0)
        self.renewed = []
        self.down = False

    async def renew(self, lease, seconds):
        if self.down:
            raise StorageUnavailable("Away.")
        self.renewed.append((lease, seconds))
        return await super().renew(lease, seconds)

    async def release(self, lease):
        if self.down:
            raise StorageUnavailable("Away.")
        await super().release(lease)


@pytest.fixture
def leases():
    return Spied()


@pytest.fixture
def sleeps():
    return Sleeps()


@pytest.fixture
def keeper(leases, sleeps):
    return LeaseKeeper(leases, 30, sleeps)


async def test_what_is_held_is_renewed_until_it_is_released(keeper, leases, sleeps):
    assert await keeper.acquire(ONE, pytest.fail)
    assert await keeper.acquire(OTHER, pytest.fail)
    assert not await keeper.acquire(Lease(name="one", holder="bob"), pytest.fail)
    await sleeps.beat()
    assert leases.renewed == [(ONE, 30), (OTHER, 30)]
    await keeper.release(OTHER)
    await sleeps.beat()
    assert leases.renewed[2:] == [(ONE, 30)]
    assert sleeps.waits == [10.0] * 3
    await keeper.release(ONE)
    assert not leases.holds(ONE)


async def test_without_leases_nothing_runs(keeper, sleeps):
    tasks = asyncio.all_tasks()
    await keeper.release(ONE)
    await keeper.acquire(ONE, pytest.fail)
    await sleeps.asked.wait()
    await keeper.release(ONE)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks


async def test_who_loses_a_lease_is_told_once(keeper, leases, sleeps):
    lost = []
    await keeper.acquire(ONE, lambda: lost.append(ONE))
    await keeper.acquire(OTHER, pytest.fail)
    leases.give_up(ONE)
    await sleeps.beat()
    await sleeps.beat()
    assert lost == [ONE]
    await keeper.release(OTHER)


async def test_the_heartbeat_ends_with_the_last_lease_and_begins_again(keeper, leases, sleeps):
    tasks, lost = asyncio.all_tasks(), asyncio.Event()
    await keeper.acquire(ONE, lost.set)
    leases.give_up(ONE)
    await sleeps.asked.wait()
    sleeps.wake()
    await lost.wait()
    await asyncio.gather(*asyncio.all_tasks() - tasks, return_exceptions=True)
    sleeps.asked.clear()
    await keeper.acquire(OTHER, pytest.fail)
    await sleeps.beat()
    assert leases.renewed[-1] == (OTHER, 30)
    await keeper.release(OTHER)


async def test_a_database_that_is_away_takes_no_lease_away(keeper, leases, sleeps, caplog):
    await keeper.acquire(ONE, pytest.fail)
    leases.down = True
    await sleeps.beat()
    leases.down = False
    await sleeps.beat()
    assert leases.renewed == [(ONE, 30)]
    leases.down = True
    await keeper.release(ONE)
    assert [record.message for record in caplog.records] == [
        "a lease could not be renewed: Away.",
        "a lease could not be given up and runs out by itself: Away.",
    ]
    assert leases.holds(ONE)
