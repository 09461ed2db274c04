"""What is written of background responses, inside the transactions of the writer; all of it is compared and set."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from gateway.ports import (
    Claim,
    EventBatch,
    EventSweep,
    RunBegin,
    RunCancel,
    RunEnd,
    RunHandover,
    RunLog,
    RunStart,
    RunTakeover,
)
from gateway.protocol.errors import ConversationLocked, ConversationNotFound, GatewayError
from gateway.storage.conversation_changes import join_items
from gateway.storage.leases import release_lease
from gateway.storage.tables import background_events as events
from gateway.storage.tables import background_runs as runs
from gateway.storage.tables import conversations, items, responses

RunChange: TypeAlias = RunBegin | RunStart | RunLog | RunEnd | RunCancel | RunTakeover | RunHandover | EventSweep

# Of a process that gave up what it had.
_NOBODY = ""
_ROW_BYTES = 256


def begin_run(connection: Connection, begin: RunBegin, again: bool) -> None:
    """Store what goes on beside a response that has been inserted already."""
    response_id = begin.response.id
    if again and connection.execute(select(runs.c.response_id).where(runs.c.response_id == response_id)).first():
        return
    batch = begin.batch
    row = {
        "response_id": response_id,
        "holder": begin.holder,
        "attempt": 1,
        "starts": 0,
        "streams": batch is not None,
        "next_number": batch.next if batch else 0,
        "told": False,
        "swept": False,
        "request": begin.request,
        "trace": begin.trace,
    }
    connection.execute(insert(runs), row)
    _insert_events(connection, response_id, batch)


def start_run(connection: Connection, start: RunStart, again: bool) -> bool:
    """Compare and set: the response is being made."""
    if not _advance(connection, start.claim, {} if again else {"starts": runs.c.starts + 1}):
        return False
    mine = responses.c.id == start.claim.response_id
    connection.execute(update(responses).where(mine).values(status="in_progress", snapshot=start.snapshot))
    return True


def log_events(connection: Connection, log: RunLog, again: bool) -> bool:
    """Compare and set: the events are behind those that are stored."""
    if again and _has_events(connection, log.claim, log.batch):
        return True
    values = {"next_number": log.batch.next, **({"told": True} if log.told else {})}
    if not _advance(connection, log.claim, values):
        return False
    _insert_events(connection, log.claim.response_id, log.batch)
    return True


def end_run(connection: Connection, end: RunEnd, again: bool) -> bool | GatewayError:
    """Compare and set: the response has ended."""
    response_id = end.claim.response_id
    if again and _has_ended(connection, end):
        return True
    if (refusal := _give_up_conversation(connection, end)) is not None:
        return refusal
    # In the order in which retention locks the two rows.
    connection.execute(select(responses.c.id).where(responses.c.id == response_id).with_for_update())
    # The request may hold credentials of tools; nobody needs it any more.
    values: dict[str, Any] = {"ended_at": end.ended_at, "request": b""}
    if end.batch is not None:
        values["next_number"] = end.batch.next
    if not _advance(connection, end.claim, values):
        return False
    _insert_events(connection, response_id, end.batch)
    connection.execute(
        update(responses)
        .where(responses.c.id == response_id)
        .values(
            status=end.status,
            snapshot=end.snapshot,
            completed_at=end.completed_at,
            conversation_id=end.conversation_id,
            item_bytes=responses.c.item_bytes + sum(len(item.data) for item in end.items),
        )
    )
    _insert_items(connection, end)
    if end.conversation_id is not None:
        of_response = select(items.c.row_id).where(items.c.response_id == response_id).order_by(items.c.position)
        join_items(connection, end.conversation_id, connection.scalars(of_response).all(), end.ended_at)
    return True


def request_cancel(connection: Connection, cancel: RunCancel, again: bool) -> None:  # noqa: ARG001 - harmless twice
    """Note that the response is to end."""
    owned = select(responses.c.id).where(is_live(cancel.principal, cancel.response_id)).scalar_subquery()
    wanted = and_(runs.c.response_id == owned, runs.c.ended_at.is_(None), runs.c.cancel_requested_at.is_(None))
    connection.execute(update(runs).where(wanted).values(cancel_requested_at=cancel.at))


def take_over_run(connection: Connection, takeover: RunTakeover, again: bool) -> Claim | None:
    """Compare and set: the response is another process's."""
    claim = takeover.claim
    taken = Claim(response_id=claim.response_id, attempt=claim.attempt + 1)
    if _advance(connection, claim, {"holder": takeover.holder, "attempt": taken.attempt}):
        return taken
    mine = select(runs.c.attempt).where(is_claimed(taken), runs.c.holder == takeover.holder)
    return taken if again and connection.execute(mine).first() else None


def hand_over_runs(connection: Connection, handover: RunHandover, again: bool) -> None:  # noqa: ARG001 - harmless twice
    """Let nobody hold the responses."""
    for claim in handover.claims:
        _advance(connection, claim, {"holder": _NOBODY})


