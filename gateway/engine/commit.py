"""Makes a finished response durable: everything here happens before its terminal event leaves."""

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs

from gateway.ports import Ids, Store, StoredItem, StoredResponse
from gateway.protocol import codec
from gateway.protocol.errors import StorageUnavailable
from gateway.protocol.ids import prefix_of
from gateway.protocol.response import Response
from gateway.telemetry.metrics import Metrics


class Committer:
    """Writes responses to the store.

    Args:
        store: where to.
        ids: mints ids for input items that came without one.
        metrics: time and failures of appends.
    """

    def __init__(self, store: Store, ids: Ids, metrics: Metrics) -> None:
        self._store = store
        self._ids = ids
        self._metrics = metrics

    async def commit(self, principal: str, response: Response, inputs: Sequence[dict[str, Any]]) -> None:
        """Persist a response with its new input and its output; returns after the database has committed.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        record = StoredResponse(
            id=response.id,
            principal=principal,
            parent_id=response.previous_response_id,
            status=response.status,
            model=response.model,
            created_at=response.created_at,
            completed_at=response.completed_at,
            snapshot=codec.encode(structs.replace(response, output=[])),
            items=[*self._store_all("input", inputs), *self._store_all("output", response.output)],
        )
        began = time.perf_counter()
        try:
            await self._store.append(record)
        except StorageUnavailable:
            self._metrics.storage_failures_total.inc()
            raise
        self._metrics.defer(self._metrics.storage_append_seconds.observe, time.perf_counter() - began)

    def _store_all(self, role: str, items: Iterable[Any]) -> Iterable[StoredItem]:
        for item in items:
            read = partial(getattr, item) if isinstance(item, Struct) else item.get
            kind = str(item.__struct_config__.tag if isinstance(item, Struct) else item["type"])
            yield StoredItem(
                role=role,
                type=kind,
                id=_text(read("id", None)) or self._ids.mint(prefix_of(kind)),
                call_id=_text(read("call_id", None)),
                status=_text(read("status", None)),
                data=codec.encode(item),
            )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
