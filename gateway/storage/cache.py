"""A store that remembers the histories of chains that go on, so that the next turn asks the database nothing."""

import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gateway.ports import Deletion, History, Store, StoredItem, StoredResponse, StoreHealth, UsageFlush
from gateway.protocol.errors import StorageUnavailable
from gateway.storage.chains import Entry, HistoryCache, Key, Link
from gateway.storage.history import within_bounds
from gateway.telemetry.metrics import Metrics


class CachedStore:
    """`ports.Store` around another one, with the histories read and appended lately in memory.

    A stored response never changes, so a history is right as long as its response exists; one that began in a
    conversation, whose items may be taken out, is not kept. That is asked again once
    the answer is `revalidate_seconds` old: until then a deletion by another process may go unnoticed. Deletions
    through this store take effect at once. Everything but histories goes to the other store untouched.

    Args:
        store: what is asked for everything that is not in memory.
        max_bytes: most memory for histories.
        revalidate_seconds: how long a response is taken to exist, 0 to ask every time.
        history_max_responses: bound of the other store; what is above it is not kept, so that the store refuses it.
        history_max_bytes: another such bound.
        metrics: what is counted.
        monotonic: seconds on a clock that never goes back.

    Attributes:
        conversations: those of the other store.
        leases: those of the other store.
        background: likewise.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_bytes: int,
        revalidate_seconds: float,
        history_max_responses: int,
        history_max_bytes: int,
        metrics: Metrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self.conversations = store.conversations
        self.leases = store.leases
        self.background = store.background
        self._revalidate_seconds = revalidate_seconds
        self._max_responses = history_max_responses
        self._max_bytes = history_max_bytes
        self._metrics = metrics
        self._monotonic = monotonic
        self._cache = HistoryCache(max_bytes)
        # Histories on their way into memory. A deletion makes one stop counting, and so does a later one of its key.
        self._filling: dict[Key, object] = {}
        metrics.watch(metrics.history_cache_bytes, lambda: self._cache.bytes)

    async def start(self) -> None:
        """Start the other store."""
        await self._store.start()

    async def append(self, response: StoredResponse) -> None:
        """Persist the response; its history is kept if that of its parent is, or if it has none.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        key = (response.principal, response.id)
        fill = self._filling[key] = object()
        began = self._monotonic()
        try:
            await self._store.append(response)
        except StorageUnavailable:
            if parent := self._find_parent(response):
                # Perhaps it is gone, so the next use has to ask.
                parent.proven_at = -math.inf
            raise
        finally:
            counts = self._end_fill(key, fill)
        if not counts:
            return
        if response.parent_id is None:
            self._keep(key, Link(response.items, agents=response.agents), began)
        elif parent := self._find_parent(response):
            self._keep(key, Link(response.items, parent.link, agents=response.agents), began)

    async def history(self, principal: str, response_id: str) -> History | None:
        """Return the history from memory, after one short query if it has not been used for a while, else read it.

        Raises:
            InvalidRequest: the chain is longer or larger than the other store's bounds.
            StorageUnavailable: the database does not answer.
        """
        key = (principal, response_id)
        entry = self._cache.find(key)
        if entry is None:
            self._count("miss")
            return await self._read(key)
        began = self._monotonic()
        if began - entry.proven_at < self._revalidate_seconds:
            self._count("hit")
        elif await self._store.holds(principal, response_id):
            entry.proven_at = max(entry.proven_at, began)
            self._count("revalidated")
        else:
            self._cache.drop(key)
            self._count("gone")
            return None
        return entry.link.build_history(response_id)

    async def delete(self, deletion: Deletion) -> None:
        """Hide the response; a caller that is cancelled may see it for `revalidate_seconds` more.

        Raises:
            ResponseNotFound: the principal has no such live response.
            StorageUnavailable: the database does not answer, or the writer's queue is full.
        """
        key = (deletion.principal, deletion.id)
        try:
            await self._store.delete(deletion)
        finally:
            # What is on its way into memory may be older than the deletion.
            self._filling.pop(key, None)
            self._cache.drop(key)

    async def stored_bytes(self, principal: str) -> int:
        """Ask the other store."""
        return await self._store.stored_bytes(principal)

    async def add_usage(self, flush: UsageFlush) -> None:
        """Hand it to the other store."""
        await self._store.add_usage(flush)

    async def holds(self, principal: str, response_id: str) -> bool:
        """Ask the other store."""
        return await self._store.holds(principal, response_id)

    async def response(self, principal: str, response_id: str) -> StoredResponse | None:
        """Ask the other store."""
        return await self._store.response(principal, response_id)

    async def items(self, principal: str, item_ids: Sequence[str]) -> dict[str, StoredItem]:
        """Ask the other store."""
        return await self._store.items(principal, item_ids)

    def verify(self) -> Coroutine[Any, Any, None]:
        """Ask the other store."""
        return self._store.verify()

    async def probe(self) -> StoreHealth:
        """Ask the other store."""
        return await self._store.probe()

    async def close(self) -> None:
        """Close the other store."""
        await self._store.close()

    def _find_parent(self, response: StoredResponse) -> Entry | None:
        return None if response.parent_id is None else self._cache.find((response.principal, response.parent_id))

    async def _read(self, key: Key) -> History | None:
        fill = self._filling[key] = object()
        began = self._monotonic()
        try:
            history = await self._store.history(*key)
        finally:
            counts = self._end_fill(key, fill)
        if history is not None and history.settled and counts:
            self._keep(key, Link(history.items, responses=history.responses, agents=history.tree), began)
        return history

    def _end_fill(self, key: Key, fill: object) -> bool:
        """End one fill, and tell whether what arrived may be kept."""
        if self._filling.get(key) is not fill:
            return False
        del self._filling[key]
        return True

    def _keep(self, key: Key, link: Link, proven_at: float) -> None:
        fits = within_bounds(
            responses=link.responses,
            size=link.item_bytes,
            max_responses=self._max_responses,
            max_bytes=self._max_bytes,
        )
        if not fits:
            return
        before = self._cache.evictions
        self._cache.keep(key, link, proven_at)
        if self._cache.evictions > before:
            self._metrics.history_cache_evictions_total.inc(self._cache.evictions - before)

    def _count(self, outcome: str) -> None:
        self._metrics.history_cache_lookups_total.labels(outcome=outcome).inc()
