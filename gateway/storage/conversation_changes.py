"""What is written to conversations, inside the transactions of the writer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, select, update

from gateway.ports import (
    ConversationAddition,
    ConversationClaim,
    ConversationDeletion,
    ConversationTurn,
    ConversationUpdate,
    ItemRemoval,
    LeaseClaim,
    NewConversation,
    StoredConversation,
    StoredItem,
    conversation_lease,
)
from gateway.protocol.conversations import duplicate_item, refuse_size
from gateway.protocol.errors import ConversationLocked, ConversationNotFound, GatewayError, InvalidRequest, ItemNotFound
from gateway.storage.faults import DriverErrors
from gateway.storage.leases import claim_lease, release_lease
from gateway.storage.rows import ResponseInsert
from gateway.storage.tables import conversation_items, conversations, items, responses

ConversationChange: TypeAlias = (
    NewConversation
    | ConversationUpdate
    | ConversationDeletion
    | ConversationClaim
    | ConversationAddition
    | ItemRemoval
    | ConversationTurn
)
# It is claimed and given up in one transaction; the time is for nobody to see.
_MOMENT_SECONDS = 60.0
# About what a row takes.
_ROW_BYTES = 256


def order_conversation(change: ConversationChange) -> str:
    """Return by what changes are ordered, so that all processes lock rows in one order: the name of the lease."""
    conversation_id = change.conversation.id if isinstance(change, NewConversation) else change.id
    return conversation_lease(conversation_id, "").name


def measure_conversation(change: ConversationChange) -> int:
    """Return about how many bytes a change has."""
    if isinstance(change, ConversationTurn):
        return change.response.size
    if isinstance(change, NewConversation | ConversationAddition):
        return _ROW_BYTES + sum([len(item.data) for item in change.items])
    return _ROW_BYTES


def build_conversation_acts(insert_responses: ResponseInsert) -> Mapping[type, Callable[[Connection, Any, bool], Any]]:
    """Return what is done for each kind of change, within a transaction; its result is the outcome.

    Args:
        insert_responses: inserts responses with their items.
    """

    def append(connection: Connection, turn: ConversationTurn, again: bool) -> GatewayError | None:
        return _append(connection, turn, insert_responses, again=again)

    return {
        NewConversation: _create,
        ConversationUpdate: _update,
        ConversationDeletion: _hide,
        ConversationClaim: _claim,
        ConversationAddition: _add,
        ItemRemoval: _remove,
        ConversationTurn: append,
    }


def is_live(principal: str, conversation_id: str) -> ColumnElement[bool]:
    """Match the conversation, if it is the principal's and not deleted."""
    return and_(
        conversations.c.id == conversation_id,
        conversations.c.principal == principal,
        conversations.c.deleted_at.is_(None),
    )


def join_items(connection: Connection, conversation_id: str, row_ids: Sequence[int], at: int) -> None:
    """Put items at the end of a conversation, whose lease the transaction holds."""
    last = connection.scalar(
        select(func.max(conversation_items.c.position)).where(conversation_items.c.conversation_id == conversation_id)
    )
    places = [
        {"conversation_id": conversation_id, "position": position, "item_row_id": row_id, "created_at": at}
        for position, row_id in enumerate(row_ids, (last or 0) + 1)
    ]
    if places:
        connection.execute(insert(conversation_items), places)


def remove_loose(connection: Connection, row_ids: Sequence[int]) -> int:
    """Remove those of the items that neither a response nor a conversation holds; returns how many."""
    held = exists().where(conversation_items.c.item_row_id == items.c.row_id)
    loose = and_(items.c.row_id.in_(row_ids), items.c.response_id.is_(None), ~held)
    return connection.execute(delete(items).where(loose)).rowcount


def _create(connection: Connection, new: NewConversation, again: bool) -> None:
    one = new.conversation
    if again and connection.scalar(select(conversations.c.id).where(conversations.c.id == one.id)):
        return
    row = {"id": one.id, "principal": one.principal, "metadata": one.metadata, "created_at": one.created_at}
    connection.execute(insert(conversations), row)
    join_items(connection, one.id, _insert_loose(connection, one.principal, new.items), one.created_at)


def _update(connection: Connection, change: ConversationUpdate, _again: bool) -> StoredConversation | GatewayError:
    statement = update(conversations).where(is_live(change.principal, change.id)).values(metadata=change.metadata)
    row = connection.execute(statement.returning(conversations.c.created_at)).first()
    if row is None:
        return ConversationNotFound(change.id)
    return StoredConversation(
        id=change.id, principal=change.principal, created_at=row.created_at, metadata=change.metadata
    )


def _hide(connection: Connection, deletion: ConversationDeletion, again: bool) -> GatewayError | None:
    mine = (conversations.c.id == deletion.id, conversations.c.principal == deletion.principal)
    live = () if again else (conversations.c.deleted_at.is_(None),)
    hidden = connection.execute(update(conversations).where(*mine, *live).values(deleted_at=deletion.at)).rowcount
    return None if hidden else ConversationNotFound(deletion.id)


def _claim(connection: Connection, claim: ConversationClaim, _again: bool) -> GatewayError | None:
    if _find(connection, claim.principal, claim.id) is None:
        return ConversationNotFound(claim.id, param="conversation")
    if not claim_lease(connection, LeaseClaim(lease=claim.lease, seconds=claim.seconds)):
        return ConversationLocked(claim.id)
    return None


