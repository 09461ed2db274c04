"""Callers' keys in the database, which any number of gateways share."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, func, insert, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from gateway.ports import ApiKey, KeysUnreadable
from gateway.storage.engine import create_file, open_engine
from gateway.storage.faults import StorageNotReady, explain_fault
from gateway.storage.migrations import SchemaGate
from gateway.storage.settings import StoreSettings
from gateway.storage.tables import api_keys

_COLUMNS = [api_keys.c[name] for name in ApiKey.__struct_fields__]
# A key is made once and revoked once, and its row stays: both numbers only grow.
_STATE = select(func.count(), func.count(api_keys.c.revoked_at)).select_from(api_keys)


class KeyTable:
    """`ports.KeyBook` in SQLite or PostgreSQL, with a connection of its own; connects to nothing yet.

    Args:
        settings: the database, and how long it may take to answer.
        max_keys: most keys that may count at once.

    Raises:
        StorageNotReady: the PostgreSQL driver is not installed.
    """

    def __init__(self, settings: StoreSettings, *, max_keys: int) -> None:
        self._settings = settings
        self._max_keys = max_keys
        self._engine: Engine = open_engine(settings)
        self._state: Row[int, int] | None = None
        self._keys: Mapping[str, ApiKey] = {}
        self._gate = SchemaGate(self._engine, migrates=settings.migrates_on_start)

    def read(self) -> Mapping[str, ApiKey]:
        """Return the keys that count; where none was made or revoked since, one count of the rows tells so.

        Raises:
            KeysUnreadable: the database does not answer, its schema does not fit, or there are too many keys.
        """
        with self._transaction() as connection:
            state = connection.execute(_STATE).one()
            if state == self._state:
                return self._keys
            rows = connection.execute(select(*_COLUMNS).where(_is_live()).limit(self._max_keys + 1)).all()
        if len(rows) > self._max_keys:
            raise KeysUnreadable(f"The database holds more keys than [auth] keys_max ({self._max_keys}).")
        self._keys, self._state = {row.id: ApiKey(**row._asdict()) for row in rows}, state
        return self._keys

    def list_all(self) -> Sequence[ApiKey]:
        """Return every key, the oldest first.

        Raises:
            KeysUnreadable: as `read`.
        """
        with self._transaction() as connection:
            rows = connection.execute(select(*_COLUMNS).order_by(api_keys.c.created_at, api_keys.c.id)).all()
        return [ApiKey(**row._asdict()) for row in rows]

    def add(self, key: ApiKey) -> None:
        """Insert a key.

        Raises:
            KeysUnreadable: as `read`, or the database takes no writes.
        """
        with self._transaction() as connection:
            live = connection.scalar(select(func.count()).select_from(api_keys).where(_is_live())) or 0
            if live >= self._max_keys:
                raise KeysUnreadable(
                    f"The database holds as many keys as [auth] keys_max allows ({self._max_keys}); revoke one first."
                )
            values = {name: getattr(key, name) for name in ApiKey.__struct_fields__}
            connection.execute(insert(api_keys).values(values))

    def revoke(self, key_id: str, at: int) -> ApiKey | None:
        """Mark a key as revoked; None if there is none of that id.

        Raises:
            KeysUnreadable: as `add`.
        """
        with self._transaction() as connection:
            named = api_keys.c.id == key_id
            connection.execute(update(api_keys).where(named, api_keys.c.revoked_at.is_(None)).values(revoked_at=at))
            row = connection.execute(select(*_COLUMNS).where(named)).first()
        return None if row is None else ApiKey(**row._asdict())

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            if self._settings.migrates_on_start and self._gate.revision is None:
                create_file(self._settings.url)
            self._gate.ensure()
            with self._engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, StorageNotReady) as error:
            raise KeysUnreadable(explain_fault(error)) from error


def _is_live() -> ColumnElement[bool]:
    return and_(
        api_keys.c.revoked_at.is_(None),
        or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > int(time.time())),
    )
