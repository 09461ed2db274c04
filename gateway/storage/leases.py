"""Leases in a table, and their twin in memory."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Dialect, Integer, and_, delete, literal, literal_column, or_, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.ports import Lease, LeaseClaim, LeaseRelease, LeaseRenewal
from gateway.storage.tables import leases

_MILLISECONDS = 1000
# Not the time at which the transaction began: it may have waited for a lock since.
_NOW = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}


class SqlLeases:
    """`ports.Leases` in the database.

    Args:
        write: carries out a change with others in one transaction, and returns what came of it.
    """

    def __init__(self, write: Callable[[LeaseClaim | LeaseRenewal | LeaseRelease], Awaitable[Any]]) -> None:
        self._write = write

    async def acquire(self, lease: Lease, seconds: float) -> bool:
        """Take a lease that nobody holds; as `ports.Leases`."""
        return bool(await self._write(LeaseClaim(lease=lease, seconds=seconds)))

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Keep a lease; as `ports.Leases`."""
        return bool(await self._write(LeaseRenewal(lease=lease, seconds=seconds)))

    async def release(self, lease: Lease) -> None:
        """Give a lease up; as `ports.Leases`."""
        await self._write(LeaseRelease(lease=lease))


def claim_lease(connection: Connection, claim: LeaseClaim) -> bool:
    """Compare and set: take the lease unless another holds it; tells whether it is the holder's.

    Args:
        connection: inside a transaction, until whose end nobody else gets an answer about this lease.
        claim: who wants which lease, and for how long.
    """
    insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    now = database_now(connection.dialect)
    statement = insert(leases).values(
        name=claim.lease.name, holder=claim.lease.holder, expires_at=_end_after(claim.seconds, now)
    )
    wanted = statement.excluded
    statement = statement.on_conflict_do_update(
        index_elements=[leases.c.name],
        set_={"holder": wanted.holder, "expires_at": wanted.expires_at},
        where=or_(leases.c.expires_at <= now, leases.c.holder == wanted.holder),
    )
    return connection.execute(statement.returning(leases.c.name)).first() is not None


def renew_lease(connection: Connection, renewal: LeaseRenewal) -> bool:
    """Move the end of the lease; tells whether it is still the holder's."""
    end = _end_after(renewal.seconds, database_now(connection.dialect))
    return connection.execute(update(leases).where(_is_held(renewal.lease)).values(expires_at=end)).rowcount == 1


def release_lease(connection: Connection, lease: Lease) -> bool:
    """Give the lease up; tells whether it was the holder's until now."""
    return connection.execute(delete(leases).where(_is_held(lease))).rowcount == 1


def remove_expired(connection: Connection, *, grace_seconds: float) -> int:
    """Remove leases that ended so long ago and that nobody wanted since; returns how many."""
    before = database_now(connection.dialect) - literal(int(grace_seconds * _MILLISECONDS), leases.c.expires_at.type)
    return connection.execute(delete(leases).where(leases.c.expires_at < before)).rowcount


def database_now(dialect: Dialect) -> ColumnElement[int]:
    """Return the database's own time, in milliseconds since the Unix epoch."""
    return literal_column(_NOW[dialect.name], Integer)


def _end_after(seconds: float, now: ColumnElement[int]) -> ColumnElement[int]:
    return now + literal(int(seconds * _MILLISECONDS), leases.c.expires_at.type)


def _is_held(lease: Lease) -> ColumnElement[bool]:
    return and_(leases.c.name == lease.name, leases.c.holder == lease.holder)


class MemoryLeases:
    """`ports.Leases` in a dictionary.

    Args:
        monotonic: seconds on a clock that never goes back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._held: dict[str, tuple[str, float]] = {}

    async def acquire(self, lease: Lease, seconds: float) -> bool:
        """Take a lease that nobody holds; as `ports.Leases`."""
        return self.claim(lease, seconds)

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Keep a lease; as `ports.Leases`."""
        return self.holds(lease) and self.claim(lease, seconds)

    async def release(self, lease: Lease) -> None:
        """Give a lease up; as `ports.Leases`."""
        self.give_up(lease)

    def claim(self, lease: Lease, seconds: float) -> bool:
        """Take a lease unless another holds it, now."""
        holder, ends = self._held.get(lease.name, (lease.holder, 0.0))
        if holder != lease.holder and ends > self._monotonic():
            return False
        self._held[lease.name] = (lease.holder, self._monotonic() + seconds)
        return True

    def holds(self, lease: Lease) -> bool:
        """Tell whether the lease is still its holder's."""
        return self._held.get(lease.name, ("", 0.0))[0] == lease.holder

    def give_up(self, lease: Lease) -> bool:
        """Give a lease up, now; tells whether it was the holder's."""
        held = self.holds(lease)
        if held:
            del self._held[lease.name]
        return held