def _add(connection: Connection, addition: ConversationAddition, again: bool) -> GatewayError | None:
    if _find(connection, addition.principal, addition.id) is None:
        return ConversationNotFound(addition.id)
    ids = [item.id for item in addition.items]
    if again and _find_taken(connection, addition.id, ids):
        return None
    if not claim_lease(connection, LeaseClaim(lease=addition.lease, seconds=_MOMENT_SECONDS)):
        return ConversationLocked(addition.id)
    refusal = _refuse_ids(connection, addition.id, ids) or _refuse_size(connection, addition)
    if refusal is None:
        row_ids = _insert_loose(connection, addition.principal, addition.items)
        join_items(connection, addition.id, row_ids, addition.at)
    release_lease(connection, addition.lease)
    return refusal


def _remove(connection: Connection, removal: ItemRemoval, again: bool) -> StoredConversation | GatewayError:
    found = _find(connection, removal.principal, removal.id)
    if found is None:
        return ConversationNotFound(removal.id)
    if not claim_lease(connection, LeaseClaim(lease=removal.lease, seconds=_MOMENT_SECONDS)):
        return ConversationLocked(removal.id)
    row_ids = connection.scalars(_select_held(removal.id, items.c.row_id).where(items.c.id == removal.item_id)).all()
    here = and_(conversation_items.c.conversation_id == removal.id, conversation_items.c.item_row_id.in_(row_ids))
    connection.execute(delete(conversation_items).where(here))
    remove_loose(connection, row_ids)
    release_lease(connection, removal.lease)
    return found if row_ids or again else ItemNotFound(removal.item_id)


def _append(
    connection: Connection, turn: ConversationTurn, insert_responses: ResponseInsert, *, again: bool
) -> GatewayError | None:
    response = turn.response
    if again and _is_appended(connection, turn):
        return None
    # Whoever took it meanwhile has read the conversation without this turn.
    if not release_lease(connection, turn.lease):
        return ConversationLocked(turn.id)
    if _find(connection, response.principal, turn.id) is None:
        return ConversationNotFound(turn.id, param="conversation")
    if turn.stored:
        with DriverErrors(connection):
            insert_responses(connection, [response])
        of_response = select(items.c.row_id).where(items.c.response_id == response.id).order_by(items.c.position)
        row_ids: Sequence[int] = connection.scalars(of_response).all()
    else:
        row_ids = _insert_loose(connection, response.principal, response.items)
    join_items(connection, turn.id, row_ids, turn.at)
    return None


def _is_appended(connection: Connection, turn: ConversationTurn) -> bool:
    if turn.stored:
        return connection.scalar(select(responses.c.id).where(responses.c.id == turn.response.id)) is not None
    return bool(_find_taken(connection, turn.id, [item.id for item in turn.response.items[:1]]))


def _find(connection: Connection, principal: str, conversation_id: str) -> StoredConversation | None:
    """Return the live conversation, which nobody deletes before the transaction ends."""
    columns = (conversations.c.created_at, conversations.c.metadata)
    statement = select(*columns).where(is_live(principal, conversation_id)).with_for_update(read=True)
    row = connection.execute(statement).first()
    if row is None:
        return None
    return StoredConversation(id=conversation_id, principal=principal, created_at=row.created_at, metadata=row.metadata)


def _insert_loose(connection: Connection, principal: str, some: Sequence[StoredItem]) -> Sequence[int]:
    """Insert items that no response holds, and return their rows."""
    rows = [
        {
            "principal": principal,
            "position": position,
            "role": item.role,
            "type": item.type,
            "id": item.id,
            "call_id": item.call_id,
            "status": item.status,
            "agent": item.agent,
            "data": item.data,
        }
        for position, item in enumerate(some)
    ]
    if not rows:
        return ()
    statement = insert(items).returning(items.c.row_id, sort_by_parameter_order=True)
    return connection.scalars(statement, rows).all()


def _refuse_ids(connection: Connection, conversation_id: str, ids: Sequence[str]) -> InvalidRequest | None:
    taken = _find_taken(connection, conversation_id, ids)
    return next((duplicate_item(one, f"items[{place}].id") for place, one in enumerate(ids) if one in taken), None)


def _refuse_size(connection: Connection, addition: ConversationAddition) -> InvalidRequest | None:
    number, size = connection.execute(
        _select_held(addition.id, func.count(), func.coalesce(func.sum(func.length(items.c.data)), 0))
    ).one()
    added = sum([len(item.data) for item in addition.items])
    bounds = addition.bounds
    number += len(addition.items)
    return refuse_size(number, size + added, bounds.max_items, bounds.max_bytes, param="items")


def _find_taken(connection: Connection, conversation_id: str, ids: Sequence[str]) -> set[str]:
    return set(connection.scalars(_select_held(conversation_id, items.c.id).where(items.c.id.in_(ids))))


def _select_held(conversation_id: str, *columns: Any) -> Any:
    return (
        select(*columns)
        .join_from(conversation_items, items, items.c.row_id == conversation_items.c.item_row_id)
        .where(conversation_items.c.conversation_id == conversation_id)
    )
