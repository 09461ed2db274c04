"""The tables. What each column is for is told in `docs/explanation/storage.md`."""

import re
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Date,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    and_,
    func,
    literal_column,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from gateway.ports import LOCAL

_UNSTORABLE = re.compile("[\x00\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def escape_text(text: str | None) -> str | None:
    """Return text as columns of `CallerText` hold it."""
    if text is None or (text.isascii() and "\\" not in text and "\0" not in text):
        return text
    return _UNSTORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class CallerText(TypeDecorator[str]):
    r"""Text that a caller may have chosen: any Python string, in any database.

    PostgreSQL text holds no NUL and no driver encodes a lone surrogate, so both, and the backslash that marks them,
    are stored as `\\uXXXX`. The mapping is one to one: equality, indexes and foreign keys work on the stored form.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Sort PostgreSQL columns bytewise, so that no index depends on the system's locale data."""
        return Text(collation="C" if dialect.name == "postgresql" else None)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Escape on the way in."""
        return escape_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Unescape on the way out."""
        if value is None or "\\" not in value:
            return value
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)


# SQLite numbers rows by itself only where the key is exactly INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", CallerText, primary_key=True),
    Column("principal", CallerText, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
)
Index("ix_conversations_principal_id", conversations.c.principal, conversations.c.id)

responses = Table(
    "responses",
    metadata,
    Column("id", CallerText, primary_key=True),
    Column("principal", CallerText, nullable=False),
    Column("parent_id", CallerText, ForeignKey("responses.id")),
    Column("root_id", CallerText, nullable=False),
    Column("conversation_id", CallerText, ForeignKey("conversations.id", ondelete="SET NULL")),
    Column("status", Text, nullable=False),
    Column("model", CallerText, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("completed_at", BigInteger),
    Column("deleted_at", BigInteger),
    Column("item_bytes", BigInteger, nullable=False),
    Column("snapshot", LargeBinary, nullable=False),
    # NULL, unless a tree of agents made it.
    Column("agent_bytes", BigInteger),
)
# While callers are not told apart, all rows belong to one principal, and an index on that would only cost.
_is_told_apart = responses.c.principal != literal_column(f"'{LOCAL.principal}'")
Index(
    "ix_responses_owners",
    responses.c.principal,
    responses.c.id,
    sqlite_where=_is_told_apart,
    postgresql_where=_is_told_apart,
)
# Partial, so that SQLite never takes the index of the children to find the roots.
for _column in (
    *(responses.c.parent_id, responses.c.conversation_id, responses.c.deleted_at),
    conversations.c.deleted_at,
):
    Index(None, _column, sqlite_where=_column.is_not(None), postgresql_where=_column.is_not(None))
# Those behind the first of a chain; the first is found by its id, and most responses are one.
IS_DESCENDANT = responses.c.parent_id.is_not(None)
Index(
    "ix_responses_descendants",
    responses.c.root_id,
    responses.c.created_at,
    sqlite_where=IS_DESCENDANT,
    postgresql_where=IS_DESCENDANT,
)
_is_root = responses.c.parent_id.is_(None)
Index("ix_responses_roots", responses.c.created_at, sqlite_where=_is_root, postgresql_where=_is_root)


def belongs_to(table: Table, principal: str) -> ColumnElement[bool]:
    """Return what holds of the rows of a principal, in the words that let the database use the index of owners."""
    owned: ColumnElement[bool] = table.c.principal == principal
    return and_(owned, _is_told_apart) if table is responses and principal != LOCAL.principal else owned


items = Table(
    "items",
    metadata,
    Column("row_id", RowId, primary_key=True),
    Column("response_id", CallerText, ForeignKey("responses.id", ondelete="SET NULL")),
    Column("position", Integer, nullable=False),
    Column("principal", CallerText, nullable=False),
    Column("role", Text, nullable=False),
    Column("type", CallerText, nullable=False),
    Column("id", CallerText, nullable=False),
    Column("call_id", CallerText),
    Column("status", CallerText),
    Column("agent", CallerText, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
Index(None, items.c.response_id, items.c.position, unique=True)

# PostgreSQL refuses index entries of more than some 2,700 bytes, and callers choose ids; the numbers are no parameters
# because a query must repeat the condition literally to use the index.
HAS_SHORT_ID = and_(
    func.length(items.c.id) <= literal_column("64"), func.length(items.c.principal) <= literal_column("255")
)
Index(None, items.c.principal, items.c.id, sqlite_where=HAS_SHORT_ID, postgresql_where=HAS_SHORT_ID)
# What no response holds any more, or ever did.
_is_loose = items.c.response_id.is_(None)
Index("ix_items_loose", items.c.principal, sqlite_where=_is_loose, postgresql_where=_is_loose)

conversation_items = Table(
    "conversation_items",
    metadata,
    Column("conversation_id", CallerText, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("item_row_id", RowId, ForeignKey("items.row_id"), nullable=False, index=True),
    Column("created_at", BigInteger, nullable=False),
)

agents = Table(
    "agents",
    metadata,
    Column("response_id", CallerText, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("path", CallerText, nullable=False),
    Column("parent_path", CallerText),
    Column("status", Text, nullable=False),
    Column("state", LargeBinary, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", CallerText, primary_key=True),
    Column("principal", CallerText, nullable=False),
    Column("name", CallerText, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
)

usage = Table(
    "usage",
    metadata,
    Column("principal", CallerText, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("model", CallerText, primary_key=True),
    Column("responses", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("last_flush", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", CallerText, primary_key=True),
    Column("holder", CallerText, nullable=False),
    # Milliseconds of the database's clock since the Unix epoch.
    Column("expires_at", BigInteger, nullable=False),
)

background_runs = Table(
    "background_runs",
    metadata,
    Column("response_id", CallerText, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("holder", CallerText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("streams", Boolean, nullable=False),
    Column("next_number", BigInteger, nullable=False),
    Column("told", Boolean, nullable=False),
    Column("swept", Boolean, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("trace", Text),
    Column("cancel_requested_at", BigInteger),
    Column("ended_at", BigInteger),
)
_is_unfinished, _is_kept = background_runs.c.ended_at.is_(None), ~background_runs.c.swept
Index(
    "ix_background_runs_unfinished",
    background_runs.c.holder,
    sqlite_where=_is_unfinished,
    postgresql_where=_is_unfinished,
)
Index("ix_background_runs_kept", background_runs.c.ended_at, sqlite_where=_is_kept, postgresql_where=_is_kept)

background_events = Table(
    "background_events",
    metadata,
    Column("response_id", CallerText, ForeignKey("background_runs.response_id", ondelete="CASCADE"), primary_key=True),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
