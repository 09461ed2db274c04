"""Background responses in the database."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, exists, or_, select

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
from gateway.storage.background_changes import RunChange, is_claimed, is_live
from gateway.storage.leases import database_now
from gateway.storage.tables import background_events as events
from gateway.storage.tables import background_runs as runs
from gateway.storage.tables import leases, responses

T = TypeVar("T")
Read = Callable[[str, Callable[[Connection], T]], Awaitable[T]]


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
        query = select(*columns).join_from(responses, runs).where(is_live(principal, response_id))

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
            .where(is_live(principal, response_id), events.c.first + events.c.count > after + 1)
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
            .where(is_claimed(claim))
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
