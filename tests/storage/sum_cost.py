"""Measures what sums of stored bytes cost, and their index: `cd tests && ../.venv/bin/python -m storage.sum_cost`."""

import statistics
import tempfile
import time

from sqlalchemy import Engine

from gateway.ports import StoredItem, StoredResponse
from gateway.protocol.ids import UuidIds
from gateway.storage.engine import create_file, open_engine
from gateway.storage.migrations import upgrade
from gateway.storage.rows import ResponseInsert, sum_bytes
from gateway.storage.settings import StoreSettings, database_url

_RESPONSES = 100_000
_BATCH = 2000
_OWNER = "one-of-many"
_INDEX = "ix_responses_owners"
_CREATE_INDEX = f"CREATE INDEX IF NOT EXISTS {_INDEX} ON responses (principal, id) WHERE principal != 'local'"


def make_batch(ids: UuidIds) -> list[StoredResponse]:
    """Responses of one principal, with two items each and 2.7 kB in all."""
    return [
        StoredResponse(
            id=ids.mint("resp"),
            principal=_OWNER,
            status="completed",
            model="m",
            created_at=1,
            snapshot=b"x" * 1500,
            items=[
                StoredItem(role=role, type="message", id=ids.mint("msg"), data=b"y" * 600)
                for role in ("input", "output")
            ],
        )
        for _ in range(_BATCH)
    ]


def insert_batch(engine: Engine, ids: UuidIds) -> float:
    """Insert one batch; microseconds of processor time for each response."""
    batch = make_batch(ids)
    began = time.process_time()
    with engine.begin() as connection:
        ResponseInsert(engine.dialect)(connection, batch)
    return (time.process_time() - began) / _BATCH * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = database_url(f"sqlite:///{folder}/responses.db")
        create_file(url)
        engine, ids = open_engine(StoreSettings(url=url)), UuidIds()
        upgrade(engine)
        for _ in range(_RESPONSES // _BATCH):
            insert_batch(engine, ids)
        with engine.connect() as connection:
            for _ in range(3):
                began = time.perf_counter()
                sum_bytes(connection, _OWNER)
                print(f"sum over {_RESPONSES} responses: {(time.perf_counter() - began) * 1000:.0f} ms")
        for _ in range(2):
            for words, statement in (
                (
                    "with the index",
                    _CREATE_INDEX,
                ),
                ("without", f"DROP INDEX {_INDEX}"),
            ):
                with engine.begin() as connection:
                    connection.exec_driver_sql(statement)
                cost = statistics.median(insert_batch(engine, ids) for _ in range(10))
                print(f"insert {words}: {cost:.1f} µs of processor time for each response")
        engine.dispose()


if __name__ == "__main__":
    main()
