"""Removing conversations for good, and with them the items that nothing else holds."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, Engine, and_, delete, func, select

from gateway.storage.conversation_changes import remove_loose
from gateway.storage.retention import Removed, begin_alone
from gateway.storage.tables import conversation_items, conversations


def hidden_before(at: int) -> ColumnElement[bool]:
    """Choose conversations that were deleted before this Unix second."""
    return conversations.c.deleted_at < at


def owned_by(principal: str) -> ColumnElement[bool]:
    """Choose all conversations of an owner."""
    return conversations.c.principal == principal


class ConversationSweep:
    """Removes conversations in one bounded transaction after another; several processes take turns.

    Items that responses hold stay with them.

    Args:
        engine: of the database.
        batch_rows: how many places in conversations, and how many conversations, a transaction removes at most.
    """

    def __init__(self, engine: Engine, *, batch_rows: int) -> None:
        self._engine = engine
        self._batch_rows = batch_rows

    def count(self, chosen: ColumnElement[bool]) -> int:
        """Return how many conversations `remove` would remove.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        with self._engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(conversations).where(chosen)) or 0

    def remove(self, chosen: ColumnElement[bool]) -> Iterator[Removed]:
        """Remove all that are chosen, yielding after each commit; whoever iterates may pause or stop there.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database refused a batch, which changed nothing.
        """
        while (removed := self._remove_batch(chosen)) is not None:
            yield removed

    def _remove_batch(self, chosen: ColumnElement[bool]) -> Removed | None:
        with begin_alone(self._engine) as connection:
            some = select(conversations.c.id).where(chosen).order_by(conversations.c.id).limit(self._batch_rows)
            ids = connection.scalars(some).all()
            if not ids:
                return None
            in_them = conversation_items.c.conversation_id.in_(ids)
            held = select(conversation_items.c.item_row_id).where(in_them).limit(self._batch_rows)
            row_ids = connection.scalars(held).all()
            here = and_(in_them, conversation_items.c.item_row_id.in_(row_ids))
            connection.execute(delete(conversation_items).where(here))
            gone = remove_loose(connection, row_ids)
            if len(row_ids) == self._batch_rows:
                return Removed(items=gone)
            connection.execute(delete(conversations).where(conversations.c.id.in_(ids)))
        return Removed(items=gone, conversations=len(ids))
