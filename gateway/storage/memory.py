"""The store's twin in memory, for tests and for trying things out; it forgets everything at the end."""

from collections.abc import Iterator, Sequence
from datetime import date

from msgspec import structs

from gateway.ports import Deletion, History, StoredItem, StoredResponse, StoreHealth, UsageCount, UsageFlush
from gateway.protocol.errors import ResponseNotFound, StorageUnavailable
from gateway.storage.history import check_bounds
from gateway.storage.leases import MemoryLeases
from gateway.storage.memory_conversations import MemoryConversations
from gateway.storage.no_runs import NoRuns
from gateway.storage.references import check_references
from gateway.storage.rows import count_agent_bytes, count_item_bytes

_MAX_REFERENCE_LENGTH = 64


class MemoryStore:
    """`ports.Store` in a dictionary.

    Attributes:
        conversations: items in an order of their own.
        leases: what is held for a while.
        background: nothing; what forgets everything takes over nothing.
        usage: what was used, by principal, day and model.
    """

    def __init__(self, *, history_max_responses: int = 10_000, history_max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_responses = history_max_responses
        self._max_bytes = history_max_bytes
        self.leases = MemoryLeases()
        self.conversations = MemoryConversations(self.leases, self.append)
        self.background = NoRuns()
        self._responses: dict[str, StoredResponse] = {}
        self._deleted: set[str] = set()
        self.usage: dict[tuple[str, date, str], UsageCount] = {}
        self._flushed: str | None = None
        self._closed = False

    async def start(self) -> None:
        """Nothing to open."""

    async def append(self, response: StoredResponse) -> None:
        """Keep the response.

        Raises:
            StorageUnavailable: the id is taken, the parent is not there, or the store is closed.
        """
        if self._closed:
            raise StorageUnavailable("The store is closed.")
        orphaned = response.parent_id is not None and self._find(response.principal, response.parent_id) is None
        if orphaned or response.id in self._responses:
            raise StorageUnavailable("The database refused the response: its id exists already or its parent is gone.")
        self._responses[response.id] = response

    async def history(self, principal: str, response_id: str) -> History | None:
        """Walk the chain; as `SqlStore.history`.

        Raises:
            InvalidRequest: the chain passes a bound.
        """
        if self._find_live(principal, response_id) is None:
            return None
        chain = list(self._walk(principal, response_id))
        check_bounds(
            responses=len(chain),
            size=_count_bytes(chain),
            max_responses=self._max_responses,
            max_bytes=self._max_bytes,
        )
        if chain[0].agents is not None:
            tree = tuple(agent for response in reversed(chain) for agent in response.agents or ())
            return History(response_id=response_id, items=(), responses=len(chain), tree=tree)
        items = tuple(item for response in reversed(chain) for item in response.items)
        oldest = chain[-1]
        if oldest.conversation_id is None:
            return History(response_id=response_id, items=items, responses=len(chain))
        before = self.conversations.before(oldest)
        return History(response_id=response_id, items=(*before, *items), responses=len(chain), settled=False)

    async def holds(self, principal: str, response_id: str) -> bool:
        """Tell whether the principal has such a live response."""
        return self._find_live(principal, response_id) is not None

    async def response(self, principal: str, response_id: str) -> StoredResponse | None:
        """Return one response with its own items, or None."""
        found = self._find_live(principal, response_id)
        return found if found is None or found.agents is None else structs.replace(found, agents=None)

    async def delete(self, deletion: Deletion) -> None:
        """Hide the response.

        Raises:
            ResponseNotFound: the principal has no such live response.
            StorageUnavailable: the store is closed.
        """
        if self._closed:
            raise StorageUnavailable("The store is closed.")
        if self._find_live(deletion.principal, deletion.id) is None:
            raise ResponseNotFound(deletion.id)
        self._deleted.add(deletion.id)

    async def stored_bytes(self, principal: str) -> int:
        """Return the sizes of all responses of a principal, and of what only conversations hold."""
        kept = sum(response.size for response in self._responses.values() if response.principal == principal)
        own = {id(item) for response in self._responses.values() for item in response.items}
        loose = (item for item in self.conversations.held(principal) if id(item) not in own)
        return kept + sum(len(item.data) for item in loose) + self.conversations.count_metadata(principal)

    async def add_usage(self, flush: UsageFlush) -> None:
        """Add counts to those kept.

        Raises:
            StorageUnavailable: the store is closed.
        """
        if self._closed:
            raise StorageUnavailable("The store is closed.")
        if flush.id == self._flushed:
            return
        self._flushed = flush.id
        for count in flush.counts:
            key = (count.principal, count.day, count.model)
            self.usage[key] = _add(self.usage[key], count) if key in self.usage else count

    async def items(self, principal: str, item_ids: Sequence[str]) -> dict[str, StoredItem]:
        """Return the newest item for each id; as `SqlStore.items`.

        Raises:
            InvalidRequest: the items pass the bound together.
        """
        wanted = {item_id for item_id in item_ids if len(item_id) <= _MAX_REFERENCE_LENGTH}
        own = (response for response in self._responses.values() if self._find_live(principal, response.id))
        found = {item.id: item for item in self.conversations.held(principal) if item.id in wanted}
        found |= {item.id: item for response in own for item in response.items if item.id in wanted}
        check_references(sum(len(item.data) for item in found.values()), self._max_bytes)
        return found

    async def verify(self) -> None:
        """Succeed until closed.

        Raises:
            StorageUnavailable: the store is closed.
        """
        if self._closed:
            raise StorageUnavailable("The store is closed.")

    async def probe(self) -> StoreHealth:
        """Healthy until closed."""
        return StoreHealth(healthy=not self._closed, detail="The store is closed." if self._closed else "In memory.")

    async def close(self) -> None:
        """Refuse appends from now on."""
        self._closed = True

    def _find(self, principal: str, response_id: str) -> StoredResponse | None:
        response = self._responses.get(response_id)
        return response if response is not None and response.principal == principal else None

    def _find_live(self, principal: str, response_id: str) -> StoredResponse | None:
        return None if response_id in self._deleted else self._find(principal, response_id)

    def _walk(self, principal: str, response_id: str) -> Iterator[StoredResponse]:
        current: str | None = response_id
        while current is not None and (response := self._find(principal, current)):
            yield response
            current = response.parent_id


def _count_bytes(chain: Sequence[StoredResponse]) -> int:
    if chain[0].agents is None:
        return sum(map(count_item_bytes, chain))
    return sum(count_agent_bytes(response.agents or ()) for response in chain)


def _add(kept: UsageCount, count: UsageCount) -> UsageCount:
    numbers = {
        name: number + getattr(count, name) for name, number in structs.asdict(kept).items() if type(number) is int
    }
    return structs.replace(kept, **numbers)