def sweep_events(connection: Connection, sweep: EventSweep, again: bool) -> int:  # noqa: ARG001 - harmless twice
    """Remove the events of responses that ended long ago."""
    old = (
        select(runs.c.response_id)
        .where(runs.c.streams, ~runs.c.swept, runs.c.ended_at < sweep.ended_before)
        .limit(sweep.limit)
        .with_for_update(skip_locked=True)
    )
    ids = connection.scalars(old).all()
    if ids:
        connection.execute(delete(events).where(events.c.response_id.in_(ids)))
        connection.execute(update(runs).where(runs.c.response_id.in_(ids)).values(swept=True))
    return len(ids)


RUN_ACTS: Final[dict[type, Callable[[Connection, Any, bool], object]]] = {
    RunBegin: begin_run,
    RunStart: start_run,
    RunLog: log_events,
    RunEnd: end_run,
    RunCancel: request_cancel,
    RunTakeover: take_over_run,
    RunHandover: hand_over_runs,
    EventSweep: sweep_events,
}
"""What carries out each kind of change, in a transaction; True says that it may have been carried out before."""


def measure_run(change: RunChange) -> int:
    """Return about how many bytes a change takes."""
    if isinstance(change, RunBegin):
        return change.response.size + len(change.request) + (len(change.batch.data) if change.batch else 0)
    if isinstance(change, RunEnd):
        return change.size + (len(change.batch.data) if change.batch else 0)
    return len(change.batch.data) if isinstance(change, RunLog) else _ROW_BYTES


def order_run(change: RunChange) -> str:
    """Return what names the row that a change locks first."""
    if isinstance(change, RunEnd) and change.lease is not None:
        return change.lease.name
    if isinstance(change, RunBegin):
        return change.response.id
    if isinstance(change, RunCancel):
        return change.response_id
    return "" if isinstance(change, EventSweep | RunHandover) else change.claim.response_id


def is_live(principal: str, response_id: str) -> ColumnElement[bool]:
    """Match the response, if it is the principal's and not deleted."""
    return and_(responses.c.id == response_id, responses.c.principal == principal, responses.c.deleted_at.is_(None))


def is_claimed(claim: Claim) -> ColumnElement[bool]:
    """Match the response, if the claim is the newest one and it has not ended."""
    return and_(runs.c.response_id == claim.response_id, runs.c.attempt == claim.attempt, runs.c.ended_at.is_(None))


def _give_up_conversation(connection: Connection, end: RunEnd) -> GatewayError | None:
    if end.conversation_id is None or end.lease is None:
        return None
    # Whoever took it meanwhile has read the conversation without this response.
    if not release_lease(connection, end.lease):
        return ConversationLocked(end.conversation_id)
    live = and_(conversations.c.id == end.conversation_id, conversations.c.deleted_at.is_(None))
    if connection.scalar(select(conversations.c.id).where(live)) is None:
        return ConversationNotFound(end.conversation_id, param="conversation")
    return None


def _advance(connection: Connection, claim: Claim, values: dict[str, Any]) -> bool:
    """Change the row of whoever has the newest claim; whoever waits for it looks at it afterwards."""
    changed = update(runs).where(is_claimed(claim)).values(values or {"attempt": claim.attempt})
    return connection.execute(changed).rowcount == 1


def _has_events(connection: Connection, claim: Claim, batch: EventBatch) -> bool:
    place = and_(events.c.response_id == claim.response_id, events.c.first == batch.first)
    return connection.scalar(select(events.c.data).where(place)) == batch.data


def _has_ended(connection: Connection, end: RunEnd) -> bool:
    ended = (
        select(responses.c.status)
        .join_from(responses, runs)
        .where(
            runs.c.response_id == end.claim.response_id,
            runs.c.attempt == end.claim.attempt,
            runs.c.ended_at == end.ended_at,
        )
    )
    return connection.scalar(ended) == end.status


def _insert_events(connection: Connection, response_id: str, batch: EventBatch | None) -> None:
    if batch is not None:
        row = {"response_id": response_id, "first": batch.first, "count": batch.count, "data": batch.data}
        connection.execute(insert(events), row)


def _insert_items(connection: Connection, end: RunEnd) -> None:
    if not end.items:
        return
    response_id = end.claim.response_id
    last = connection.scalar(select(func.max(items.c.position)).where(items.c.response_id == response_id))
    principal = connection.scalar(select(responses.c.principal).where(responses.c.id == response_id))
    first = 0 if last is None else last + 1
    connection.execute(
        insert(items),
        [
            {
                "response_id": response_id,
                "position": position,
                "principal": principal,
                "role": item.role,
                "type": item.type,
                "id": item.id,
                "call_id": item.call_id,
                "status": item.status,
                "agent": item.agent,
                "data": item.data,
            }
            for position, item in enumerate(end.items, first)
        ],
    )
