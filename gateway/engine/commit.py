"""Makes a finished response durable, and continuable: everything here happens before its terminal event leaves."""

import time
from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any

from msgspec import Struct, structs

from gateway.engine.room import Room
from gateway.engine.session import Checkpoint, Continuation
from gateway.ports import Ids, Store, StoredItem, StoredResponse
from gateway.protocol import codec
from gateway.protocol.errors import StorageUnavailable
from gateway.protocol.ids import prefix_of
from gateway.protocol.response import EncodedResponse
from gateway.telemetry.metrics import Metrics


class Lineage(Struct, frozen=True, kw_only=True):
    """What a response continues, and where that is known.

    Attributes:
        history: its effective input before its own, oldest first.
        parent_id: the response it continues, if the database has that.
        continuation: the session of its connection, if there is one.
    """

    history: Sequence[StoredItem] = ()
    parent_id: str | None = None
    continuation: Continuation | None = None


class Committer:
    """Writes responses to the store, and to the session of their connection.

    Args:
        store: where to.
        ids: mints ids for input items that came without one.
        metrics: time and failures of appends.
        room: told what was stored.
    """

    def __init__(self, store: Store, ids: Ids, metrics: Metrics, room: Room) -> None:
        self._store = store
        self._ids = ids
        self._metrics = metrics
        self._room = room

    async def commit(
        self, principal: str, finished: EncodedResponse, inputs: Sequence[dict[str, Any]], lineage: Lineage
    ) -> None:
        """Persist a response with its new input and its output, as far as it is to be kept.

        Returns after the database has committed; only then can the connection continue it.

        Raises:
            ResourceLimitExceeded: it is kept in the session alone, which has no room for it.
            StorageUnavailable: nothing was stored.
        """
        continuation, response = lineage.continuation, finished.response
        if not response.store and continuation is None:
            return
        own = [self._store_item("input", item, codec.encode(item)) for item in inputs]
        own += map(self._store_item, repeat("output"), response.output, finished.items)
        if continuation is not None:
            continuation.prepare(Checkpoint(response.id, (*lineage.history, *own), stored=response.store))
        if response.store:
            await self._append(principal, finished, own, lineage)
        if continuation is not None:
            continuation.publish()

    async def _append(
        self, principal: str, finished: EncodedResponse, own: Sequence[StoredItem], lineage: Lineage
    ) -> None:
        response = finished.response
        # Behind a parent that only the session knows, the row has to hold all that came before it.
        context = lineage.history if lineage.parent_id is None else ()
        record = StoredResponse(
            id=response.id,
            principal=principal,
            parent_id=lineage.parent_id,
            status=response.status,
            model=response.model,
            created_at=response.created_at,
            completed_at=response.completed_at,
            snapshot=finished.empty,
            items=[*(structs.replace(item, role="context") for item in context), *own],
        )
        began = time.perf_counter()
        try:
            await self._store.append(record)
        except StorageUnavailable:
            self._metrics.storage_failures_total.inc()
            raise
        self._metrics.defer(self._metrics.storage_append_seconds.observe, time.perf_counter() - began)
        if self._room.is_limited:
            self._room.add(principal, record.size)

    def _store_item(self, role: str, item: Any, data: bytes) -> StoredItem:
        is_dict = isinstance(item, dict)
        read = item.get if is_dict else partial(getattr, item)
        kind = str(item["type"] if is_dict else item.__struct_config__.tag)
        return StoredItem(
            role=role,
            type=kind,
            id=_text(read("id", None)) or self._ids.mint(prefix_of(kind)),
            call_id=_text(read("call_id", None)),
            status=_text(read("status", None)),
            data=data,
        )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
