"""The store in a database."""

import asyncio
import logging
from collections.abc import Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.ports import Deletion, History, StoredItem, StoredResponse, StoreHealth
from gateway.protocol.errors import StorageUnavailable
from gateway.storage.commit import BatchCommit
from gateway.storage.engine import create_file, open_engine
from gateway.storage.faults import StorageNotReady, explain_fault
from gateway.storage.history import HistoryQuery
from gateway.storage.migrations import SchemaGate, SchemaState, compare, read_revision, require_current
from gateway.storage.readers import Readers
from gateway.storage.references import ReferenceQuery
from gateway.storage.retention import Sweep
from gateway.storage.rows import build_response, select_response
from gateway.storage.settings import StoreSettings, is_sqlite
from gateway.storage.sweeper import Sweeper
from gateway.storage.writer import Writer
from gateway.telemetry.metrics import StorageLoad

_log = logging.getLogger(__name__)


class SqlStore:
    """`ports.Store` on SQLite or PostgreSQL. Several processes may share one database."""

    def __init__(self, settings: StoreSettings, load: StorageLoad | None = None) -> None:
        """Prepare the parts; connects to nothing.

        Args:
            settings: the database, and every bound.
            load: kept up to date with what waits to be written.

        Raises:
            StorageNotReady: the PostgreSQL driver is not installed.
        """
        self._settings = settings
        self._engine = open_engine(settings)
        self._gate = SchemaGate(self._engine, migrates=settings.migrates_on_start)
        self._readers = Readers(
            self._engine, self._gate.ensure, threads=settings.readers, max_entries=settings.reader_max_entries
        )
        self._commit = BatchCommit(self._engine, self._gate.ensure)
        self._writer = Writer(
            self._commit,
            max_entries=settings.writer_max_entries,
            max_bytes=settings.writer_max_bytes,
            batch_entries=settings.writer_batch_entries,
            load=load,
        )
        self._sweeper = Sweeper(
            Sweep(self._engine, batch_responses=settings.retention_batch_responses),
            self._gate.ensure,
            retention_seconds=settings.retention_seconds,
            interval_seconds=settings.retention_interval_seconds,
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

    async def append(self, response: StoredResponse) -> None:
        """Persist one response with its items; returns only after COMMIT.

        Raises:
            StorageUnavailable: the database refused, the writer's queue is full, the parent is gone or the id is taken.
        """
        await self._writer.write(response)

    async def history(self, principal: str, response_id: str) -> History | None:
        """Return the effective history with one query, or None when the principal has no such live response.

        Raises:
            StorageUnavailable: the database does not answer.
            InvalidRequest: the chain passes `history_max_responses` or `history_max_bytes`.
        """
        return await self._readers.run(
            lambda connection: self._history.read(connection, principal, response_id), timeout=self._read_timeout
        )

    async def response(self, principal: str, response_id: str) -> StoredResponse | None:
        """Return one live response with its own items, or None.

        Raises:
            StorageUnavailable: the database does not answer.
        """

        def read(connection: Connection) -> StoredResponse | None:
            parameters = {"principal": principal, "response_id": response_id}
            rows = connection.execute(self._response, parameters).all()
            return build_response(rows) if rows else None

        return await self._readers.run(read, timeout=self._read_timeout)

    async def delete(self, deletion: Deletion) -> None:
        """Hide a response from every process; returns only after COMMIT.

        Raises:
            ResponseNotFound: the principal has no such live response.
            StorageUnavailable: the database refused, or the writer's queue is full.
        """
        await self._writer.write(deletion)

    async def items(self, principal: str, item_ids: Sequence[str]) -> dict[str, StoredItem]:
        """Return the newest item for each id that a live response of the principal holds.

        Ids of more than 64 characters are not found.

        Raises:
            StorageUnavailable: the database does not answer.
            InvalidRequest: the items pass `history_max_bytes` together.
        """
        return await self._readers.run(
            lambda connection: self._references.read(connection, principal, item_ids), timeout=self._read_timeout
        )

    async def probe(self) -> StoreHealth:
        """Check within `probe_timeout_seconds` that the database answers and its schema fits. Never raises.

        After a batch that was not stored, a later one or a trial write must have succeeded. A schema that became newer
        since the start stays healthy: that is an upgrade rolling over the replicas.
        """
        try:
            revision = await self._readers.run(self._examine, timeout=self._settings.probe_timeout_seconds)
            if compare(revision) is SchemaState.NEWER:
                return StoreHealth(healthy=True, detail=f"The schema moved on to revision {revision}; upgrade soon.")
            require_current(revision)
        except StorageUnavailable as error:
            return StoreHealth(healthy=False, detail=error.message)
        except StorageNotReady as error:
            return StoreHealth(healthy=False, detail=str(error))
        return StoreHealth(healthy=True, detail="The database answers.")

    async def close(self) -> None:
        """Write what is queued, then close every connection. Idempotent."""
        await asyncio.to_thread(self._release)

    @property
    def _read_timeout(self) -> float:
        return self._settings.statement_timeout_seconds + self._settings.busy_timeout_seconds

    def _examine(self, connection: Connection) -> str | None:
        revision = read_revision(connection)
        if self._commit.in_doubt:
            connection.rollback()
            self._commit.try_write(connection)
        return revision

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
        self._readers.close()
        self._engine.dispose()
