"""What is removed for good: old trees, deleted responses that nothing continues from, or all that one owner has."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
)

from gateway.storage.tables import IS_DESCENDANT, CallerText, belongs_to, conversation_items, items, responses

# Any number but that of the migrations, the same in every version of the gateway.
_ADVISORY_LOCK = 7_303_014_821_067


class Cutoffs(Struct, frozen=True, kw_only=True):
    """Which responses have had their time.

    Attributes:
        created: trees without a member made at this Unix second or later have expired; None keeps all.
        deleted: responses deleted at this Unix second or later are left alone.
    """

    created: int | None
    deleted: int

    def covers(self, tree: "Sequence[Member]") -> bool:
        """Tell whether all of a tree can go."""
        return self.created is not None and max((member.created_at for member in tree), default=0) < self.created

    def frees(self, member: "Member") -> bool:
        """Tell whether one that nothing continues from can go."""
        return member.deleted_at is not None and member.deleted_at < self.deleted

    def find_roots(self, connection: Connection, *, limit: int | None) -> list[str]:
        """Return the first responses of trees in which something can go."""
        found: dict[str, None] = {}
        if self.created is not None:
            expired = select_expired_roots().limit(limit)
            found |= dict.fromkeys(connection.scalars(expired, {"created": self.created}))
        deleted = select_deleted_roots().limit(limit)
        found |= dict.fromkeys(connection.scalars(deleted, {"deleted": self.deleted}))
        return list(found)[:limit]


class Owner(Struct, frozen=True, kw_only=True):
    """Whose responses can go, all of them.

    Attributes:
        principal: the owner.
    """

    principal: str

    def covers(self, tree: "Sequence[Member]") -> bool:  # noqa: ARG002 - a tree has one owner
        """Tell that all of a tree can go."""
        return True

    def frees(self, member: "Member") -> bool:  # noqa: ARG002
        """Tell that any response can go."""
        return True

    def find_roots(self, connection: Connection, *, limit: int | None) -> list[str]:
        """Return the first responses of the owner's trees."""
        owned = select(responses.c.id).where(belongs_to(responses, self.principal), responses.c.parent_id.is_(None))
        return list(connection.scalars(owned.order_by(responses.c.id).limit(limit)))


Choice: TypeAlias = Cutoffs | Owner


class Removed(Struct, frozen=True, kw_only=True):
    """How many rows went, or would go."""

    responses: int = 0
    items: int = 0
    conversations: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(
            responses=self.responses + other.responses,
            items=self.items + other.items,
            conversations=self.conversations + other.conversations,
        )


class Member(NamedTuple):
    """One response of a tree."""

    id: str
    parent_id: str | None
    created_at: int
    deleted_at: int | None


def choose_removable(tree: Sequence[Member], choice: Choice) -> list[str]:
    """Return the ids of a tree's members that can go, every child before its parent.

    Removing any number of them from the front leaves no child without its parent.
    """
    covered = choice.covers(tree)
    members = {member.id: member for member in tree}
    children = dict.fromkeys(members, 0)
    for member in tree:
        if member.parent_id is not None:
            children[member.parent_id] += 1
    leaves = [member for member in tree if not children[member.id]]
    chosen = []
    while leaves:
        leaf = leaves.pop()
        if not covered and not choice.frees(leaf):
            continue
        chosen.append(leaf.id)
        if leaf.parent_id is not None:
            children[leaf.parent_id] -= 1
            if not children[leaf.parent_id]:
                leaves.append(members[leaf.parent_id])
    return chosen


class Sweep:
    """Removes responses and their items in one bounded transaction after another; several processes take turns.

    Items that a conversation holds stay.
    """

    def __init__(self, engine: Engine, *, batch_responses: int) -> None:
        self._engine = engine
        self._batch_responses = batch_responses

    def remove(self, choice: Choice) -> Iterator[Removed]:
        """Remove all that can go, yielding after each commit; whoever iterates may pause or stop there.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database refused a batch, which changed nothing.
        """
        while (removed := self._remove_batch(choice)).responses:
            yield removed

    def count(self, choice: Choice) -> Removed:
        """Return what `remove` would remove now.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        total = Removed()
        with self._engine.connect() as connection:
            for root in choice.find_roots(connection, limit=None):
                ids = choose_removable(_read_tree(connection, root), choice)
                for start in range(0, len(ids), self._batch_responses):
                    some = ids[start : start + self._batch_responses]
                    counted = connection.scalar(select(func.count()).select_from(items).where(_unheld(some)))
                    total += Removed(responses=len(some), items=counted or 0)
        return total

    def _remove_batch(self, choice: Choice) -> Removed:
        with begin_alone(self._engine) as connection:
            ids: list[str] = []
            for root in choice.find_roots(connection, limit=self._batch_responses):
                ids += choose_removable(_lock_tree(connection, root), choice)
                if len(ids) >= self._batch_responses:
                    break
            del ids[self._batch_responses :]
            if not ids:
                return Removed()
            gone = connection.execute(delete(items).where(_unheld(ids))).rowcount
            connection.execute(delete(responses).where(responses.c.id.in_(ids)))
        return Removed(responses=len(ids), items=gone)


@contextmanager
def begin_alone(engine: Engine) -> Iterator[Connection]:
    """Begin a transaction that no other sweep overlaps, and commit it at the end of the block."""
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            # Under a stricter level rows would be read as they were before they were locked.
            connection.execution_options(isolation_level="READ COMMITTED")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        yield connection
        connection.commit()


def select_expired_roots() -> Select[Any]:
    """Build the query for the first responses of trees without a member made at `:created` or later, oldest first."""
    created = bindparam("created", type_=BigInteger)
    member = responses.alias("member")
    younger = exists().where(
        member.c.root_id == responses.c.id, member.c.parent_id.is_not(None), member.c.created_at >= created
    )
    return (
        select(responses.c.id)
        .where(responses.c.parent_id.is_(None), responses.c.created_at < created, ~younger)
        .order_by(responses.c.created_at)
    )


def select_deleted_roots() -> Select[Any]:
    """Build the query for the first responses of trees with a member deleted before `:deleted` and not continued.

    A tree comes once for each such member: looking for distinct ones, SQLite would walk through all responses.
    """
    child = responses.alias("child")
    return (
        select(responses.c.root_id)
        .where(
            responses.c.deleted_at < bindparam("deleted", type_=BigInteger),
            ~exists().where(child.c.parent_id == responses.c.id),
        )
        .order_by(responses.c.deleted_at)
    )


def _read_tree(connection: Connection, root: str) -> list[Member]:
    columns = (responses.c.id, responses.c.parent_id, responses.c.created_at, responses.c.deleted_at)
    rows = connection.execute(select(*columns).where(_in_tree(root)))
    return [Member(*row) for row in rows]


def _lock_tree(connection: Connection, root: str) -> list[Member]:
    """Lock the tree's members and return them, or none when somebody is writing to one or has just added one."""
    lock = select(responses.c.id).where(_in_tree(root)).with_for_update(skip_locked=True)
    locked = set(connection.scalars(lock))
    tree = _read_tree(connection, root)
    return tree if locked.issuperset(member.id for member in tree) else []


def _in_tree(root: str) -> ColumnElement[bool]:
    first = bindparam(None, root, type_=CallerText)
    return or_(responses.c.id == first, and_(responses.c.root_id == first, IS_DESCENDANT))


def _unheld(ids: Sequence[str]) -> ColumnElement[bool]:
    held = exists().where(conversation_items.c.item_row_id == items.c.row_id)
    return and_(items.c.response_id.in_(ids), ~held)
