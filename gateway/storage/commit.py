"""What becomes of one batch: durable together, or each with its own error."""

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, insert
from sqlalchemy.exc import InterfaceError, OperationalError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gateway.ports import Deletion, LeaseClaim, LeaseRelease, LeaseRenewal, RunBegin, StoredResponse, UsageFlush
from gateway.protocol.errors import ResponseNotFound
from gateway.storage.background_changes import RUN_ACTS, order_run
from gateway.storage.conversation_changes import build_conversation_acts, order_conversation
from gateway.storage.engine import leads_to_database
from gateway.storage.faults import DriverErrors, StorageNotReady, explain_fault, unavailable
from gateway.storage.leases import claim_lease, release_lease, renew_lease
from gateway.storage.rows import ResponseInsert, hide_response, select_stored_ids
from gateway.storage.tables import conversations
from gateway.storage.usage import add_usage
from gateway.storage.writer import Change, Outcome

# More than any page, so that a full disk has to find room for it.
_TRIAL_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


class BatchCommit:
    """Writes batches into the database; the callable a `Writer` needs.

    It keeps a connection of its own from one batch to the next, and gives it up after any fault. A lost connection is
    tried again once on a new one, leaving out what the first try made durable after all. A change the database refuses
    fails alone. Any other fault fails the whole batch.

    Attributes:
        in_doubt: the last batch was not stored; whether that was the database's fault, `try_write` tells.
    """

    def __init__(self, engine: Engine, ensure_schema: Callable[[], None]) -> None:
        self._engine = engine
        self._ensure_schema = ensure_schema
        self._insert = ResponseInsert(engine.dialect)
        self._conversation_acts = build_conversation_acts(self._insert)
        self._connection: Connection | None = None
        self.in_doubt = False

    def __call__(self, batch: Sequence[Change]) -> Sequence[Outcome]:
        """Store the batch and return one outcome for each change: its error, or what there is to tell of it."""
        try:
            outcomes = self._store(batch)
        except (StatementError, OverflowError, TypeError, ValueError) as error:
            # The values are at fault, unless the database itself is.
            if len(batch) > 1 and not isinstance(error, OperationalError | InterfaceError):
                return [outcome for change in batch for outcome in self([change])]
            return self._refuse(batch, error)
        except (PoolTimeout, StorageNotReady) as error:
            return self._refuse(batch, error)
        self.in_doubt = False
        return outcomes

    def release(self) -> None:
        """Give the connection back. Idempotent; the next batch takes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def try_write(self, connection: Connection) -> None:
        """End the doubt by writing a row and removing it, in one transaction that leaves nothing.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database still stores nothing.
        """
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="READ COMMITTED")
        trial = f"trial_{uuid.uuid4().hex}"
        with connection.begin():
            row = {"id": trial, "principal": "", "metadata": bytes(_TRIAL_BYTES), "created_at": 0}
            connection.execute(insert(conversations), row)
            connection.execute(delete(conversations).where(conversations.c.id == trial))
        self.in_doubt = False

    def _store(self, batch: Sequence[Change]) -> Sequence[Outcome]:
        try:
            return self._apply_or_resume(batch)
        except BaseException:
            self.release()
            raise

    def _apply_or_resume(self, batch: Sequence[Change]) -> Sequence[Outcome]:
        try:
            self._ensure_schema()
            return self._apply(batch, again=False)
        except (OperationalError, InterfaceError) as error:
            if not error.connection_invalidated:
                raise
            return self._apply(batch, again=True)

    def _apply(self, batch: Sequence[Change], *, again: bool) -> Sequence[Outcome]:
        connection = self._connect()
        appended = [change for change in batch if isinstance(change, StoredResponse)]
        if not again and len(appended) == len(batch):
            # SQLAlchemy's transaction around it would cost as much as the rest.
            with DriverErrors(connection):
                self._insert(connection, appended)
                connection.connection.commit()
            return [None] * len(batch)
        appended += [change.response for change in batch if isinstance(change, RunBegin)]
        with connection.begin():
            stored = select_stored_ids(connection, appended) if again else ()
            missing = [response for response in appended if response.id not in stored]
            with DriverErrors(connection):
                self._insert(connection, missing)
            return self._carry_out(connection, batch, again=again)

    def _carry_out(self, connection: Connection, batch: Sequence[Change], *, again: bool) -> Sequence[Outcome]:
        """Carry out all but the batch's appends, which went before; the outcome of every change."""
        outcomes: list[Outcome] = [None] * len(batch)
        others = [place for place, change in enumerate(batch) if not isinstance(change, StoredResponse)]
        for place in sorted(others, key=lambda place: _order(batch[place])):
            change = batch[place]
            act = _ACTS.get(type(change)) or self._conversation_acts[type(change)]
            outcomes[place] = act(connection, change, again)
        return outcomes

    def _connect(self) -> Connection:
        if self._connection is None or not leads_to_database(self._connection):
            self.release()
            self._connection = self._engine.connect()
        return self._connection

    def _refuse(self, batch: Sequence[Change], error: Exception) -> Sequence[Outcome]:
        self.in_doubt = True
        _log.warning("%d changes were not stored: %s", len(batch), explain_fault(error))
        return [unavailable(error) for _ in batch]


def _order(change: Any) -> tuple[int, str]:
    """Put first what locks the fewest, and what locks the same row in one order, so that no two processes deadlock."""
    if isinstance(change, UsageFlush):
        # Last, so that other processes wait for these rows, which all share, as shortly as can be.
        return 2, ""
    if isinstance(change, Deletion):
        return 0, ""
    if type(change) in RUN_ACTS:
        return 1, order_run(change)
    is_lease = isinstance(change, LeaseClaim | LeaseRenewal | LeaseRelease)
    return 1, change.lease.name if is_lease else order_conversation(change)


def _hide(connection: Connection, deletion: Deletion, again: bool) -> Outcome:
    return None if hide_response(connection, deletion, again=again) else ResponseNotFound(deletion.id)


# What is done for each kind of change, besides appending; each may have been done before, but for the answer.
_ACTS: Final[dict[type, Callable[[Connection, Any, bool], Outcome]]] = {
    Deletion: _hide,
    LeaseClaim: lambda connection, claim, _: claim_lease(connection, claim),
    LeaseRenewal: lambda connection, renewal, _: renew_lease(connection, renewal),
    LeaseRelease: lambda connection, release, _: release_lease(connection, release.lease),
    UsageFlush: lambda connection, flush, _: add_usage(connection, flush),
    **RUN_ACTS,
}
