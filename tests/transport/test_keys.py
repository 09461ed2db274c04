"""Keys in memory: what counts, how soon a change is known, and what an outage does."""

import asyncio
import logging
import threading

import pytest

from gateway.ports import ApiKey, Identity, KeysUnreadable
from gateway.protocol.credentials import digest_key, write_key
from gateway.protocol.errors import Unauthorized, Unavailable
from gateway.telemetry.metrics import Metrics
from gateway.transport.keys import KeyRing

SECRET = bytes(range(32))
KEY = write_key("ada000000001", SECRET)
OTHER = write_key("bob000000001", SECRET)


def make_key(text=KEY, principal="ada", **changes):
    key_id = text.split("_")[1]
    return ApiKey(**{"id": key_id, "principal": principal, "digest": digest_key(text), "created_at": 1, **changes})


def bearer(text=KEY):
    return f"Bearer {text}".encode()


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

    monotonic = now


class Book:
    """Keys in memory; `fault` is what a look at them raises."""

    def __init__(self, *keys):
        self.keys = {key.id: key for key in keys}
        self.fault = None
        self.reads = 0
        self.closed = False
        self.open = threading.Event()
        self.open.set()

    def read(self):
        self.reads += 1
        assert self.open.wait(10)
        if self.fault:
            raise self.fault
        return dict(self.keys)

    def close(self):
        self.closed = True


class Bench:
    def __init__(self, *keys):
        self.book = Book(*keys)
        self.clock = Clock()
        self.metrics = Metrics()
        # The ring looks by itself only when it is asked to.
        self.ring = KeyRing(
            self.book,
            revalidate_seconds=3600,
            max_stale_seconds=60,
            timeout_seconds=10,
            clock=self.clock,
            metrics=self.metrics,
        )

    def reads(self, outcome):
        return self.metrics.api_key_reads_total.labels(outcome)._value.get()

    async def refused(self, credential):
        with pytest.raises(Unauthorized) as caught:
            await self.ring.authenticate(credential)
        return caught.value

    async def looked(self, reads):
        """Wait until the book has been read so often."""
        async with asyncio.timeout(10):
            while self.reads("read") + self.reads("failed") < reads:
                await asyncio.sleep(0.001)


@pytest.fixture
async def make_bench():
    benches = []

    async def make(*keys):
        bench = Bench(*keys)
        benches.append(bench)
        await bench.ring.start()
        return bench

    yield make
    for bench in benches:
        await bench.ring.close()
        assert bench.book.closed


async def test_a_known_key_is_told_without_waiting(make_bench):
    bench = await make_bench(make_key(expires_at=2000))
    ada = Identity(principal="ada", expires_at=2000, key_id="ada000000001")
    assert bench.ring.recall(bearer()) == await bench.ring.authenticate(bearer()) == ada
    assert bench.book.reads == 1
    assert bench.metrics.api_keys._value.get() == 1


async def test_whatever_does_not_count_is_answered_alike(make_bench):
    bench = await make_bench(make_key(), make_key(OTHER, "bob", expires_at=1001))
    bench.clock.seconds += 1
    credentials = [
        *(None, b"", b"Bearer", b"Bearer x", b"Basic " + KEY.encode(), b"\xff"),
        *(bearer(OTHER), bearer(write_key("eve000000001", SECRET)), bearer(write_key("ada000000001", bytes(32)))),
    ]
    for credential in credentials:
        assert bench.ring.recall(credential) is None
        error = await bench.refused(credential)
        assert (error.status, error.code, error.message) == (
            *(401, "invalid_api_key"),
            "Send a valid key in the header 'Authorization: Bearer KEY'.",
        )
        assert error.hints == {"www-authenticate": "Bearer"}
    # All of it in one second, in which one look must do.
    assert bench.book.reads == 2


async def test_a_key_that_was_made_a_moment_ago_counts(make_bench):
    bench = await make_bench()
    await bench.refused(bearer())
    bench.book.keys["ada000000001"] = make_key()
    await bench.refused(bearer())
    bench.clock.seconds += 1
    assert (await bench.ring.authenticate(bearer())).principal == "ada"


async def test_many_strangers_have_one_look_made(make_bench):
    bench = await make_bench()
    bench.clock.seconds += 1
    bench.book.open.clear()
    asking = [asyncio.ensure_future(bench.refused(bearer())) for _ in range(20)]
    await asyncio.sleep(0)
    bench.book.open.set()
    await asyncio.gather(*asking)
    assert bench.book.reads == 2


async def test_a_reload_has_it_look_and_a_revocation_takes_effect(make_bench, caplog):
    bench = await make_bench(make_key(), make_key(OTHER, "bob"))
    ada = bench.ring.recall(bearer())
    assert bench.ring.holds(ada)
    del bench.book.keys["ada000000001"]
    with caplog.at_level(logging.INFO, "gateway.audit"):
        bench.ring.refresh()
        await bench.looked(2)
        assert bench.ring.recall(bearer()) is None
    assert not bench.ring.holds(ada)
    assert bench.ring.recall(bearer(OTHER)).principal == "bob"
    (record,) = caplog.records
    assert (record.keys_added, record.keys_gone) == ([], ["ada000000001"])


