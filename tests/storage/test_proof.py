"""When the database is tried, by whom, and what the others hear meanwhile."""

import asyncio

import pytest

from gateway.protocol.errors import StorageUnavailable
from gateway.storage.proof import WriteProof

DOWN = "The disk of the database is full."
TRIAL_SECONDS = 5.0


class Database:
    """Takes writes or not, at once or when told to."""

    def __init__(self):
        self.reason = None
        self.trials = 0
        self.open = asyncio.Event()
        self.open.set()

    async def try_write(self):
        self.trials += 1
        await self.open.wait()
        return self.reason


class Bench:
    def __init__(self, after_seconds=1.0):
        self.database = Database()
        self.seconds = 1000.0
        self.proof = WriteProof(
            self.database.try_write,
            after_seconds=after_seconds,
            trial_seconds=TRIAL_SECONDS,
            monotonic=lambda: self.seconds,
        )

    async def ask(self, callers=1):
        """Ask at once and return what each heard, None for good news."""
        heard = await asyncio.gather(*(self.proof.require() for _ in range(callers)), return_exceptions=True)
        return [error and (type(error), error.message) for error in heard]

    async def begin(self, callers=1):
        tasks = [asyncio.create_task(self.proof.require()) for _ in range(callers)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tasks


REFUSED = (StorageUnavailable, DOWN)


@pytest.fixture
async def bench():
    return Bench()


async def test_what_is_written_all_the_time_is_never_tried(bench):
    bench.proof.renew()
    for _ in range(50):
        bench.seconds += 0.9
        assert await bench.ask(3) == [None] * 3
        bench.proof.renew()
    assert bench.database.trials == 0


async def test_nothing_is_known_at_the_start(bench):
    assert await bench.ask() == [None]
    assert bench.database.trials == 1


async def test_a_write_proves_the_next_for_a_while(bench):
    assert await bench.ask() == [None]
    bench.seconds += 0.99
    assert await bench.ask() == [None]
    assert bench.database.trials == 1
    bench.seconds += 0.01
    assert await bench.ask() == [None]
    assert bench.database.trials == 2


async def test_zero_tries_each_time():
    bench = Bench(after_seconds=0.0)
    bench.proof.renew()
    assert await bench.ask() == await bench.ask() == [None]
    assert bench.database.trials == 2


async def test_a_failed_write_ends_the_proof(bench):
    bench.proof.renew()
    bench.proof.doubt()
    assert await bench.ask() == [None]
    assert bench.database.trials == 1


@pytest.mark.parametrize("reason", [None, DOWN])
async def test_a_thousand_callers_share_one_trial(bench, reason):
    bench.database.open.clear()
    tasks = await bench.begin(1000)
    bench.database.reason = reason
    bench.database.open.set()
    heard = await asyncio.gather(*tasks, return_exceptions=True)
    assert bench.database.trials == 1
    assert [error and error.message for error in heard] == [reason] * 1000
    # Each has its own, so that no traceback grows with the number of callers.
    assert reason is None or len({id(error) for error in heard}) == 1000


async def test_a_refusal_is_shared_for_a_second_and_then_tried_again(bench):
    bench.database.reason = DOWN
    assert await bench.ask(10) == [REFUSED] * 10
    bench.seconds += 0.9
    assert await bench.ask(1000) == [REFUSED] * 1000
    assert bench.database.trials == 1
    bench.seconds += 0.1
    assert await bench.ask() == [REFUSED]
    assert bench.database.trials == 2


async def test_while_it_is_down_one_caller_waits_and_the_others_are_told_at_once(bench):
    bench.database.reason = DOWN
    await bench.ask()
    bench.seconds += 1.0
    bench.database.open.clear()
    (waiting,) = await bench.begin()
    bench.seconds += TRIAL_SECONDS - 0.1
    assert await bench.ask(1000) == [REFUSED] * 1000
    assert not waiting.done()
    bench.database.open.set()
    with pytest.raises(StorageUnavailable):
        await waiting
    assert bench.database.trials == 2


async def test_an_old_refusal_says_nothing_about_a_trial_that_runs(bench):
    bench.database.reason = DOWN
    await bench.ask()
    bench.seconds += 3600
    bench.database.reason = None
    bench.database.open.clear()
    tasks = await bench.begin(2)
    bench.database.open.set()
    assert await asyncio.gather(*tasks) == [None, None]
    assert bench.database.trials == 2


async def test_the_first_success_ends_it(bench):
    bench.database.reason = DOWN
    await bench.ask()
    bench.database.reason = None
    bench.seconds += 1.0
    assert await bench.ask(10) == [None, *[REFUSED] * 9]
    assert await bench.ask(10) == [None] * 10
    assert bench.database.trials == 2


async def test_a_write_that_succeeds_ends_it_without_a_trial(bench):
    bench.database.reason = DOWN
    await bench.ask()
    bench.proof.renew()
    assert await bench.ask() == [None]
    assert bench.database.trials == 1


async def test_a_caller_that_leaves_takes_nothing_from_the_others(bench):
    bench.database.open.clear()
    first, second = await bench.begin(2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    bench.database.open.set()
    await second
    assert bench.database.trials == 1


async def test_closing_waits_for_the_trial(bench):
    await bench.proof.close()
    bench.database.open.clear()
    (waiting,) = await bench.begin()
    closing = asyncio.create_task(bench.proof.close())
    await asyncio.sleep(0)
    assert not closing.done()
    bench.database.open.set()
    await asyncio.gather(closing, waiting)
