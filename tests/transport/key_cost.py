"""Measures what keys cost: `cd tests && ../.venv/bin/python -m transport.key_cost`."""

import asyncio
import tempfile
import time
from pathlib import Path

from sqlalchemy import insert

from gateway.app.parts import SystemClock
from gateway.ports import ApiKey
from gateway.protocol.credentials import digest_key, write_key
from gateway.storage.key_file import KeyFile
from gateway.storage.key_table import KeyTable
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.tables import api_keys
from gateway.telemetry.metrics import Metrics
from gateway.transport.keys import KeyRing

_COUNTS = (100, 1000, 10_000)
_ROUNDS = 5000


def make_keys(count):
    texts = {f"{number:012d}": write_key(f"{number:012d}", number.to_bytes(32)) for number in range(count)}
    return [ApiKey(id=id, principal="team", digest=digest_key(text), created_at=1) for id, text in texts.items()]


def measure(act, rounds):
    """Return the seconds of one call, the best of five runs."""
    runs = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(rounds):
            act()
        runs.append(time.perf_counter() - start)
    return min(runs) / rounds


def open_books(folder, count):
    """A file and a SQLite database with so many keys."""
    file = KeyFile(folder / f"{count}.toml", max_keys=count)
    file._write({key.id: key for key in make_keys(count)})
    settings = StoreSettings(url=database_url(f"sqlite:///{folder}/{count}.db"))
    table = KeyTable(settings, max_keys=count + 1)
    with table._transaction() as connection:
        columns = ApiKey.__struct_fields__
        rows = [{name: getattr(key, name) for name in columns} for key in make_keys(count)]
        connection.execute(insert(api_keys), rows)
    return file, table


def forget(book):
    """Have a book read everything again."""
    book._stamp = book._state = None


def measure_reading(book):
    def read():
        forget(book)
        book.read()

    return measure(read, 1), measure(book.read, 20)


async def measure_requests(book):
    ring = KeyRing(
        book,
        revalidate_seconds=3600,
        max_stale_seconds=3600,
        timeout_seconds=10,
        clock=SystemClock(),
        metrics=Metrics(),
    )
    await ring.start()
    known = f"Bearer {write_key('000000000007', (7).to_bytes(32))}".encode()
    unknown = f"Bearer {write_key('stranger0000', bytes(32))}".encode()
    assert ring.recall(known)
    assert not ring.recall(unknown)
    costs = [measure(lambda credential=credential: ring.recall(credential), _ROUNDS) for credential in (known, unknown)]
    await ring.close()
    return costs


def main():
    with tempfile.TemporaryDirectory() as name:
        for count in _COUNTS:
            for place, book in zip(("file", "SQLite"), open_books(Path(name), count), strict=True):
                everything, nothing = measure_reading(book)
                print(
                    f"{count} keys in {place}: {everything * 1e3:.1f} ms to read, {nothing * 1e6:.0f} µs if unchanged"
                )
        known, unknown = asyncio.run(measure_requests(book))
        print(f"{known * 1e6:.1f} µs for a known key, {unknown * 1e6:.1f} µs for an unknown one")


if __name__ == "__main__":
    main()
