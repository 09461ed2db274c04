"""Conversations in the database."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import BigInteger, Connection, Select, and_, bindparam, func, or_, select, true

from gateway.ports import (
    ConversationAddition,
    ConversationBounds,
    ConversationClaim,
    ConversationDeletion,
    ConversationTurn,
    ConversationUpdate,
    ItemPage,
    ItemRemoval,
    NewConversation,
    StoredConversation,
    StoredItem,
)
from gateway.protocol.conversations import refuse_size
from gateway.protocol.errors import ConversationNotFound, InvalidRequest, ItemNotFound
from gateway.storage.conversation_changes import ConversationChange, is_live
from gateway.storage.rows import ITEM_COLUMNS, build_items
from gateway.storage.tables import CallerText, conversation_items, conversations, items

T = TypeVar("T")


class _Read(Protocol):
    async def __call__(self, name: str, query: Callable[[Connection], T], /) -> T: ...


class SqlConversations:
    """`ports.ConversationStore` in the database.

    Args:
        write: carries out a change with others in one transaction, and returns what came of it.
        read: runs a query, under a name by which it is counted.
    """

    def __init__(self, write: Callable[[ConversationChange], Awaitable[Any]], read: _Read) -> None:
        self._write = write
        self._read = read

    async def create(self, new: NewConversation) -> None:
        """Persist a conversation; as `ports.ConversationStore`."""
        await self._write(new)

    async def find(self, principal: str, conversation_id: str) -> StoredConversation:
        """Return one conversation; as `ports.ConversationStore`."""

        def read(connection: Connection) -> StoredConversation:
            row = connection.execute(select(conversations).where(is_live(principal, conversation_id))).first()
            if row is None:
                raise ConversationNotFound(conversation_id)
            return StoredConversation(
                id=row.id, principal=row.principal, created_at=row.created_at, metadata=row.metadata
            )

        return await self._read("conversation", read)

    async def update(self, update: ConversationUpdate) -> StoredConversation:
        """Note something else; as `ports.ConversationStore`."""
        updated: StoredConversation = await self._write(update)
        return updated

    async def delete(self, deletion: ConversationDeletion) -> None:
        """Hide a conversation; as `ports.ConversationStore`."""
        await self._write(deletion)

    async def claim(self, claim: ConversationClaim) -> None:
        """Let somebody write to a conversation; as `ports.ConversationStore`."""
        await self._write(claim)

    async def history(self, principal: str, conversation_id: str, bounds: ConversationBounds) -> Sequence[StoredItem]:
        """Return all items; as `ports.ConversationStore`."""
        return await self._read(
            "conversation_items", lambda connection: read_items(connection, principal, conversation_id, bounds)
        )

    async def append(self, turn: ConversationTurn) -> None:
        """Persist a response and its items in the conversation; as `ports.ConversationStore`."""
        await self._write(turn)

    async def add(self, addition: ConversationAddition) -> None:
        """Put items at the end of a conversation; as `ports.ConversationStore`."""
        await self._write(addition)

    async def remove(self, removal: ItemRemoval) -> StoredConversation:
        """Take an item out of a conversation; as `ports.ConversationStore`."""
        left: StoredConversation = await self._write(removal)
        return left

    async def item(self, principal: str, conversation_id: str, item_id: str) -> StoredItem:
        """Return one item; as `ports.ConversationStore`."""

        def read(connection: Connection) -> StoredItem:
            found = _read_some(connection, principal, conversation_id, {"item_id": item_id}, _SELECT_ONE)
            if not found:
                raise ItemNotFound(item_id)
            return found[0]

        return await self._read("conversation_item", read)

    async def page(
        self, principal: str, conversation_id: str, *, after: str | None, limit: int, descending: bool
    ) -> ItemPage:
        """Return some of the items; as `ports.ConversationStore`."""
        statement = _SELECT_PAGE[after is not None, descending]
        parameters = {"limit": limit + 1} | ({} if after is None else {"item_id": after})

        def read(connection: Connection) -> ItemPage:
            found = _read_some(connection, principal, conversation_id, parameters, statement, after)
            return ItemPage(items=found[:limit], has_more=len(found) > limit)

        return await self._read("conversation_items", read)


def read_items(
    connection: Connection,
    principal: str,
    conversation_id: str,
    bounds: ConversationBounds,
    *,
    before: int | None = None,
    param: str = "conversation",
) -> Sequence[StoredItem]:
    """Return the items of a live conversation in their order; what is above the bounds never leaves the database.

    Args:
        connection: of the database.
        principal: owner.
        conversation_id: the conversation id.
        bounds: how much there may be.
        before: only the items before this position.
        param: of the request that needs them.

    Raises:
        ConversationNotFound: the principal has no such conversation.
        InvalidRequest: there is more.
    """
    parameters = {
        "principal": principal,
        "conversation_id": conversation_id,
        "before": before,
        "max_items": bounds.max_items,
        "max_bytes": bounds.max_bytes,
    }
    rows = connection.execute(_SELECT_ALL, parameters).all()
    if not rows:
        raise ConversationNotFound(conversation_id, param=param)
    refusal = refuse_size(rows[0].number, rows[0].total, bounds.max_items, bounds.max_bytes, param=param)
    if refusal is not None:
        raise refusal
    return build_items(rows)


def find_start(connection: Connection, conversation_id: str, response_id: str) -> int | None:
    """Return the position of a response's first item in a conversation, None if it has none there."""
    statement = (
        select(func.min(conversation_items.c.position))
        .join(items, items.c.row_id == conversation_items.c.item_row_id)
        .where(conversation_items.c.conversation_id == conversation_id, items.c.response_id == response_id)
    )
    start: int | None = connection.scalar(statement)
    return start


