"""Items by the ids callers know them by."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, and_, bindparam, exists, func, or_, select

from gateway.ports import StoredItem
from gateway.protocol.errors import InvalidRequest
from gateway.storage.history import TOO_LONG_CODE
from gateway.storage.rows import ITEM_COLUMNS, build_items
from gateway.storage.tables import HAS_SHORT_ID, CallerText, conversation_items, conversations, items, responses

# Both databases limit the parameters of a statement.
_IDS_PER_STATEMENT = 1000


class ReferenceQuery:
    """Finds the newest item of each id, within a bound the query itself keeps."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._statement = _select_newest()

    def read(self, connection: Connection, principal: str, item_ids: Iterable[str]) -> dict[str, StoredItem]:
        """Return the newest item for each id that a live response or conversation of the principal holds.

        Ids longer than the index holds are not found.

        Raises:
            InvalidRequest: the items together are larger than allowed.
        """
        found: dict[str, StoredItem] = {}
        size = 0
        for some_ids in _slice(dict.fromkeys(item_ids)):
            parameters = {"principal": principal, "item_ids": some_ids, "room": self._max_bytes - size}
            rows = connection.execute(self._statement, parameters).all()
            size += rows[0].total if rows else 0
            check_references(size, self._max_bytes)
            found |= {item.id: item for item in build_items(rows)}
        return found


def check_references(size: int, max_bytes: int) -> None:
    """Refuse to load more item bytes than allowed.

    Raises:
        InvalidRequest: names the bound.
    """
    if size > max_bytes:
        raise InvalidRequest(
            f"The items referenced by id exceed [storage] history_max_bytes ({max_bytes} bytes); refer to fewer.",
            code=TOO_LONG_CODE,
            param="input",
            bound="storage.history_max_bytes",
        )


def _slice(item_ids: Iterable[str]) -> Iterator[Sequence[str]]:
    remaining = iter(item_ids)
    while some := list(islice(remaining, _IDS_PER_STATEMENT)):
        yield some


def _select_newest() -> Select[*tuple[Any, ...]]:
    in_conversation = exists().where(
        conversation_items.c.item_row_id == items.c.row_id,
        conversations.c.id == conversation_items.c.conversation_id,
        conversations.c.deleted_at.is_(None),
    )
    newest = (
        select(func.max(items.c.row_id).label("row_id"))
        .join(responses, responses.c.id == items.c.response_id, isouter=True)
        .where(
            items.c.principal == bindparam("principal", type_=CallerText),
            items.c.id.in_(bindparam("item_ids", type_=CallerText, expanding=True)),
            HAS_SHORT_ID,
            or_(and_(responses.c.id.is_not(None), responses.c.deleted_at.is_(None)), in_conversation),
        )
        .group_by(items.c.id)
        .cte("newest")
    )
    sized = (
        select(newest.c.row_id, func.sum(func.length(items.c.data)).over().label("total"))
        .join_from(newest, items, items.c.row_id == newest.c.row_id)
        .cte("sized")
    )
    within = and_(items.c.row_id == sized.c.row_id, sized.c.total <= bindparam("room", type_=BigInteger))
    return select(*ITEM_COLUMNS, sized.c.total).join_from(sized, items, within, isouter=True)
