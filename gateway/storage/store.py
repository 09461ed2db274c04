"""The store in a database."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.ports import Deletion, History, StoredItem, StoredResponse, StoreHealth, UsageFlush
from gateway.protocol.errors import GatewayError, StorageUnavailable
from gateway.storage.background import SqlRuns
from gateway.storage.commit import BatchCommit
from gateway.storage.conversations import SqlConversations
from gateway.storage.engine import create_file, open_engine
from gateway.storage.expiry import Expiry
from gateway.storage.faults import StorageNotReady, explain_fault
from gateway.storage.history import HistoryQuery, is_live
from gateway.storage.leases import SqlLeases
from gateway.storage.migrations import SchemaGate, SchemaState, compare, read_revision, require_current
from gateway.storage.proof import WriteProof
from gateway.storage.readers import Readers
from gateway.storage.references import ReferenceQuery
from gateway.storage.rows import build_response, select_response, sum_bytes
from gateway.storage.settings import StoreSettings, is_sqlite
from gateway.storage.sweeper import Sweeper
from gateway.storage.writer import Change, Outcome, Writer
from gateway.telemetry.metrics import Metrics

T = TypeVar("T")

_log = logging.getLogger(__name__)


class SqlStore:
    """`ports.Store` on SQLite or PostgreSQL. Several processes may share one database.

    Attributes:
        conversations: items in an order of their own.
        leases: what processes hold for a while.
        background: responses that are made on their own.
    """

    def __init__(self, settings: StoreSettings, metrics: Metrics | None = None) -> None:
        """Prepare the parts; connects to nothing.

        Args:
            settings: the database, and every bound.
            metrics: what is counted, and what waits to be written; None counts for nobody.

        Raises:
            StorageNotReady: the PostgreSQL driver is not installed.
        """
        metrics = metrics or Metrics()
        self._settings = settings
        self._metrics = metrics
        self._engine = open_engine(settings)
        self._gate = SchemaGate(self._engine, migrates=settings.migrates_on_start)
        self._readers = Readers(
            self._engine, self._gate.ensure, threads=settings.readers, max_entries=settings.reader_max_entries
        )
        self._commit = BatchCommit(self._engine, self._gate.ensure)
        self._proof = WriteProof(
            self._try_write,
            after_seconds=settings.verify_after_seconds,
            trial_seconds=settings.probe_timeout_seconds,
        )
        self._writer = Writer(
            self._commit_batch,
            max_entries=settings.writer_max_entries,
            max_bytes=settings.writer_max_bytes,
            batch_entries=settings.writer_batch_entries,
            load=metrics.storage_load,
        )
        self.conversations = SqlConversations(self._writer.write, self._read)
        self.leases = SqlLeases(self._writer.write)
        self.background = SqlRuns(self._writer.write, self._read)
        self._sweeper = Sweeper(
            Expiry(self._engine, batch_responses=settings.retention_batch_responses),
            self._gate.ensure,
            retention_seconds=settings.retention_seconds,
            interval_seconds=settings.retention_interval_seconds,
            metrics=metrics,
        )
        self._history = HistoryQuery(max_responses=settings.history_max_responses, max_bytes=settings.history_max_bytes)
        self._references = ReferenceQuery(max_bytes=settings.history_max_bytes)
        self._response = select_response()

    async def start(self) -> None:
        """Check or migrate the schema and start the threads.

        A PostgreSQL server that cannot be reached yet is no error: the store is unhealthy until it answers.

        Raises:
            StorageNotReady: the folder of the SQLite file is missing, SQLite cannot use the file, or the schema does
                not fit this version; the text says what to do.
        """
        await asyncio.to_thread(self._prepare)
        self._writer.start()
        self._sweeper.start()

    def append(self, response: StoredResponse) -> Coroutine[Any, Any, None]:
        """Persist one response with its items; returns only after COMMIT.

        Raises:
            StorageUnavailable: the database refused, the writer's queue is full, the parent is gone or the id is taken.
        """
        # There is nothing to tell of an append.
        return cast("Coroutine[Any, Any, None]", self._writer.write(response))

    async def history(self, principal: str, response_id: str) -> History | None:
        """Return the effective history with one query, or None when the principal has no such live response.

        Raises:
            StorageUnavailable: the database does not answer.
            InvalidRequest: the chain passes `history_max_responses` or `history_max_bytes`.
        """
        return await self._read("history", lambda connection: self._history.read(connection, principal, response_id))

    async def holds(self, principal: str, response_id: str) -> bool:
        """Tell whether the principal has such a live response, with one short query.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        return await self._read("liveness", lambda connection: is_live(connection, principal, response_id))

    async def response(self, principal: str, response_id: str) -> StoredResponse | None:
        """Return one live response with its own items, or None.

        Raises:
            StorageUnavailable: the database does not answer.
        """

        def read(connection: Connection) -> StoredResponse | None:
            parameters = {"principal": principal, "response_id": response_id}
            rows = connection.execute(self._response, parameters).all()
            return build_response(rows) if rows else None

        return await self._read("response", read)

    async def delete(self, deletion: Deletion) -> None:
        """Hide a response from every process; returns only after COMMIT.

        Raises:
            ResponseNotFound: the principal has no such live response.
            StorageUnavailable: the database refused, or the writer's queue is full.
        """
        await self._writer.write(deletion)
        self._metrics.storage_deletions_total.inc()

    async def stored_bytes(self, principal: str) -> int:
        """Return the sizes of all responses of a principal, with one query over the principal's rows.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        return await self._read("stored_bytes", lambda connection: sum_bytes(connection, principal))

    async def add_usage(self, flush: UsageFlush) -> None:
        """Add counts to those stored; returns only after COMMIT.

        Raises:
            StorageUnavailable: the database refused, or the writer's queue is full.
        """
        await self._writer.write(flush)

    async def items(self, principal: str, item_ids: Sequence[str]) -> dict[str, StoredItem]:
        """Return the newest item for each id that a live response of the principal holds.

        Ids of more than 64 characters are not found.

        Raises:
            StorageUnavailable: the database does not answer.
            InvalidRequest: the items pass `history_max_bytes` together.
        """
        return await self._read("items", lambda connection: self._references.read(connection, principal, item_ids))

    def verify(self) -> Coroutine[Any, Any, None]:
        """Return if the database took a write within `verify_after_seconds`, or takes a trial write now.

        Raises:
            StorageUnavailable: it did not, within `probe_timeout_seconds`.
        """
        return self._proof.require()

    async def probe(self) -> StoreHealth:
        """Check within `probe_timeout_seconds` that the database answers and its schema fits. Never raises.

        After a batch that was not stored, a later one or a trial write must have succeeded. A schema that became newer
        since the start stays healthy: that is an upgrade rolling over the replicas.
        """
        tries = self._commit.in_doubt
        health = await self._examine(write=tries)
        if not health.healthy:
            self._proof.doubt()
        elif tries:
            self._proof.renew()
        return health

    async def close(self) -> None:
        """Write what is queued, then close every connection. Idempotent."""
        await asyncio.to_thread(self._release)
        await self._proof.close()

    async def _read(self, name: str, query: Callable[[Connection], T]) -> T:
        self._metrics.storage_reads_total.labels(query=name).inc()
        timeout = self._settings.statement_timeout_seconds + self._settings.busy_timeout_seconds
        began = time.perf_counter()
        found = await self._readers.run(query, timeout=timeout)
        self._metrics.defer(self._metrics.storage_read_seconds.labels(name), time.perf_counter() - began)
        return found

    async def _examine(self, *, write: bool) -> StoreHealth:
        def look(connection: Connection) -> str | None:
            revision = read_revision(connection)
            if write:
                connection.rollback()
                self._commit.try_write(connection)
            return revision

        self._metrics.storage_reads_total.labels(query="probe").inc()
        try:
            revision = await self._readers.run(look, timeout=self._settings.probe_timeout_seconds)
            if revision != self._gate.revision:
                # Looking at the migrations takes its time, so it is done where something has changed.
                if compare(revision) is SchemaState.NEWER:
                    return StoreHealth(
                        healthy=True, detail=f"The schema moved on to revision {revision}; upgrade soon."
                    )
                require_current(revision)
        except StorageUnavailable as error:
            return StoreHealth(healthy=False, detail=error.message)
        except StorageNotReady as error:
            return StoreHealth(healthy=False, detail=str(error))
        return StoreHealth(healthy=True, detail="The database answers.")

    async def _try_write(self) -> str | None:
        health = await self._examine(write=True)
        if health.healthy:
            return None
        # Readiness has to say so too, until a write succeeds.
        self._commit.in_doubt = True
        _log.warning("requests that need the database are refused: %s", health.detail)
        return health.detail

    def _commit_batch(self, batch: Sequence[Change]) -> Sequence[Outcome]:
        outcomes = self._commit(batch)
        if self._commit.in_doubt:
            self._proof.doubt()
        elif not all(isinstance(outcome, GatewayError) for outcome in outcomes):
            self._proof.renew()
        return outcomes

    def _prepare(self) -> None:
        create_file(self._settings.url)
        try:
            self._gate.ensure()
        except SQLAlchemyError as error:
            if is_sqlite(self._settings.url):
                raise StorageNotReady(f"{explain_fault(error)} ({self._settings.url.database})") from error
            _log.warning("the database is not usable yet, every use tries again: %s", explain_fault(error))

    def _release(self) -> None:
        self._sweeper.close()
        self._writer.close()
        self._commit.release()
        self._readers.close()
        self._engine.dispose()
