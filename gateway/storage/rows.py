"""Responses as rows and back."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

from msgspec import Struct, structs
from sqlalchemy import Connection, Dialect, Insert, Row, Select, bindparam, case, func, insert, select, update
from sqlalchemy.engine.interfaces import DBAPICursor

from gateway.ports import Deletion, StoredAgent, StoredItem, StoredResponse
from gateway.storage.tables import (
    CallerText,
    agents,
    belongs_to,
    conversations,
    escape_text,
    items,
    responses,
)

ITEM_COLUMNS = (
    items.c.role,
    items.c.type,
    items.c.id.label("item_id"),
    items.c.data,
    items.c.call_id,
    items.c.status.label("item_status"),
    items.c.agent,
)

AGENT_COLUMNS = (agents.c.path, agents.c.parent_path, agents.c.status, agents.c.state)

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
# What most responses are: it begins a chain, so that there is no root to be looked up.
_INSERT_ROOT = insert(responses)
_INSERT_AGENT = insert(agents)
# Inline: nobody wants the new row numbers back.
_INSERT_ITEM = insert(items).inline()
# What the values of rows are called, in the order in which they are put together: that of the columns, mostly.
_COMMON_NAMES = ("status", "model", "created_at", "completed_at", "item_bytes", "snapshot")
_ROOT_NAMES = ("id", "principal", "root_id", *_COMMON_NAMES)
_RESPONSE_NAMES = (
    *("id", "principal", "parent_id", "conversation_id", *_COMMON_NAMES),
    # Columns cannot lend their parameters to an expression.
    *("tree_self", "tree_owner", "tree_parent"),
)
_TREE_NAMES = (*_RESPONSE_NAMES, "agent_bytes")
_ITEM_NAMES = ("response_id", "position", "principal", "role", "type", "id", "call_id", "status", "agent", "data")
_AGENT_NAMES = ("response_id", "position", "path", "parent_path", "status", "state")

_Row: TypeAlias = tuple[object, ...]
_RowBuilder: TypeAlias = Callable[[StoredResponse], _Row]


class ResponseInsert:
    """Inserts responses, items and agents: statements that are compiled once and go to the driver as they are.

    There are two of them where no response is of a tree of agents. SQLAlchemy's own execution costs several times what
    the database does with a small row.

    Args:
        dialect: of the database.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._responses: dict[_RowBuilder, _Prepared] = {
            _root_row: _Prepared(_INSERT_ROOT, _ROOT_NAMES, dialect),
            _response_row: _Prepared(_INSERT_RESPONSE, _RESPONSE_NAMES, dialect),
            _tree_row: _Prepared(_INSERT_RESPONSE, _TREE_NAMES, dialect),
        }
        self._item = _Prepared(_INSERT_ITEM, _ITEM_NAMES, dialect)
        self._agent = _Prepared(_INSERT_AGENT, _AGENT_NAMES, dialect)

    def __call__(self, connection: Connection, batch: Sequence[StoredResponse]) -> None:
        """Insert the responses in order, then all their items and agents; raises the driver's own errors.

        Args:
            connection: in a transaction, or in none: the driver begins one then, which is the caller's to end.
            batch: the responses.
        """
        batch = list(map(_escape_response, batch))
        cursor = connection.connection.cursor()
        try:
            for build_row, some in groupby(batch, _choose_row):
                self._responses[build_row].execute(cursor, list(map(build_row, some)))
            self._item.execute(cursor, _build_item_rows(batch))
            self._agent.execute(cursor, _build_agent_rows([one for one in batch if one.agents]))
        finally:
            cursor.close()


class _Prepared:
    """An INSERT as text, and the order its driver wants the values in.

    Args:
        statement: the INSERT.
        names: its parameters, most of them columns, in the order of the values in a row.
        dialect: of the database.
    """

    def __init__(self, statement: Insert, names: Sequence[str], dialect: Dialect) -> None:
        columns = [name for name in names if name in statement.table.c]
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        self._text = str(compiled)
        self._arrange: Callable[[_Row], Any]
        if compiled.positiontup is None:
            # Drivers that take parameters by name get them so.
            self._arrange = lambda row: dict(zip(names, row, strict=True))
        elif tuple(compiled.positiontup) == names:
            self._arrange = tuple
        else:
            self._arrange = itemgetter(*map(names.index, compiled.positiontup))

    def execute(self, cursor: DBAPICursor, rows: Sequence[_Row]) -> None:
        """Insert the rows, if there are any."""
        if rows:
            cursor.executemany(self._text, list(map(self._arrange, rows)))


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


