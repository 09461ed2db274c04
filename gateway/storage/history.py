"""The effective history of a response: its whole chain in one recursive query, and the agents of a tree in another."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import CTE, Connection, Row, Select, and_, bindparam, case, func, literal, select

from gateway.ports import ConversationBounds, History, StoredItem
from gateway.protocol.errors import ConversationNotFound, InvalidRequest
from gateway.storage.conversations import find_start, read_items
from gateway.storage.rows import AGENT_COLUMNS, ITEM_COLUMNS, build_agents, build_items
from gateway.storage.tables import CallerText, agents, items, responses

TOO_LONG_CODE = "history_too_long"
# More than any conversation has; its bytes are what is bounded.
_ANY_NUMBER = 2**62

_PRINCIPAL = bindparam("principal", type_=CallerText)
_IS_LIVE = and_(
    responses.c.id == bindparam("response_id", type_=CallerText),
    responses.c.principal == _PRINCIPAL,
    responses.c.deleted_at.is_(None),
)
_LIVE = select(responses.c.id).where(_IS_LIVE)
# What is still being made has no output to go on from.
_IS_FINISHED = responses.c.status.not_in(("queued", "in_progress"))


class HistoryQuery:
    """Reads chains within two bounds, which the query itself keeps: what is above them never leaves the database."""

    def __init__(self, *, max_responses: int, max_bytes: int) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        chain = _walk_chain(max_responses, max_bytes)
        self._items = _select_items(chain, max_bytes)
        self._agents = _select_agents(chain)

    def read(self, connection: Connection, principal: str, response_id: str) -> History | None:
        """Return the history behind a live response of the principal that has ended, or None.

        Hidden ancestors of a live response belong to its history, and so does what came before the oldest of them in
        the conversation that it belongs to. The agents of a tree know all that they need, also of what came before the
        tree.

        Raises:
            InvalidRequest: the chain is longer or larger than allowed.
        """
        parameters = {"principal": principal, "response_id": response_id}
        rows = connection.execute(self._items, parameters).all()
        if not rows:
            return None
        oldest = rows[0]
        check_bounds(
            responses=oldest.depth + (oldest.parent_id is not None),
            size=oldest.chain_bytes,
            max_responses=self._max_responses,
            max_bytes=self._max_bytes,
        )
        if oldest.head_agent_bytes is not None:
            tree = build_agents(connection.execute(self._agents, parameters).all())
            # None of them: the chain has been removed in between.
            return History(response_id=response_id, items=(), responses=oldest.depth, tree=tree) if tree else None
        if oldest.conversation_id is None:
            return History(response_id=response_id, items=build_items(rows), responses=oldest.depth)
        before = self._read_conversation(connection, principal, oldest)
        return History(
            response_id=response_id, items=(*before, *build_items(rows)), responses=oldest.depth, settled=False
        )

    def _read_conversation(
        self, connection: Connection, principal: str, oldest: Row[*tuple[Any, ...]]
    ) -> Sequence[StoredItem]:
        """Return what a conversation holds before the first response of a chain, nothing if it is gone."""
        start = find_start(connection, oldest.conversation_id, oldest.id)
        if start is None:
            return ()
        bounds = ConversationBounds(max_items=_ANY_NUMBER, max_bytes=self._max_bytes - oldest.chain_bytes)
        try:
            return read_items(connection, principal, oldest.conversation_id, bounds, before=start)
        except ConversationNotFound:
            return ()
        except InvalidRequest:
            raise _too_long("history_max_bytes", f"{self._max_bytes} bytes") from None


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
    raise _too_long(key, passed)


def _too_long(key: str, passed: str) -> InvalidRequest:
    return InvalidRequest(
        f"The history behind previous_response_id exceeds [storage] {key} ({passed}); start a new chain.",
        code=TOO_LONG_CODE,
        param="previous_response_id",
        bound=f"storage.{key}",
    )


def within_bounds(*, responses: int, size: int, max_responses: int, max_bytes: int) -> bool:
    """Tell whether a chain has no more responses and item bytes than allowed."""
    return size <= max_bytes and responses <= max_responses


def _walk_chain(max_responses: int, max_bytes: int) -> CTE:
    """Build the rows of a chain, the newest first; of a tree what is kept of its agents is counted, not its items."""
    head = select(
        responses.c.id,
        responses.c.parent_id,
        literal(1).label("depth"),
        func.coalesce(responses.c.agent_bytes, responses.c.item_bytes).label("chain_bytes"),
        responses.c.conversation_id,
        responses.c.agent_bytes,
        responses.c.agent_bytes.label("head_agent_bytes"),
    ).where(_IS_LIVE, _IS_FINISHED)
    chain = head.cte("chain", recursive=True)
    ancestor = responses.alias("ancestor")
    of_items, of_agents = ancestor.c.item_bytes, func.coalesce(ancestor.c.agent_bytes, 0)
    step = select(
        ancestor.c.id,
        ancestor.c.parent_id,
        chain.c.depth + 1,
        chain.c.chain_bytes + case((chain.c.head_agent_bytes.is_(None), of_items), else_=of_agents),
        ancestor.c.conversation_id,
        ancestor.c.agent_bytes,
        chain.c.head_agent_bytes,
    ).where(
        ancestor.c.id == chain.c.parent_id,
        ancestor.c.principal == _PRINCIPAL,
        chain.c.depth < max_responses,
        chain.c.chain_bytes <= max_bytes,
    )
    return chain.union_all(step)


def _select_items(chain: CTE, max_bytes: int) -> Select[*tuple[Any, ...]]:
    mine = and_(items.c.response_id == chain.c.id, chain.c.chain_bytes <= max_bytes, chain.c.head_agent_bytes.is_(None))
    return (
        select(
            *ITEM_COLUMNS,
            chain.c.id,
            chain.c.parent_id,
            chain.c.depth,
            chain.c.chain_bytes,
            chain.c.conversation_id,
            chain.c.head_agent_bytes,
        )
        .join_from(chain, items, mine, isouter=True)
        .order_by(chain.c.depth.desc(), items.c.position)
    )


def _select_agents(chain: CTE) -> Select[*tuple[Any, ...]]:
    return (
        select(*AGENT_COLUMNS)
        .join_from(chain, agents, and_(agents.c.response_id == chain.c.id, chain.c.agent_bytes.is_not(None)))
        .order_by(chain.c.depth.desc(), agents.c.position)
    )
