"""What each owner had made: counts that several processes add up, and sums of them."""

from collections.abc import Sequence
from datetime import date
from typing import Any, Final, Literal

from msgspec import structs
from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from gateway.ports import UsageFlush
from gateway.storage.tables import usage

Facet = Literal["day", "model", "principal"]
COUNTS: Final = ("responses", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def add_usage(connection: Connection, flush: UsageFlush) -> None:
    """Add counts to those of their principal, day and model.

    A flush that was committed before, although nobody was told, adds nothing to rows that no other flush has reached
    since.

    Args:
        connection: inside a transaction.
        flush: the counts.
    """
    insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(usage)
    added = statement.excluded
    statement = statement.on_conflict_do_update(
        index_elements=list(usage.primary_key),
        set_={
            **{name: usage.c[name] + added[name] for name in COUNTS},
            "last_flush": added.last_flush,
        },
        where=usage.c.last_flush != added.last_flush,
    )
    rows = [{**structs.asdict(count), "last_flush": flush.id} for count in flush.counts]
    # In one order for all processes, or two could wait for each other.
    rows.sort(key=lambda row: (row["principal"], row["day"], row["model"]))
    if rows:
        connection.execute(statement, rows)


def sum_usage(
    connection: Connection, by: Sequence[Facet], *, principal: str | None = None, since: date | None = None
) -> list[dict[str, Any]]:
    """Return the sums for each value of the facets there is, in their order.

    Args:
        connection: of the database.
        by: what to tell apart; everything else is added up.
        principal: only what this one used.
        since: the first day that counts.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: the database does not answer.
    """
    facets = [usage.c[name] for name in by]
    sums = (func.sum(usage.c[name]).label(name) for name in COUNTS)
    query = select(*facets, *sums).group_by(*facets).order_by(*facets)
    if principal is not None:
        query = query.where(usage.c.principal == principal)
    if since is not None:
        query = query.where(usage.c.day >= since)
    return [
        {**row, **{name: int(row[name]) for name in COUNTS}} for row in map(dict, connection.execute(query).mappings())
    ]


def remove_usage(connection: Connection, principal: str) -> int:
    """Forget what a principal used; returns how many rows went.

    Args:
        connection: inside a transaction.
        principal: whose.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: the database refused.
    """
    return connection.execute(delete(usage).where(usage.c.principal == principal)).rowcount