def _read_some(
    connection: Connection,
    principal: str,
    conversation_id: str,
    parameters: dict[str, Any],
    statement: Select[*tuple[Any, ...]],
    after: str | None = None,
) -> Sequence[StoredItem]:
    found = connection.execute(
        statement, {"principal": principal, "conversation_id": conversation_id, **parameters}
    ).all()
    if not found:
        raise ConversationNotFound(conversation_id)
    if after is not None and found[0].start is None:
        raise InvalidRequest(
            f"The conversation has no item with id '{after[:128]}'; page on with the id of an item that was listed.",
            code="item_not_found",
            param="after",
        )
    return build_items(found)


_ID = bindparam("conversation_id", type_=CallerText)
_LIVE = and_(
    conversations.c.id == _ID,
    conversations.c.principal == bindparam("principal", type_=CallerText),
    conversations.c.deleted_at.is_(None),
)
_HELD = conversation_items.join(items, items.c.row_id == conversation_items.c.item_row_id)
_IS_HERE = conversation_items.c.conversation_id == conversations.c.id
_ITEM_ID = bindparam("item_id", type_=CallerText)


def _select_all() -> Select[*tuple[Any, ...]]:
    before = bindparam("before", type_=BigInteger)
    is_before = or_(before.is_(None), conversation_items.c.position < before)
    sized = (
        select(func.count().label("number"), func.coalesce(func.sum(func.length(items.c.data)), 0).label("total"))
        .select_from(_HELD)
        .where(conversation_items.c.conversation_id == _ID, is_before)
        .cte("sized")
    )
    within = and_(
        _IS_HERE,
        is_before,
        sized.c.number <= bindparam("max_items", type_=BigInteger),
        sized.c.total <= bindparam("max_bytes", type_=BigInteger),
    )
    source = conversations.join(sized, true()).outerjoin(_HELD, within)
    return (
        select(*ITEM_COLUMNS, sized.c.number, sized.c.total)
        .select_from(source)
        .where(_LIVE)
        .order_by(conversation_items.c.position)
    )


def _select_one() -> Select[*tuple[Any, ...]]:
    source = conversations.outerjoin(_HELD, and_(_IS_HERE, items.c.id == _ITEM_ID))
    return select(*ITEM_COLUMNS).select_from(source).where(_LIVE)


def _select_page(*, has_start: bool, descending: bool) -> Select[*tuple[Any, ...]]:
    """Build the query for some items; one row without an item tells that there are none."""
    position, wanted, columns = conversation_items.c.position, _IS_HERE, list(ITEM_COLUMNS)
    if has_start:
        place, named = conversation_items.alias("place"), items.alias("named")
        start = (
            select(func.max(place.c.position))
            .join_from(place, named, named.c.row_id == place.c.item_row_id)
            .where(place.c.conversation_id == _ID, named.c.id == _ITEM_ID)
            .scalar_subquery()
        )
        wanted = and_(wanted, position < start if descending else position > start)
        columns.append(start.label("start"))
    return (
        select(*columns)
        .select_from(conversations.outerjoin(_HELD, wanted))
        .where(_LIVE)
        .order_by(position.desc() if descending else position)
        .limit(bindparam("limit", type_=BigInteger))
    )


_SELECT_ALL = _select_all()
_SELECT_ONE = _select_one()
_SELECT_PAGE = {
    (has_start, descending): _select_page(has_start=has_start, descending=descending)
    for has_start in (False, True)
    for descending in (False, True)
}
