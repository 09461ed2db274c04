"""Background responses in the database: what is compared and set, and what is read."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, or_, select, update

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
    RunState,
    RunTakeover,
    UnfinishedRun,
)
from gateway.storage.leases import database_now
from gateway.storage.tables import background_events as events
from gateway.storage.tables import background_runs as runs
from gateway.storage.tables import items, leases, responses

T = TypeVar("T")
Read = Callable[[str, Callable[[Connection], T]], Awaitable[T]]
RunChange = RunBegin | RunStart | RunLog | RunEnd | RunCancel | RunTakeover | RunHandover | EventSweep

# Of a process that gave up what it had.
_NOBODY = ""
_ROW_BYTES = 256


class SqlRuns:
    """`ports.BackgroundRuns` in the database.

    Args:
        write: carries out a change with others in one transaction, and returns what came of it.
        read: runs a query by name.
    """

    def __init__(self, write: Callable[[RunChange], Awaitable[Any]], read: Read[Any]) -> None:
        self._write = write
        self._read = read

    async def begin(self, begin: RunBegin) -> None:
        """Store a response that waits; as `ports.BackgroundRuns`."""
        await self._write(begin)

    async def start(self, start: RunStart) -> bool:
        """Store that it is being made; as `ports.BackgroundRuns`."""
        return bool(await self._write(start))

    async def log(self, log: RunLog) -> bool:
        """Store events; as `ports.BackgroundRuns`."""
        return bool(await self._write(log))

    async def end(self, end: RunEnd) -> bool:
        """Store how it ended; as `ports.BackgroundRuns`."""
        return bool(await self._write(end))

    async def cancel(self, cancel: RunCancel) -> None:
        """Note that it is to end; as `ports.BackgroundRuns`."""
        await self._write(cancel)

    async def take_over(self, takeover: RunTakeover) -> Claim | None:
        """Take a response over; as `ports.BackgroundRuns`."""
        taken: Claim | None = await self._write(takeover)
        return taken

    async def hand_over(self, handover: RunHandover) -> None:
        """Let others take over; as `ports.BackgroundRuns`."""
        if handover.claims:
            await self._write(handover)

    async def sweep(self, sweep: EventSweep) -> int:
        """Remove events; as `ports.BackgroundRuns`."""
        return int(await self._write(sweep))

    async def state(self, principal: str, response_id: str) -> RunState | None:
        """Return how far a response is; as `ports.BackgroundRuns`."""
        columns = (responses.c.status, runs.c.ended_at, runs.c.streams, runs.c.next_number, runs.c.swept)
        query = select(*columns).join_from(responses, runs).where(_is_live(principal, response_id))

        def read(connection: Connection) -> RunState | None:
            row = connection.execute(query).first()
            if row is None:
                return None
            status, ended_at, streams, number, swept = row
            return RunState(status=status, ended=ended_at is not None, streams=streams, next_number=number, swept=swept)

        state: RunState | None = await self._read("background_state", read)
        return state

    async def events(self, principal: str, response_id: str, after: int, *, limit: int) -> Sequence[EventBatch]:
        """Return the next batches of events; as `ports.BackgroundRuns`."""
        query = (
            select(events.c.first, events.c.count, events.c.data)
            .join_from(responses, events, events.c.response_id == responses.c.id)
            .where(_is_live(principal, response_id), events.c.first + events.c.count > after + 1)
            .order_by(events.c.first)
            .limit(limit)
        )

        def read(connection: Connection) -> Sequence[EventBatch]:
            rows = connection.execute(query)
            return [EventBatch(first=first, count=count, data=data) for first, count, data in rows]

        found: Sequence[EventBatch] = await self._read("background_events", read)
        return found

    async def find_cancelled(self, holder: str) -> Sequence[str]:
        """Return what is to end; as `ports.BackgroundRuns`."""
        query = (
            select(runs.c.response_id)
            .join_from(runs, responses)
            .where(
                runs.c.holder == holder,
                runs.c.ended_at.is_(None),
                or_(runs.c.cancel_requested_at.is_not(None), responses.c.deleted_at.is_not(None)),
            )
        )
        found: Sequence[str] = await self._read("background_cancelled", lambda one: one.scalars(query).all())
        return found

    async def find_orphans(self, holder: str, *, limit: int) -> Sequence[Claim]:
        """Return what can be taken over; as `ports.BackgroundRuns`."""

        def read(connection: Connection) -> Sequence[Claim]:
            alive = exists().where(
                leases.c.name == runs.c.holder, leases.c.expires_at > database_now(connection.dialect)
            )
            query = (
                select(runs.c.response_id, runs.c.attempt)
                .where(runs.c.ended_at.is_(None), or_(runs.c.holder == holder, ~alive))
                .order_by(runs.c.response_id)
                .limit(limit)
            )
            return [Claim(response_id=found, attempt=attempt) for found, attempt in connection.execute(query)]

        found: Sequence[Claim] = await self._read("background_orphans", read)
        return found

    async def load(self, claim: Claim) -> UnfinishedRun | None:
        """Return what a response is made from; as `ports.BackgroundRuns`."""
        query = (
            select(
                *(responses.c.principal, responses.c.created_at, responses.c.snapshot, responses.c.deleted_at),
                *(runs.c.request, runs.c.streams, runs.c.next_number, runs.c.told, runs.c.starts),
                *(runs.c.cancel_requested_at, runs.c.trace),
            )
            .join_from(runs, responses)
            .where(_is_claimed(claim))
        )

        def read(connection: Connection) -> UnfinishedRun | None:
            row = connection.execute(query).first()
            if row is None:
                return None
            return UnfinishedRun(
                claim=claim,
                principal=row.principal,
                created_at=row.created_at,
                request=row.request,
                snapshot=row.snapshot,
                streams=row.streams,
                next_number=row.next_number,
                told=row.told,
                starts=row.starts,
                cancelled=row.cancel_requested_at is not None or row.deleted_at is not None,
                trace=row.trace,
            )

        found: UnfinishedRun | None = await self._read("background_run", read)
        return found


# ---------------------------------------------------------------- what one transaction does


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


def end_run(connection: Connection, end: RunEnd, again: bool) -> bool:
    """Compare and set: the response has ended."""
    response_id = end.claim.response_id
    # In the order in which retention locks the two rows.
    connection.execute(select(responses.c.id).where(responses.c.id == response_id).with_for_update())
    # The request may hold credentials of tools; nobody needs it any more.
    values: dict[str, Any] = {"ended_at": end.ended_at, "request": b""}
    if end.batch is not None:
        values["next_number"] = end.batch.next
    if not _advance(connection, end.claim, values):
        return again and _has_ended(connection, end)
    _insert_events(connection, response_id, end.batch)
    connection.execute(
        update(responses)
        .where(responses.c.id == response_id)
        .values(
            status=end.status,
            snapshot=end.snapshot,
            completed_at=end.completed_at,
            item_bytes=responses.c.item_bytes + sum(len(item.data) for item in end.items),
        )
    )
    _insert_items(connection, end)
    return True


def request_cancel(connection: Connection, cancel: RunCancel, again: bool) -> None:  # noqa: ARG001 - harmless twice
    """Note that the response is to end."""
    owned = select(responses.c.id).where(_is_live(cancel.principal, cancel.response_id)).scalar_subquery()
    wanted = and_(runs.c.response_id == owned, runs.c.ended_at.is_(None), runs.c.cancel_requested_at.is_(None))
    connection.execute(update(runs).where(wanted).values(cancel_requested_at=cancel.at))


def take_over_run(connection: Connection, takeover: RunTakeover, again: bool) -> Claim | None:
    """Compare and set: the response is another process's."""
    claim = takeover.claim
    taken = Claim(response_id=claim.response_id, attempt=claim.attempt + 1)
    if _advance(connection, claim, {"holder": takeover.holder, "attempt": taken.attempt}):
        return taken
    mine = select(runs.c.attempt).where(_is_claimed(taken), runs.c.holder == takeover.holder)
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
    """Return what names the row that a change locks."""
    if isinstance(change, RunBegin):
        return change.response.id
    if isinstance(change, RunCancel):
        return change.response_id
    return "" if isinstance(change, EventSweep | RunHandover) else change.claim.response_id


# ---------------------------------------------------------------- inside


def _is_live(principal: str, response_id: str) -> ColumnElement[bool]:
    return and_(responses.c.id == response_id, responses.c.principal == principal, responses.c.deleted_at.is_(None))


def _is_claimed(claim: Claim) -> ColumnElement[bool]:
    return and_(runs.c.response_id == claim.response_id, runs.c.attempt == claim.attempt, runs.c.ended_at.is_(None))


def _advance(connection: Connection, claim: Claim, values: dict[str, Any]) -> bool:
    """Change the row of whoever has the newest claim; whoever waits for it looks at it afterwards."""
    changed = update(runs).where(_is_claimed(claim)).values(values or {"attempt": claim.attempt})
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
