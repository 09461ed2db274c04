"""Responses as rows and back."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, case, func, insert, select, update

from gateway.ports import Deletion, StoredItem, StoredResponse
from gateway.storage.tables import CallerText, items, responses

ITEM_COLUMNS = (
    items.c.role,
    items.c.type,
    items.c.id.label("item_id"),
    items.c.data,
    items.c.call_id,
    items.c.status.label("item_status"),
    items.c.agent,
)

_parent = responses.alias("parent")
_tree_parent = bindparam("tree_parent", type_=CallerText)
# NULL, which the column refuses, when the parent is gone or another principal's.
_root_of_parent = (
    select(_parent.c.root_id)
    .where(_parent.c.id == _tree_parent, _parent.c.principal == bindparam("tree_owner", type_=CallerText))
    .scalar_subquery()
)
_INSERT_RESPONSE = insert(responses).values(
    root_id=case((_tree_parent.is_(None), bindparam("tree_self", type_=CallerText)), else_=_root_of_parent)
)
_INSERT_ITEM = insert(items)


def insert_responses(connection: Connection, batch: Sequence[StoredResponse]) -> None:
    """Insert the responses in order, then all their items: two statements, executed many times."""
    if not batch:
        return
    connection.execute(_INSERT_RESPONSE, [_response_row(response) for response in batch])
    item_rows = [
        _item_row(response, position, item) for response in batch for position, item in enumerate(response.items)
    ]
    if item_rows:
        connection.execute(_INSERT_ITEM, item_rows)


def hide_response(connection: Connection, deletion: Deletion, *, again: bool) -> bool:
    """Mark the response as deleted and tell whether there was one to mark.

    Args:
        connection: inside a transaction.
        deletion: which response.
        again: the same may have been committed before, so that a response which is hidden already counts as marked.
    """
    mine = (responses.c.id == deletion.id, responses.c.principal == deletion.principal)
    live = () if again else (responses.c.deleted_at.is_(None),)
    return connection.execute(update(responses).where(*mine, *live).values(deleted_at=deletion.at)).rowcount == 1


def select_stored_ids(connection: Connection, batch: Sequence[StoredResponse]) -> set[str]:
    """Return which of the batch's ids are stored already."""
    ids = [response.id for response in batch]
    return set(connection.scalars(select(responses.c.id).where(responses.c.id.in_(ids))))


def select_response() -> Select[*tuple[Any, ...]]:
    """Build the query for one live response (`:principal`, `:response_id`): one row for each item, or one in all.

    The snapshot comes with the first row only, not once for every item.
    """
    snapshot = case((func.coalesce(items.c.position, 0) == 0, responses.c.snapshot))
    return (
        select(
            *ITEM_COLUMNS,
            snapshot.label("snapshot"),
            *(column for column in responses.c if column.name not in {"snapshot", "root_id", "item_bytes"}),
        )
        .join_from(responses, items, items.c.response_id == responses.c.id, isouter=True)
        .where(
            responses.c.id == bindparam("response_id", type_=CallerText),
            responses.c.principal == bindparam("principal", type_=CallerText),
            responses.c.deleted_at.is_(None),
        )
        .order_by(items.c.position)
    )


def build_response(rows: Sequence[Row[*tuple[Any, ...]]]) -> StoredResponse:
    """Build the response from the rows of `select_response`, of which there is at least one."""
    first = rows[0]
    return StoredResponse(
        id=first.id,
        principal=first.principal,
        status=first.status,
        model=first.model,
        created_at=first.created_at,
        snapshot=first.snapshot,
        items=build_items(rows),
        parent_id=first.parent_id,
        conversation_id=first.conversation_id,
        completed_at=first.completed_at,
    )


def build_items(rows: Sequence[Row[*tuple[Any, ...]]]) -> tuple[StoredItem, ...]:
    """Build the items from rows that begin with `ITEM_COLUMNS`; a response without items has NULLs there."""
    return tuple(
        StoredItem(role=role, type=type_, id=item_id, data=data, call_id=call_id, status=status, agent=agent)
        for role, type_, item_id, data, call_id, status, agent, *_ in rows
        if role is not None
    )


def count_item_bytes(response: StoredResponse) -> int:
    """Return the size of the items' JSON in bytes."""
    return sum(len(item.data) for item in response.items)


def _response_row(response: StoredResponse) -> dict[str, object]:
    return {
        "id": response.id,
        "principal": response.principal,
        "parent_id": response.parent_id,
        "conversation_id": response.conversation_id,
        "status": response.status,
        "model": response.model,
        "created_at": response.created_at,
        "completed_at": response.completed_at,
        "item_bytes": count_item_bytes(response),
        "snapshot": response.snapshot,
        # Columns cannot lend their parameters to an expression.
        "tree_self": response.id,
        "tree_parent": response.parent_id,
        "tree_owner": response.principal,
    }


def _item_row(response: StoredResponse, position: int, item: StoredItem) -> dict[str, object]:
    return {
        "response_id": response.id,
        "position": position,
        "principal": response.principal,
        "role": item.role,
        "type": item.type,
        "id": item.id,
        "call_id": item.call_id,
        "status": item.status,
        "agent": item.agent,
        "data": item.data,
    }
