"""Removing all that one owner has stored."""

from collections.abc import Iterator

from sqlalchemy import Engine, Table, and_, delete, func, select

from gateway.storage.conversation_sweep import ConversationSweep, owned_by
from gateway.storage.retention import Owner, Removed, Sweep
from gateway.storage.tables import belongs_to, conversations, items, responses


class Purge:
    """Removes responses, items and conversations of one owner, in one bounded transaction after another.

    What is being continued in that very moment is left, and so is what is stored
    later on; begun again, it goes on.

    Args:
        engine: of the database.
        principal: the owner.
        batch_rows: how many responses, conversations or items a transaction removes; a response's items come along.
    """

    def __init__(self, engine: Engine, principal: str, *, batch_rows: int) -> None:
        self._engine = engine
        self._principal = principal
        self._batch_rows = batch_rows

    def count(self) -> Removed:
        """Return how much the owner has now.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        return Removed(
            responses=self._count(responses), items=self._count(items), conversations=self._count(conversations)
        )

    def apply(self) -> Iterator[Removed]:
        """Remove everything, yielding after each commit what went; whoever iterates may pause or stop there.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database refused a batch, which changed nothing.
        """
        # First, because they hold on to items.
        yield from ConversationSweep(self._engine, batch_rows=self._batch_rows).remove(owned_by(self._principal))
        sweep = Sweep(self._engine, batch_responses=self._batch_rows)
        yield from sweep.remove(Owner(principal=self._principal))
        # What conversations had outlived its responses for.
        for gone in self._remove_loose():
            yield Removed(items=gone)

    def _count(self, table: Table) -> int:
        query = select(func.count()).select_from(table).where(belongs_to(table, self._principal))
        with self._engine.connect() as connection:
            return connection.scalar(query) or 0

    def _remove_loose(self) -> Iterator[int]:
        loose = and_(items.c.principal == self._principal, items.c.response_id.is_(None))
        while True:
            with self._engine.begin() as connection:
                found = connection.scalars(select(items.c.row_id).where(loose).limit(self._batch_rows)).all()
                if not found:
                    return
                connection.execute(delete(items).where(items.c.row_id.in_(found)))
            yield len(found)