async def test_it_looks_by_itself():
    book = Book(make_key())
    metrics = Metrics()
    ring = KeyRing(
        book, revalidate_seconds=0.01, max_stale_seconds=60, timeout_seconds=10, clock=Clock(), metrics=metrics
    )
    await ring.start()
    assert ring.recall(bearer())
    book.keys.clear()
    async with asyncio.timeout(10):
        while ring.recall(bearer()):
            await asyncio.sleep(0.001)
    await ring.close()


async def test_what_holds(make_bench):
    bench = await make_bench(make_key(expires_at=1005))
    ada = bench.ring.recall(bearer())
    bench.clock.seconds = 1004.9
    assert bench.ring.holds(ada)
    bench.clock.seconds = 1005
    assert not bench.ring.holds(ada)
    assert bench.ring.recall(bearer()) is None
    assert bench.ring.holds(Identity(principal="named by a proxy"))


async def test_a_key_that_was_given_to_another_does_not_hold(make_bench):
    bench = await make_bench(make_key())
    ada = bench.ring.recall(bearer())
    bench.book.keys["ada000000001"] = make_key(principal="eve")
    bench.ring.refresh()
    await bench.looked(2)
    assert bench.ring.recall(bearer()).principal == "eve"
    assert not bench.ring.holds(ada)


async def test_known_keys_go_on_through_an_outage_for_a_while(make_bench, caplog):
    bench = await make_bench(make_key())
    ada = bench.ring.recall(bearer())
    bench.book.fault = KeysUnreadable("the disk is gone")
    for looks in (2, 3):
        bench.ring.refresh()
        await bench.looked(looks)
    assert [record.getMessage() for record in caplog.records if "the disk is gone" in record.getMessage()] != []
    assert len(caplog.records) == 1
    bench.clock.seconds += 60
    assert bench.ring.recall(bearer()) == ada
    assert bench.ring.holds(ada)
    bench.clock.seconds += 1
    assert bench.ring.recall(bearer()) is None
    for ask in (lambda: bench.ring.authenticate(bearer()), lambda: bench.ring.authenticate(None)):
        with pytest.raises(Unavailable) as caught:
            await ask()
        assert "disk" not in caught.value.message
    with pytest.raises(Unavailable):
        bench.ring.holds(ada)
    bench.book.fault = None
    bench.clock.seconds += 1
    assert await bench.ring.authenticate(bearer()) == ada
    assert bench.ring.holds(ada)
    assert (bench.reads("failed"), bench.reads("read")) == (3, 2)


async def test_keys_that_cannot_be_read_yet(make_bench):
    bench = Bench(make_key())
    bench.book.fault = KeysUnreadable("no server")
    await bench.ring.start()
    with pytest.raises(Unavailable):
        await bench.ring.authenticate(bearer())
    bench.book.fault = None
    bench.clock.seconds += 1
    assert (await bench.ring.authenticate(bearer())).principal == "ada"
    await bench.ring.close()


async def test_a_fault_does_not_end_the_looking(make_bench, caplog):
    bench = await make_bench(make_key())
    bench.book.fault = ZeroDivisionError()
    bench.ring.refresh()
    async with asyncio.timeout(10):
        while "could not be looked at" not in caplog.text:
            await asyncio.sleep(0.001)
    assert bench.ring.recall(bearer())
    bench.book.fault = None
    bench.book.keys.clear()
    bench.ring.refresh()
    await bench.looked(2)
    assert not bench.ring.recall(bearer())


async def test_a_look_that_hangs_is_not_waited_for_without_end(make_bench, caplog):
    bench = await make_bench(make_key())
    bench.ring._timeout_seconds = 0.01
    bench.book.open.clear()
    bench.book.keys["bob000000001"] = make_key(OTHER, "bob")
    bench.clock.seconds += 2
    await bench.refused(bearer(OTHER))
    assert bench.ring.recall(bearer()).principal == "ada"
    assert "no answer within 0.01 seconds ([auth] keys_timeout_seconds)" in caplog.text
    bench.clock.seconds += 100
    for _ in range(3):
        with pytest.raises(Unavailable):
            await bench.ring.authenticate(bearer())
        bench.clock.seconds += 2
    # Those that came later waited for the look that had begun.
    assert (bench.book.reads, bench.reads("failed")) == (2, 4)
    bench.book.open.set()
    await asyncio.wait({bench.ring._looking})
    # It tells what was so when it began, which is too long ago.
    with pytest.raises(Unavailable):
        await bench.ring.authenticate(bearer())
    bench.ring._timeout_seconds = 10
    bench.clock.seconds += 2
    assert (await bench.ring.authenticate(bearer(OTHER))).principal == "bob"
    assert bench.book.reads == 3


async def test_the_end_waits_for_no_look(make_bench):
    bench = await make_bench()
    bench.ring._timeout_seconds = 0.01
    bench.book.open.clear()
    bench.clock.seconds += 2
    await bench.refused(bearer())
    await bench.ring.close()
    bench.book.open.set()
