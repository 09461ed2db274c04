"""The reader pool: a few threads, a bounded number of waiting reads, a bounded wait."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gateway.protocol.errors import StorageUnavailable
from gateway.storage.faults import StorageNotReady, unavailable
from gateway.storage.threads import give_way

T = TypeVar("T")


class Readers:
    """Runs queries in threads, one connection each."""

    def __init__(self, engine: Engine, ensure_schema: Callable[[], None], *, threads: int, max_entries: int) -> None:
        # Every read is one statement: a transaction around it would only add round trips.
        autocommit = engine.dialect.name == "postgresql"
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT") if autocommit else engine
        self._ensure_schema = ensure_schema
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="store-reader", initializer=give_way)
        self._permits = asyncio.Semaphore(threads)
        self._max_entries = max_entries
        self._entries = 0

    async def run(self, query: Callable[[Connection], T], *, timeout: float) -> T:
        """Return what the query returns.

        Raises:
            StorageUnavailable: too many reads wait, or the database gives no answer within `timeout` seconds.
        """
        if self._entries >= self._max_entries:
            raise StorageUnavailable(
                f"More than reader_max_entries ({self._max_entries}) reads wait for the database.",
                bound="storage.reader_max_entries",
            )
        self._entries += 1
        try:
            async with asyncio.timeout(timeout):
                return await self._submit(query)
        except TimeoutError:
            raise StorageUnavailable(f"The database did not answer within {timeout:g} seconds.") from None
        except (SQLAlchemyError, StorageNotReady) as error:
            raise unavailable(error) from error
        finally:
            self._entries -= 1

    def close(self) -> None:
        """Wait for running queries and end the threads. Blocks; idempotent."""
        self._pool.shutdown()

    async def _submit(self, query: Callable[[Connection], T]) -> T:
        await self._permits.acquire()
        loop = asyncio.get_running_loop()

        def release(_work: Future[Any]) -> None:
            loop.call_soon_threadsafe(self._permits.release)

        try:
            work = self._pool.submit(self._query, query)
        except RuntimeError:
            self._permits.release()
            raise StorageUnavailable("The store is closed.") from None
        # The permit belongs to the thread, not to the caller, who may leave before the database answers.
        work.add_done_callback(release)
        return await asyncio.wrap_future(work)

    def _query(self, query: Callable[[Connection], T]) -> T:
        self._ensure_schema()
        try:
            with self._engine.connect() as connection:
                return query(connection)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        # The pooled connection had died; a new one tells whether the database is there.
        with self._engine.connect() as connection:
            return query(connection)
