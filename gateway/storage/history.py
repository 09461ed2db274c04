"""The effective history of a response: its whole chain in one recursive query."""

from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, literal, select

from gateway.ports import History
from gateway.protocol.errors import InvalidRequest
from gateway.storage.rows import ITEM_COLUMNS, build_items
from gateway.storage.tables import CallerText, items, responses

TOO_LONG_CODE = "history_too_long"

_PRINCIPAL = bindparam("principal", type_=CallerText)
_IS_LIVE = and_(
    responses.c.id == bindparam("response_id", type_=CallerText),
    responses.c.principal == _PRINCIPAL,
    responses.c.deleted_at.is_(None),
)
_LIVE = select(responses.c.id).where(_IS_LIVE)


class HistoryQuery:
    """Reads chains within two bounds, which the query itself keeps: what is above them never leaves the database."""

    def __init__(self, *, max_responses: int, max_bytes: int) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._statement = _select_chain(max_responses, max_bytes)

    def read(self, connection: Connection, principal: str, response_id: str) -> History | None:
        """Return the history behind a live response of the principal, or None.

        Hidden ancestors of a live response belong to its history.

        Raises:
            InvalidRequest: the chain is longer or larger than allowed.
        """
        parameters = {"principal": principal, "response_id": response_id}
        rows = connection.execute(self._statement, parameters).all()
        if not rows:
            return None
        oldest = rows[0]
        check_bounds(
            responses=oldest.depth + (oldest.parent_id is not None),
            size=oldest.chain_bytes,
            max_responses=self._max_responses,
            max_bytes=self._max_bytes,
        )
        return History(response_id=response_id, items=build_items(rows), responses=oldest.depth)


def is_live(connection: Connection, principal: str, response_id: str) -> bool:
    """Tell whether the principal has such a response that is not deleted; the index of the ids answers."""
    parameters = {"principal": principal, "response_id": response_id}
    return connection.execute(_LIVE, parameters).first() is not None


def check_bounds(*, responses: int, size: int, max_responses: int, max_bytes: int) -> None:
    """Refuse a chain of more responses or item bytes than allowed.

    Raises:
        InvalidRequest: names the bound that was passed.
    """
    if within_bounds(responses=responses, size=size, max_responses=max_responses, max_bytes=max_bytes):
        return
    if size > max_bytes:
        key, passed = "history_max_bytes", f"{max_bytes} bytes"
    else:
        key, passed = "history_max_responses", f"{max_responses} responses"
    raise InvalidRequest(
        f"The history behind previous_response_id exceeds [storage] {key} ({passed}); start a new chain.",
        code=TOO_LONG_CODE,
        param="previous_response_id",
        bound=f"storage.{key}",
    )


def within_bounds(*, responses: int, size: int, max_responses: int, max_bytes: int) -> bool:
    """Tell whether a chain has no more responses and item bytes than allowed."""
    return size <= max_bytes and responses <= max_responses


def _select_chain(max_responses: int, max_bytes: int) -> Select[*tuple[Any, ...]]:
    head = select(
        responses.c.id,
        responses.c.parent_id,
        literal(1).label("depth"),
        responses.c.item_bytes.label("chain_bytes"),
    ).where(_IS_LIVE)
    chain = head.cte("chain", recursive=True)
    ancestor = responses.alias("ancestor")
    step = select(
        ancestor.c.id,
        ancestor.c.parent_id,
        chain.c.depth + 1,
        chain.c.chain_bytes + ancestor.c.item_bytes,
    ).where(
        ancestor.c.id == chain.c.parent_id,
        ancestor.c.principal == _PRINCIPAL,
        chain.c.depth < max_responses,
        chain.c.chain_bytes <= max_bytes,
    )
    chain = chain.union_all(step)
    return (
        select(*ITEM_COLUMNS, chain.c.parent_id, chain.c.depth, chain.c.chain_bytes)
        .join_from(
            chain, items, and_(items.c.response_id == chain.c.id, chain.c.chain_bytes <= max_bytes), isouter=True
        )
        .order_by(chain.c.depth.desc(), items.c.position)
    )
