"""The effective history of a response: its whole chain in one recursive query."""

from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, literal, select

from gateway.ports import History
from gateway.protocol.errors import InvalidRequest
from gateway.storage.rows import ITEM_COLUMNS, build_items
from gateway.storage.tables import CallerText, items, responses

TOO_LONG_CODE = "history_too_long"


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
        return History(response_id=response_id, items=build_items(rows))


def check_bounds(*, responses: int, size: int, max_responses: int, max_bytes: int) -> None:
    """Refuse a chain of more responses or item bytes than allowed.

    Raises:
        InvalidRequest: names the bound that was passed.
    """
    if size > max_bytes:
        passed = f"[storage] history_max_bytes ({max_bytes} bytes)"
    elif responses > max_responses:
        passed = f"[storage] history_max_responses ({max_responses} responses)"
    else:
        return
    raise InvalidRequest(
        f"The history behind previous_response_id exceeds {passed}; start a new chain.",
        code=TOO_LONG_CODE,
        param="previous_response_id",
    )


def _select_chain(max_responses: int, max_bytes: int) -> Select[*tuple[Any, ...]]:
    principal = bindparam("principal", type_=CallerText)
    head = select(
        responses.c.id,
        responses.c.parent_id,
        literal(1).label("depth"),
        responses.c.item_bytes.label("chain_bytes"),
    ).where(
        responses.c.id == bindparam("response_id", type_=CallerText),
        responses.c.principal == principal,
        responses.c.deleted_at.is_(None),
    )
    chain = head.cte("chain", recursive=True)
    ancestor = responses.alias("ancestor")
    step = select(
        ancestor.c.id,
        ancestor.c.parent_id,
        chain.c.depth + 1,
        chain.c.chain_bytes + ancestor.c.item_bytes,
    ).where(
        ancestor.c.id == chain.c.parent_id,
        ancestor.c.principal == principal,
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
