"""Giving what one owner stored to another, as when callers are told apart from now on."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Column, ColumnElement, Connection, Engine, Table, and_, func, literal, or_, select, update

from gateway.storage.tables import IS_DESCENDANT, CallerText, belongs_to, conversations, items, responses


class Owned(Struct, frozen=True, kw_only=True):
    """How much belongs to an owner, or was given to another."""

    responses: int = 0
    items: int = 0
    conversations: int = 0

    def __add__(self, other: "Owned") -> "Owned":
        return Owned(
            responses=self.responses + other.responses,
            items=self.items + other.items,
            conversations=self.conversations + other.conversations,
        )


class OwnerChange:
    """Gives everything of one owner to another, in one bounded transaction after another; begun again, it goes on.

    What continues from each other moves together. A gateway that still stores for the former owner meanwhile finds the
    parents gone that have moved, as if they were deleted.

    Args:
        engine: of the database.
        old: the former owner.
        new: the owner from then on.
        batch_rows: how many responses, items or conversations a transaction begins with; those that continue the
            responses, or are continued by them, come along.
    """

    def __init__(self, engine: Engine, *, old: str, new: str, batch_rows: int) -> None:
        self._engine = engine
        self._old = old
        self._new = literal(new, CallerText)
        self._batch_rows = batch_rows

    def count(self) -> Owned:
        """Return what belongs to the former owner now.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        tables = (responses, items, conversations)
        with self._engine.connect() as connection:
            found = [
                connection.scalar(select(func.count()).select_from(table).where(belongs_to(table, self._old))) or 0
                for table in tables
            ]
        return Owned(**dict(zip((table.name for table in tables), found, strict=True)))

    def apply(self) -> Iterator[Owned]:
        """Move everything, yielding after each commit what it moved.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database refused a batch, which changed nothing.
        """
        yield from self._walk(responses.c.id, self._move_trees)
        # What only conversations hold any more.
        yield from self._walk(items.c.row_id, self._move_items)
        yield from self._walk(conversations.c.id, self._move_conversations)

    def _walk(self, key: Column[Any], move: Callable[[Connection, Sequence[Any]], Owned]) -> Iterator[Owned]:
        """Go through a table of the former owner's rows in the order of its key."""
        query = select(key).where(belongs_to(key.table, self._old)).order_by(key).limit(self._batch_rows)
        reached: ColumnElement[bool] | None = None
        while True:
            with self._engine.begin() as connection:
                found = connection.scalars(query if reached is None else query.where(reached)).all()
                if not found:
                    return
                moved = move(connection, found)
            yield moved
            reached = key > found[-1]

    def _move_trees(self, connection: Connection, ids: Sequence[Any]) -> Owned:
        roots = select(responses.c.root_id).where(responses.c.id.in_(ids))
        in_trees = or_(responses.c.id.in_(roots), and_(responses.c.root_id.in_(roots), IS_DESCENDANT))
        members = select(responses.c.id).where(in_trees)
        moved_items = self._move(connection, items, items.c.response_id.in_(members))
        moved_responses = self._move(connection, responses, in_trees)
        return Owned(responses=moved_responses, items=moved_items)

    def _move_items(self, connection: Connection, row_ids: Sequence[Any]) -> Owned:
        return Owned(items=self._move(connection, items, items.c.row_id.in_(row_ids)))

    def _move_conversations(self, connection: Connection, ids: Sequence[Any]) -> Owned:
        return Owned(conversations=self._move(connection, conversations, conversations.c.id.in_(ids)))

    def _move(self, connection: Connection, table: Table, chosen: ColumnElement[bool]) -> int:
        statement = update(table).where(chosen, table.c.principal == self._old).values(principal=self._new)
        return connection.execute(statement).rowcount