def sum_bytes(connection: Connection, principal: str) -> int:
    """Return the bytes of all snapshots, items and agents of a principal, those of what is hidden included."""
    size = func.sum(
        responses.c.item_bytes + func.coalesce(responses.c.agent_bytes, 0) + func.length(responses.c.snapshot)
    )
    kept = select(size).where(belongs_to(responses, principal)).scalar_subquery()
    loose = select(func.sum(func.length(items.c.data))).where(
        items.c.principal == principal, items.c.response_id.is_(None)
    )
    noted = select(func.sum(func.length(conversations.c.metadata))).where(conversations.c.principal == principal)
    parts = (kept, loose.scalar_subquery(), noted.scalar_subquery())
    return sum(int(part or 0) for part in connection.execute(select(*parts)).one())


def select_response() -> Select[*tuple[Any, ...]]:
    """Build the query for one live response (`:principal`, `:response_id`): one row for each item, or one in all.

    The snapshot comes with the first row only, not once for every item.
    """
    snapshot = case((func.coalesce(items.c.position, 0) == 0, responses.c.snapshot))
    return (
        select(
            *ITEM_COLUMNS,
            snapshot.label("snapshot"),
            *(
                column
                for column in responses.c
                if column.name not in {"snapshot", "root_id", "item_bytes", "agent_bytes"}
            ),
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


def build_agents(rows: Sequence[Row[*tuple[Any, ...]]]) -> tuple[StoredAgent, ...]:
    """Build the agents from rows that begin with `AGENT_COLUMNS`."""
    return tuple(
        StoredAgent(path=path, parent_path=parent_path, status=status, state=state)
        for path, parent_path, status, state, *_ in rows
    )


def count_agent_bytes(agents: Iterable[StoredAgent]) -> int:
    """Return the size of the agents' states in bytes."""
    return sum([len(agent.state) for agent in agents])


def count_item_bytes(response: StoredResponse) -> int:
    """Return the size of the items' JSON in bytes."""
    return sum([len(item.data) for item in response.items])


def _choose_row(response: StoredResponse) -> _RowBuilder:
    """Return what makes the row of a response."""
    if response.agents is not None:
        return _tree_row
    return _root_row if response.parent_id is None and response.conversation_id is None else _response_row


def _escape_response(response: StoredResponse) -> StoredResponse:
    """Return a response with its texts as columns of `CallerText` hold them; most need nothing for that."""
    texts = [response.id, response.principal, response.parent_id or "", response.conversation_id or "", response.model]
    for item in response.items:
        texts += (item.type, item.id, item.call_id or "", item.status or "", item.agent)
    joined = "".join(texts)
    if escape_text(joined) is joined and response.agents is None:
        return response
    return structs.replace(
        response,
        **_escape_members(response, "id", "principal", "parent_id", "conversation_id", "model"),
        items=[
            structs.replace(item, **_escape_members(item, "type", "id", "call_id", "status", "agent"))
            for item in response.items
        ],
        agents=response.agents
        and [structs.replace(agent, **_escape_members(agent, "path", "parent_path")) for agent in response.agents],
    )


def _escape_members(part: Struct, *names: str) -> dict[str, str | None]:
    return {name: escape_text(getattr(part, name)) for name in names}


def _root_row(response: StoredResponse) -> _Row:
    return (response.id, response.principal, response.id, *_common_values(response))


def _response_row(response: StoredResponse) -> _Row:
    return (
        *(response.id, response.principal, response.parent_id, response.conversation_id, *_common_values(response)),
        *(response.id, response.principal, response.parent_id),
    )


def _tree_row(response: StoredResponse) -> _Row:
    return (*_response_row(response), count_agent_bytes(response.agents or ()))


def _common_values(response: StoredResponse) -> _Row:
    return (
        response.status,
        response.model,
        response.created_at,
        response.completed_at,
        count_item_bytes(response),
        # Text is refused in its place, which a database would take; and sqlite3 searches an adapter for plain bytes.
        bytearray(response.snapshot),
    )


def _build_item_rows(batch: Sequence[StoredResponse]) -> list[_Row]:
    return [
        (
            response.id,
            position,
            response.principal,
            item.role,
            item.type,
            item.id,
            item.call_id,
            item.status,
            item.agent,
            bytearray(item.data),
        )
        for response in batch
        for position, item in enumerate(response.items)
    ]


def _build_agent_rows(batch: Sequence[StoredResponse]) -> list[_Row]:
    return [
        (response.id, position, agent.path, agent.parent_path, agent.status, bytearray(agent.state))
        for response in batch
        for position, agent in enumerate(response.agents or ())
    ]
